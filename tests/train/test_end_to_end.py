"""From rehearsed episodes to a model that has learned from them, with nothing in between made up."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

import refinesynth as rs
from refinesynth.chat import to_messages
from refinesynth.train import Trainer
from refinesynth.train.conversation import Conversation
from refinesynth.train.data import read_conversations, split
from refinesynth.train.events import LOSS, LOSS_CORRECT, LOSS_MISTAKE, LOSS_REFINEMENT
from refinesynth.train.render import Renderer
from refinesynth.train.tokens import Label

TRAJECTORIES = 200
HELD_OUT = 20
"""Environments, of which each trajectory has one of its own."""

_WIDTH = 192

_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder as a user gets it."""
    folder = tmp_path_factory.mktemp("end-to-end") / "run"
    personas = [f"somebody with the number {at}" for at in range(2 * TRAJECTORIES)]

    async def rehearse() -> int:
        return len(await rs.synthesize(personas, n=TRAJECTORIES, backend="rehearsal", output=folder))

    assert anyio.run(rehearse) == TRAJECTORIES
    return folder


@pytest.fixture(scope="module")
def tokenizer(run: Path) -> Any:
    """Byte-level, two thousand tokens, trained on the data."""
    lines = (run / "trajectories.jsonl").read_bytes().splitlines()
    texts = (message.content for line in lines for message in to_messages(rs.Trajectory.from_json(line)))
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=2000,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            show_progress=False,
        ),
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = _TEMPLATE
    return fast


def untrained(folder: Path, tokenizer: Any) -> Path:
    """A llama of three million parameters that knows nothing."""
    set_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=_WIDTH,
        intermediate_size=3 * _WIDTH,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        # The usual 0.02 is meant for widths of thousands.
        initializer_range=_WIDTH**-0.5,
        bos_token_id=None,
        eos_token_id=tokenizer.convert_tokens_to_ids("<|im_end|>"),
        pad_token_id=tokenizer.convert_tokens_to_ids("<|endoftext|>"),
    )
    model: Any = LlamaForCausalLM(config)
    assert 3e6 < sum(weights.numel() for weights in model.parameters()) < 4e6
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def own_entropy(conversations: list[Conversation], tokenizer: Any) -> float:
    """Entropy of the trained tokens' own frequencies, in nats: what the best of all models that ignore the context would lose on
    them, even one that had seen them beforehand.
    """
    renderer = Renderer(tokenizer)
    seen = [one for conversation in conversations for one in renderer.render(conversation)]
    tokens = np.concatenate([one.input_ids[one.labels == Label.TRAINED] for one in seen]).tolist()
    return sum(-count / len(tokens) * math.log(count / len(tokens)) for count in Counter(tokens).values())


@pytest.mark.long
def test_rehearsed_trajectories_teach_a_small_model_what_held_out_environments_ask_for(
    run: Path, tokenizer: Any, tmp_path: Path
) -> None:
    trainer = Trainer(
        model=untrained(tmp_path / "untrained", tokenizer),
        data=run,
        output=tmp_path / "tuned",
        max_length=2048,
        held_out=HELD_OUT,
        epochs=1,
        batch_size=2,
        learning_rate=3e-3,
        warmup=0.1,
        precision="fp32",
        device="cpu",
        plots=False,
    )
    result = trainer.train()
    _, held_out = split(list(read_conversations([run])), HELD_OUT, trainer.config.seed)
    assert len(held_out) == HELD_OUT
    bound = own_entropy(held_out, tokenizer)
    # Whoever knows how often each token comes, and nothing else, stays above `bound`: 4.9 nats. One pass over 180 trajectories brings
    # this model to 2.5, in environments that it has not seen. Below 60 % of the bound it must be using the context.
    assert result.held_out[LOSS] < 0.6 * bound
    assert {LOSS_CORRECT, LOSS_REFINEMENT, LOSS_MISTAKE} <= result.held_out.keys()
    # Mistakes are out of the loss: what else was learned helps with them, too, but never as much.
    assert result.held_out[LOSS_MISTAKE] > result.held_out[LOSS]
    llama: Any = LlamaForCausalLM
    tuned = llama.from_pretrained(tmp_path / "tuned")
    assert tuned.config.vocab_size == len(tokenizer)
