"""The plan's disk against what a training writes."""

from pathlib import Path
from typing import Any

import engine_toys as toys
import pytest
import tiny
from test_engine_whole import FIELDS, records

from refinesynth.train import Trainer

pytestmark = pytest.mark.train


def size(folder: Path, *patterns: str) -> int:
    return sum(each.stat().st_size for pattern in patterns for each in folder.glob(pattern) if each.is_file())


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"precision": "bf16-pure", "save_dtype": "fp32"},
        {"lora": {"rank": 64}, "precision": "bf16", "save_dtype": "auto"},
        {"multimodal": True},
    ],
    ids=str,
)
def test_checkpoints_and_the_model_take_the_room_that_was_planned(tmp_path: Path, fields: dict[str, Any]):
    tokenizer = tiny.tokenizer("chatml")
    tokenizer.save_pretrained(str(tmp_path / "base"))
    wide: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "vocab_size": len(tokenizer)}
    make = toys.multimodal if fields.pop("multimodal", False) else toys.model
    make(**wide).bfloat16().save_pretrained(str(tmp_path / "base"))
    output = tmp_path / "out"
    asked: dict[str, Any] = FIELDS | {"epochs": 3, "keep": 1} | fields
    trainer = Trainer(model=tmp_path / "base", data=records(), output=output, **asked)
    plan = trainer.plan()
    assert trainer.train().steps == plan.steps
    left = sorted((output / "checkpoints").iterdir())
    assert 1 <= len(left) <= plan.room.checkpoints
    weights = "model*.safetensors", "adapter_model.safetensors"
    for each in left:
        assert size(each, *weights, "optimizer.pt") == pytest.approx(plan.room.checkpoint, rel=0.03)
    assert size(output, *weights) == pytest.approx(plan.room.model, rel=0.03)
