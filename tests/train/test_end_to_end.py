"""From rehearsed episodes to a model that has learned from them, with nothing in between made up."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from transformers import AutoTokenizer, LlamaForCausalLM

import refinesynth as rs
from refinesynth.train import Trainer
from refinesynth.train.data import read_conversations, split
from refinesynth.train.events import LOSS, LOSS_CORRECT, LOSS_MISTAKE, LOSS_REFINEMENT
from refinesynth.train.labelled_conversation import Conversation
from refinesynth.train.render import Renderer
from refinesynth.train.tokens import Label

pytestmark = pytest.mark.train

TRAJECTORIES = 200
HELD_OUT = 20
"""Environments, of which each trajectory has one of its own."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder as a user gets it."""
    folder = tmp_path_factory.mktemp("end-to-end") / "run"
    personas = [f"somebody with the number {at}" for at in range(2 * TRAJECTORIES)]

    async def rehearse() -> int:
        return len(await rs.synthesize(personas, n=TRAJECTORIES, backend="rehearsal", output=folder))

    assert anyio.run(rehearse) == TRAJECTORIES
    return folder


def own_entropy(conversations: list[Conversation], tokenizer: Any) -> float:
    """Entropy of the trained tokens' own frequencies, in nats: what the best of all models that ignore the context
    would lose on them, even one that had seen them beforehand.
    """
    renderer = Renderer(tokenizer)
    seen = [one for conversation in conversations for one in renderer.render(conversation)]
    tokens = np.concatenate([one.input_ids[one.labels == Label.TRAINED] for one in seen]).tolist()
    return sum(-count / len(tokens) * math.log(count / len(tokens)) for count in Counter(tokens).values())


@pytest.mark.long
def test_rehearsed_trajectories_teach_a_small_model_what_held_out_environments_ask_for(
    run: Path, tmp_path: Path
) -> None:
    trainer = Trainer(
        model="scratch",
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
    )
    result = trainer.train()
    auto: Any = AutoTokenizer
    tokenizer: Any = auto.from_pretrained(tmp_path / "tuned")
    _, held_out = split(list(read_conversations([run])), HELD_OUT, trainer.config.seed)
    assert len(held_out) == HELD_OUT
    bound = own_entropy(held_out, tokenizer)
    # Whoever knows how often each token comes, and nothing else, stays above `bound`: 4.9 nats. One pass over 180
    # trajectories brings this model below 2.9, in environments that it has not seen. Below 60 % of the bound it must be
    # using the context.
    assert result.held_out[LOSS] < 0.6 * bound
    assert {LOSS_CORRECT, LOSS_REFINEMENT, LOSS_MISTAKE} <= result.held_out.keys()
    llama: Any = LlamaForCausalLM
    tuned = llama.from_pretrained(tmp_path / "tuned")
    assert tuned.config.vocab_size == len(tokenizer)
