"""Trainings that need nothing but the data: the recipe `smoke`, on a model from scratch."""

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import engine_toys as toys
import pytest
import tiny
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import refinesynth as rs
from refinesynth.train import Trainer
from refinesynth.train.engine.loading import load_model, make_tokenizer
from refinesynth.train.events import TrainResult

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve trajectories."""
    folder = tmp_path_factory.mktemp("scratch") / "run"
    personas = [f"somebody with the number {at}" for at in range(24)]
    anyio.run(partial(rs.synthesize, personas, n=12, backend="rehearsal", output=folder))
    return folder


def smoke(run: Path, output: Path, **fields: Any) -> Trainer:
    """The recipe, with fewer steps and shorter conversations."""
    short: dict[str, Any] = {
        "max_steps": 4,
        "max_length": 900,
        "held_out": 3,
        "evaluate_every": 1,
        "save_every": 2,
        "keep": "all",
    }
    return Trainer(data=run, output=output, recipe="smoke", device="cpu", **short | fields)


@pytest.fixture(scope="module")
def trained(run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainResult, list[float]]:
    output, told = tmp_path_factory.mktemp("smoke") / "out", toys.Kept()
    result = smoke(run, output).train(events=told)
    return output, result, [metrics["loss"] for _, metrics in told.evaluations]


def test_it_needs_no_model_and_learns(run: Path, trained: tuple[Path, TrainResult, list[float]]):
    output, result, losses = trained
    assert (result.steps, len(losses)) == (4, 4)
    assert losses[-1] < losses[0] - 0.5
    model: Any = AutoModelForCausalLM.from_pretrained(output)
    tokenizer: Any = AutoTokenizer.from_pretrained(output)
    assert model.config.vocab_size == len(tokenizer)
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Go."}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    assert tokenizer.decode(ids["input_ids"][0]) == "<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n"
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert "refinesynth-scratch" not in (output / "config.json").read_text()
    # What came out is a model that a training can begin with, and what is previewed is what is trained.
    again = Trainer(data=run, output=output.parent / "again", model=output, recipe="smoke", max_length=900)
    assert again.plan().model.parameters == sum(each.numel() for each in model.parameters())
    of_scratch, of_model = smoke(run, output).preview()[0], again.preview()[0]
    assert of_scratch == of_model


def test_tokenizer_and_weights_follow_from_data_and_seed(tmp_path: Path):
    talks = [tiny.talk("cmr" * k, id=f"{k}", system="日本 \ud800 <|im_end|>") for k in range(1, 9)]
    tokenizers: list[Any] = [make_tokenizer(talks) for _ in range(2)]
    one, other = (each.backend_tokenizer.to_str() for each in tokenizers)
    assert one == other
    assert tokenizers[0].decode(tokenizers[0]("plain 日本").input_ids) == "plain 日本"

    def weights(seed: int) -> dict[str, torch.Tensor]:
        asked = toys.config(tmp_path, model="scratch", seed=seed)
        torch.rand(seed)  # whatever was drawn before
        return load_model(asked, "fp32", gradient_checkpointing=False, tokenizer=tokenizers[0]).state_dict()

    first, same, another = weights(1), weights(1), weights(2)
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], another["lm_head.weight"])
