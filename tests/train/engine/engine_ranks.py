"""What two ranks run, under torchrun: every way to share the work, one after the other, each compared by the test.

    python -m torch.distributed.run --standalone --nproc-per-node 2 engine_ranks.py FOLDER NAME...

Writes FOLDER/NAME/, the model after training, and FOLDER/NAME.json: losses and gradient norms of every step, the
evaluation, and the share of the weights that rank 0 holds.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import engine_toys as toys
import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DistributedType
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from refinesynth.errors import TrainingError
from refinesynth.train.engine.adapters import freeze, unused_by_text
from refinesynth.train.engine.parallel import deepspeed_json

WAYS: dict[str, dict[str, Any]] = {
    # The first way: it forms the process group.
    "ddp": {"parallel": "ddp", "trainer": {"ddp_timeout": 777}},
    # One conversation a step: the other rank has an empty pack every time.
    "ddp, one idle": {"parallel": "ddp", "batch_size": 1},
    # A vision tower that text gives no gradient: DDP would wait for it.
    "ddp, multimodal": {"parallel": "ddp", "multimodal": True},
    "fsdp": {"parallel": "fsdp"},
    "fsdp, multimodal": {"parallel": "fsdp", "multimodal": True},
    "fsdp, bf16, head in chunks": {"parallel": "fsdp", "precision": "bf16", "chunk": 7},
    "fsdp, one idle": {"parallel": "fsdp", "batch_size": 1, "max_steps": 3},
    "zero2": {"parallel": "zero2"},
    "zero2, offloaded": {"parallel": "zero2", "offload": True},
    "zero3": {"parallel": "zero3"},
    "zero3, offloaded": {"parallel": "zero3", "offload": True},
    "zero3, one idle, head in chunks": {"parallel": "zero3", "batch_size": 1, "max_steps": 3, "chunk": 7},
}


def as_if_on_gpus() -> None:
    """Have accelerate shard with FSDP on CPUs, which torch can and accelerate does for GPUs alone; what is tested is
    ours."""
    PartialState(cpu=True)
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU


def sharding(folder: Path, parallel: str, *, offload: bool = False) -> str:
    """Our sharding of DeepSpeed, but that no parameter is small enough to be kept whole on every rank."""
    sharding = deepspeed_json(toys.config(folder), parallel, "cpu")["zero_optimization"]
    sharding |= {"stage3_param_persistence_threshold": 0} if parallel == "zero3" else {}
    sharding |= {"offload_optimizer": {"device": "cpu"}} if offload else {}
    path = folder / f"sharding_{os.getpid()}.json"  # of this rank: the other would find one that is being written
    # DeepSpeed's own AdamW on CPUs would be compiled.
    path.write_text(json.dumps({"zero_force_ds_cpu_optimizer": False, "zero_optimization": sharding}))
    return str(path)


def share(model: Any) -> float:
    """Of the weights, the part that this rank holds."""
    held = [getattr(one, "_local_tensor", one).numel() for one in model.parameters()]
    return sum(held) / sum(int(getattr(one, "ds_numel", one.numel())) for one in model.parameters())


def train(folder: Path, name: str, way: dict[str, Any] | None = None) -> None:
    way = way or WAYS[name]
    parallel, offload = way["parallel"], "offload" in way
    own = parallel == "zero3" or (parallel == "zero2" and offload)
    asked = toys.config(
        folder / name,
        max_length=40,
        batch_size=way.get("batch_size", 5),
        max_steps=way.get("max_steps"),
        deepspeed=sharding(folder, parallel, offload=offload) if own else None,
        precision=way.get("precision", "fp32"),
        trainer=way.get("trainer", {}),
    )
    told: list[dict[str, float]] = []

    class Kept(toys.NullEvents):
        def logged(self, step: int, metrics: Any) -> None:
            told.append({name: metrics[name] for name in ("loss", "grad_norm")})

        def evaluated(self, step: int, metrics: Any) -> None:
            told.append(dict(metrics))

    options: dict[str, Any] = {"before": as_if_on_gpus} if way["parallel"] == "fsdp" else {}
    options |= {"chunk_elements": way["chunk"] * toys.VOCABULARY} if "chunk" in way else {}

    model = toys.multimodal() if "multimodal" in way else toys.model()
    freeze(model, unused_by_text(model))
    last = toys.loop(
        model,
        toys.store(11, seed=3),
        asked,
        held_out=toys.TokenStore(replace(one, source="ab"[at % 2]) for at, one in enumerate(toys.store(5, seed=9))),
        parallel=way["parallel"],
        events=Kept(),
        **options,
    )
    last.train()
    last.evaluate_and_report()
    last.writer.write(folder / name, dtype=None)
    last.writer.write(folder / name / "half", dtype=torch.bfloat16)
    if last.accelerator.is_main_process:
        told.append({"share": share(last.model)})
        (folder / f"{name}.json").write_text(json.dumps(told))


def one_without_a_number(folder: Path) -> None:
    """The loss is no number on rank 1 alone; both ranks end with the same error."""
    made = toys.loop(
        toys.model(), toys.store(11, seed=3), toys.config(folder / "broken", max_length=40), parallel="ddp"
    )
    plain = made.losses
    made.losses = lambda batch: plain(batch) * (float("nan") if dist.get_rank() else 1.0)
    try:
        made.train()
    except TrainingError as exc:
        (folder / f"broken {dist.get_rank()}.json").write_text(json.dumps(str(exc)))


def reset() -> None:
    """Forget what the libraries keep for a whole process."""
    AcceleratorState._reset_state()
    GradientState._reset_state()
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_CPU
    unset_hf_deepspeed_config()
    for variable in ("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP"):
        os.environ.pop(variable, None)


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    for name in sys.argv[2:]:
        train(folder, name)
        dist.barrier()
        reset()
    group = dist.group.WORLD
    (folder / "patience.json").write_text(str(cast("Any", group)._get_backend(torch.device("cpu")).options._timeout))
    one_without_a_number(folder)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
