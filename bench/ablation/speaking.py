"""A tokenizer of a few hundred words, trained on the data, and an untrained model that speaks them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

from refinesynth.chat import INSTRUCTIONS

USER, ASSISTANT, END, PAD = "<|user|>", "<|assistant|>", "<|end|>", "<|pad|>"

TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'assistant' %}<|assistant|>{% generation %}{{ message.content }}<|end|>{% endgeneration %}"
    "{% else %}<|user|>{{ message.content }}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

_PIECES = r" ?[A-Z]{2}| ?[A-Za-z]+| ?[^A-Za-z\s]|\s"
"""A name, a word or a mark, with the blank before it: joined again, they are the text."""


def trained_tokenizer(texts: Iterable[str], *, names: Sequence[str], vocabulary: int = 512) -> PreTrainedTokenizerFast:
    """Byte-pair encoding in which every word of these texts and every one of these names becomes a token.

    The instructions at the end of every task are one token: they never change, and are a third of the context else.
    """
    tokenizer: Any = Tokenizer(models.BPE(unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_PIECES), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    alphabet = [chr(code) for code in range(32, 127)] + ["\n"]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        initial_alphabet=alphabet,
        special_tokens=[PAD, USER, ASSISTANT, END],
        show_progress=False,
    )
    every = [" ".join(names) + "".join(f"\n{one}" for one in names)] * 100
    tokenizer.train_from_iterator((text.replace(INSTRUCTIONS, "") for text in (*every, *texts)), trainer)
    tokenizer.add_tokens([AddedToken(INSTRUCTIONS, normalized=False)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, unk_token=PAD)
    fast.chat_template = TEMPLATE
    return fast


def save_untrained(tokenizer: Any, folder: Path, *, seed: int, width: int, layers: int) -> Path:
    """A folder with this tokenizer and a model whose weights nobody has trained; width in units of the residual
    stream."""
    set_seed(seed)
    end, pad = (tokenizer.convert_tokens_to_ids(token) for token in (END, PAD))
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 16,
        num_key_value_heads=width // 16,
        max_position_embeddings=4_096,
        tie_word_embeddings=True,
        # The usual 0.02 is meant for widths of thousands. Here attention would stay flat for most of the training.
        initializer_range=width**-0.5,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=pad,
    )
    model: Any = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
