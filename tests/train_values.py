"""Configurations, plans and results of trainings that never were."""

from pathlib import Path
from typing import Any

from refinesynth.train.config import TrainConfig
from refinesynth.train.events import TrainResult
from refinesynth.train.layered_settings import layered
from refinesynth.train.plan import ComputeSettings, Devices, ModelShape, Plan, Sizes, make_plan
from refinesynth.train.prepare import Counts

GIB = 2**30
LLAMA_8B = ModelShape(
    name="meta-llama/Meta-Llama-3-8B",
    parameters=8_030_261_248,
    trainable=8_030_261_248,
    layers=32,
    hidden=4096,
    intermediate=14_336,
    vocabulary=128_256,
    positions=8192,
)
CPU = Devices("cpu", "x86_64")


def gpus(ranks: int = 1, gib: int = 80) -> Devices:
    return Devices("gpu", "NVIDIA H100", ranks, gib * GIB)


def a_config(**fields: Any) -> TrainConfig:
    return layered(given={"data": ["runs/first"], "model": "m/base", "output": "models/first", **fields}).config


def counts(conversations: int = 1000, **numbers: int) -> Counts:
    """As many records as conversations, of 1,000 tokens each, 40 % of them trained."""
    found: dict[str, Any] = {
        "conversations": conversations,
        "records": conversations,
        "tokens": conversations * 1000,
        "trained_tokens": conversations * 400,
        "mistake_tokens": conversations * 100,
        **numbers,
    }
    return Counts(**found)


def sizes(
    found: Counts | None = None, held_out: Counts | None = None, *, largest_id: int = 1000, longest: int = 3000
) -> Sizes:
    return Sizes(
        counts=found or counts(),
        held_out=held_out,
        largest_id=largest_id,
        longest=longest,
        digest="d" * 64,
    )


WRITTEN = {".refinesynth-training", "train.yaml", "plan.json", "versions.json", "metrics.jsonl"}
"""What a training has written before it is finished."""
FINISHED = {*WRITTEN, "result.json", "README.md"}

MEANS = ComputeSettings(precision="bf16", parallel="none", gradient_checkpointing=True, attention="sdpa")


def a_plan(
    config: TrainConfig | None = None,
    *,
    of: Sizes | None = None,
    model: ModelShape = LLAMA_8B,
    devices: Devices = CPU,
    means: ComputeSettings = MEANS,
) -> Plan:
    return make_plan(config or a_config(), sizes=of or sizes(), model=model, devices=devices, compute=means)


def a_result(output: Path, **fields: Any) -> TrainResult:
    values: dict[str, Any] = {
        "steps": 160,
        "planned_steps": 160,
        "epochs": 10.0,
        "loss": 0.51234,
        "held_out": {"loss": 0.6, "loss_correct": 0.55, "loss_refinement": 0.7, "loss_mistake": 2.5},
        "best_step": 128,
        **fields,
    }
    return TrainResult(output=output, **values)
