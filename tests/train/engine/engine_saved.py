"""What two ranks run, under torchrun: whole trainings in every way of splitting, of which the test compares what they
saved.

    python -m torch.distributed.run --standalone --nproc-per-node 2 engine_saved.py FOLDER

FOLDER/base, FOLDER/routed, FOLDER/adapter and FOLDER/tokenizer are what is begun with. Writes
FOLDER/NAME/, what a training left, and FOLDER/told.json: of every training how it ended, the bytes of each rank's
weights when they were loaded, and how often weights were gathered from the ranks.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import engine_toys as toys
import torch
import torch.distributed as dist
from engine_ranks import as_if_on_gpus, reset, sharding
from torch.distributed.fsdp._fully_shard import _fsdp_param_group as _param_group
from transformers import AutoTokenizer

from refinesynth.errors import InputError, RefinesynthError
from refinesynth.train.engine import loading, loop, parallel, rank_training
from refinesynth.train.engine.parallel import Distributed, gather_objects, load_once

fsdp: Any = _param_group
SPLIT = ("ddp", "zero2", "zero3", "fsdp")
LEARNED: dict[str, dict[str, Any]] = {"full": {}, "lora": {"lora": {"rank": 2, "alpha": 4}}}
CHECKPOINTING = {"checkpointing off": False, "checkpointing on": True}

ALONE: dict[str, dict[str, Any]] = {
    f"{learned}, {how}": fields | {"gradient_checkpointing": on}
    for learned, fields in LEARNED.items()
    for how, on in CHECKPOINTING.items()
}
"""What is trained, in each of the ways of splitting."""
BESIDES: dict[str, dict[str, Any]] = {
    "scratch": {"model": "scratch", "learning_rate": 1e-3},
    # A router's bias is a buffer that is saved, and experts are saved apart though they are held together.
    "routed": {"model": "routed"},
    "lora in bf16": LEARNED["lora"] | {"precision": "bf16", "gradient_checkpointing": True},
    "lora and head": {"lora": {"rank": 2, "alpha": 4, "modules_to_save": ["lm_head"]}},
    # What "lora and head" has left is trained on.
    "adapter": {"model": "adapter", "lora": {}},
    # It gets worse: the best is not the last.
    "best": {
        "learning_rate": 0.5,
        "schedule": "linear",
        "warmup": 2,
        "held_out": 0.1,
        "evaluate_every": 1,
        "save_every": 1,
        "keep": "all",
    },
}
"""The same, for FSDP."""
ADAPTED = ("lora and head", "adapter")
WAYS = (
    [(split, name) for split in SPLIT for name in ALONE]
    + [("ddp", "scratch")]
    + [(split, name) for split in ("ddp", "zero3") for name in ADAPTED]
    + [("fsdp", name) for name in BESIDES]
)


def train(folder: Path, split: str, name: str, output: Path) -> dict[str, Any]:
    """Train, and tell of it."""
    fields = dict((ALONE | BESIDES)[name])
    model = fields.pop("model", "base")
    settings = {"max_length": 64, "batch_size": 5, "save_every": 2, "keep": 2} | fields
    asked = toys.config(
        output,
        model=model if model == "scratch" else str(folder / model),
        deepspeed=sharding(folder, "zero3") if split == "zero3" else None,
        **settings,
    )
    told: dict[str, Any] = {"bytes": [], "gathered": 0}
    stop_at, gather = loading.add_end_tokens, fsdp.foreach_all_gather
    make, destroy = parallel.make_accelerator, parallel.destroy_process_group

    def loaded(model: torch.nn.Module, store: Any) -> None:
        places = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in model.parameters()}
        told["bytes"] = gather_objects(sum(places.values()))
        stop_at(model, store)

    def gathered(*args: Any, **kwargs: Any) -> Any:
        told["gathered"] += 1
        return gather(*args, **kwargs)

    loading.add_end_tokens, fsdp.foreach_all_gather = loaded, gathered
    parallel.make_accelerator = (
        (lambda *args, **how: [as_if_on_gpus(), make(*args, **how)][1]) if split == "fsdp" else make
    )
    parallel.destroy_process_group = lambda: None
    held_out = toys.store(5, seed=9) if asked.held_out else None
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer") if model == "scratch" else None
    ready = toys.ready(asked, toys.store(11, seed=3), held_out, parallel=split, tokenizer=tokenizer)
    try:
        result = rank_training.run_training(asked, events=toys.NullEvents(), inputs=ready)
        told |= {"steps": result.steps, "resumed": result.resumed_from, "best": result.best_step}
    except RefinesynthError as exc:
        told["error"] = str(exc)
    finally:
        loading.add_end_tokens, fsdp.foreach_all_gather = stop_at, gather
        parallel.make_accelerator, parallel.destroy_process_group = make, destroy
    return told


def gone_on(folder: Path, split: str, name: str) -> dict[str, Any]:
    """What a training that was killed behind its first checkpoint comes to."""
    output = folder / f"{split}, {name}, gone on"
    kept = Path("checkpoints") / "checkpoint-2"
    if dist.get_rank() == 0:
        shutil.copytree(folder / f"{split}, {name}" / kept, output / kept)
    dist.barrier()
    return train(folder, split, name, output)


def as_the_library_would(folder: Path) -> dict[str, Any]:
    """Its own wrappers, by whose names adapters are lost."""
    plain = parallel.wrap_layers

    def fit_to(accelerator: Any, model: torch.nn.Module) -> None:
        plain(accelerator, model)
        accelerator.state.fsdp_plugin.activation_checkpointing = True

    loop.wrap_layers = fit_to
    told = train(folder, "fsdp", "lora, checkpointing off", folder / "lost")
    loop.wrap_layers = plain
    return told


def that_one_cannot_load(folder: Path) -> dict[str, Any]:
    """One rank's trouble is told by all."""

    def load(*, empty: bool) -> torch.nn.Module:
        if not empty:
            raise InputError("no such model")
        return torch.nn.Linear(1, 1)

    try:
        load_once(load, Distributed.from_environment(toys.config(folder)))
    except InputError as exc:
        return {"error": str(exc)}
    return {}


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    told: dict[str, Any] = {}

    def note(name: str, found: dict[str, Any]) -> None:
        told[name] = gather_objects(found)
        reset()

    for split, name in WAYS:
        note(f"{split}, {name}", train(folder, split, name, folder / f"{split}, {name}"))
        if split != "ddp" and "checkpointing on" in name:
            note(f"{split}, {name}, gone on", gone_on(folder, split, name))
    note("lost", as_the_library_would(folder))
    note("no model", that_one_cannot_load(folder))
    if dist.get_rank() == 0:
        (folder / "told.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
