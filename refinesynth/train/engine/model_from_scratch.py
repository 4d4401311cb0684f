"""Model from scratch, to see a training run: random weights, and a tokenizer made from the data.

Both depend on data and seed alone, so all ranks and resumed trainings make the same ones.
"""

import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import SAFE_WEIGHTS_NAME

from refinesynth.train.config import TrainConfig
from refinesynth.train.labelled_conversation import Conversation
from refinesynth.train.render.template import NAMED, read_template

_TEMPLATE: Final = "chatml"
_END_OF_TEXT: Final = "<|endoftext|>"
_VOCABULARY: Final = 2000
_CHARACTERS: Final = 2_000_000
"""Characters of the data for the vocabulary: more would change little, and take long."""
_LONGEST: Final = 32
_WIDTH: Final = 128


def make_tokenizer(conversations: Iterable[Conversation]) -> PreTrainedTokenizerBase:
    """Train a byte-level tokenizer with ChatML's template on the beginning of the data."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    start, end = NAMED[_TEMPLATE]
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[_END_OF_TEXT, start, end],
        max_token_length=_LONGEST,
    )
    bpe.train_from_iterator(_texts(conversations), trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=end, pad_token=_END_OF_TEXT)
    made.chat_template = cast("Any", read_template(_TEMPLATE))
    return made


def _texts(conversations: Iterable[Conversation]) -> Iterator[str]:
    left = _CHARACTERS
    for conversation in conversations:
        for turn in conversation.turns:
            # Half a character cannot be tokenized; the renderer says where it stands.
            yield turn.content[:left].encode(errors="replace").decode()
            left -= len(turn.content)
            if left <= 0:
                return


def make_config(config: TrainConfig, tokenizer: PreTrainedTokenizerBase) -> LlamaConfig:
    """Two layers like Llama's, about a million parameters, `max_length` positions."""
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=_WIDTH,
        intermediate_size=3 * _WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=config.max_length,
        # The usual 0.02 is meant for widths of thousands.
        initializer_range=_WIDTH**-0.5,
        bos_token_id=cast("Any", tokenizer).bos_token_id,
        eos_token_id=cast("Any", tokenizer).eos_token_id,
        pad_token_id=cast("Any", tokenizer).pad_token_id,
    )


@contextmanager
def made_from_scratch(config: TrainConfig, tokenizer: PreTrainedTokenizerBase) -> Generator[str]:
    """Within, a folder holds the untrained model, to be loaded like any other."""
    with tempfile.TemporaryDirectory(prefix="refinesynth-scratch-") as folder, torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model: Any = LlamaForCausalLM(make_config(config, tokenizer))
        # Its own save_pretrained writes nothing but on the first of several ranks.
        save_file(model.state_dict(), Path(folder) / SAFE_WEIGHTS_NAME, metadata={"format": "pt"})
        for settings in (model.config, model.generation_config):
            settings.save_pretrained(folder)
        yield folder
