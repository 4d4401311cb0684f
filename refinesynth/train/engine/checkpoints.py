"""Checkpoints: weights, optimizer, learning rate, random states and progress, with a mark that is written last.

The mark lists the checkpoint's files and the identity of its training. A checkpoint without a mark, or with a listed
file that is missing or changed, is unsound: an older checkpoint is used.
"""

import json
import math
import os
import random
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, cast

import numpy as np
import orjson
import torch
from accelerate import DistributedType
from safetensors.torch import load_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as read_shards
from torch.distributed.checkpoint.state_dict_saver import save as write_shards
from transformers.utils.peft_utils import ADAPTER_SAFE_WEIGHTS_NAME

from refinesynth._version import __version__
from refinesynth.errors import InputError, TrainingError
from refinesynth.files.atomic_write import atomic_write
from refinesynth.lazy_imports import require
from refinesynth.train.config import ALL
from refinesynth.train.engine.model_writer import SHARDS, ModelWriter, file_errors
from refinesynth.train.engine.parallel import gather_objects
from refinesynth.train.events import LOSS, Events
from refinesynth.train.training_folder import differing_names

MARK: Final = "refinesynth.json"
_FORMAT: Final = 2
"""Version of a checkpoint's content; the oldest marks have no version."""
_PREFIX: Final = "checkpoint-"
_MAX_HASHED_BYTES: Final = 2**24
"""Files up to this many bytes are hashed; larger ones are compared by size, since hashing takes minutes."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Sound checkpoint."""

    path: Path
    step: int
    """Optimizer steps done."""
    identity: Mapping[str, Any]
    """Everything that determines the weights (`rank_training.py`)."""


def mark(folder: Path, *, step: int, identity: Mapping[str, Any]) -> None:
    """Flush all files of `folder` to the disk and write the mark."""
    files = {str(path.relative_to(folder)): _fingerprint(path) for path in files_of(folder)}
    for name in files:
        _flush(folder / name)
    content = {"refinesynth": __version__, "format": _FORMAT, "step": step, "identity": dict(identity), "files": files}
    with atomic_write(folder / MARK) as file:
        file.write(orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS))
    _flush(folder)


def read(folder: Path) -> Checkpoint | str:
    """The checkpoint in `folder`, or the reason that makes it unsound. Raises `InputError` for other formats."""
    try:
        content = cast("dict[str, Any]", orjson.loads((folder / MARK).read_bytes()))
        files = dict(cast("dict[str, list[Any]]", content["files"]))
        checkpoint = Checkpoint(folder, int(content["step"]), cast("dict[str, Any]", content["identity"]))
    except FileNotFoundError:
        return "it was not written to its end"
    except (OSError, ValueError, KeyError, TypeError) as exc:
        return f"its {MARK} cannot be read: {exc}"
    if content.get("format") != _FORMAT:
        raise InputError(
            f"{folder} was written by refinesynth {content.get('refinesynth')}, and {__version__} cannot go on from it. Finish this training "
            "with that version, or give another output folder"
        )
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if _fingerprint(path) != expected:
            return f"{name} is not as it was written"
    return checkpoint


def find_newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest sound checkpoint under `folder`, and a note for each newer, unsound checkpoint."""
    remarks: list[str] = []
    for path in reversed(checkpoint_folders(folder)):
        checkpoint = read(path)
        if isinstance(checkpoint, Checkpoint):
            return checkpoint, remarks
        remarks.append(f"{path} is passed over: {checkpoint}.")
    return None, remarks


def checkpoint_folders(folder: Path) -> list[Path]:
    """All checkpoints under `folder`, sound or not, sorted by step."""
    folders = [path for path in folder.glob(f"{_PREFIX}*") if path.is_dir() and path.name[len(_PREFIX) :].isdecimal()]
    return sorted(folders, key=_step)


def _step(path: Path) -> int:
    return int(path.name[len(_PREFIX) :])


def rotate(folder: Path, *, keep: Literal["all"] | int, best: Path, written: int) -> None:
    """Delete all checkpoints except the newest `keep` and `best`. That of step `written` is sound and the newest.

    Those of higher steps are the oldest: torn ones, or ones of a training that was resumed from before them.
    """
    if keep == "all":
        return
    for path in sorted(checkpoint_folders(folder), key=lambda path: _step(path) <= written)[:-keep]:
        if path.name != best.name:
            remove(path)


def remove(folder: Path) -> None:
    """Delete a checkpoint. The mark goes first: a partial deletion leaves an unsound checkpoint."""
    (folder / MARK).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def refuse_differences(checkpoint: Checkpoint, identity: Mapping[str, Any]) -> None:
    """Raises: InputError: The checkpoint is of another training; the message names every difference."""
    previous, current = checkpoint.identity, orjson.loads(orjson.dumps(dict(identity)))
    lines = [
        f"  {name}: {previous.get(name, 'not known')!r} in the checkpoint, {current.get(name, 'not known')!r} now"
        for name in differing_names(previous, current)
    ]
    if lines:
        raise InputError(
            f"{checkpoint.path} is of another training, so that going on from it would give neither of the two:\n"
            + "\n".join(lines)
            + "\nGive the same settings, or another output folder."
        )


def files_of(folder: Path) -> Iterator[Path]:
    """The files of a checkpoint, without the mark and its temporary files."""
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and MARK not in path.name)


def _fingerprint(path: Path) -> list[Any]:
    size = path.stat().st_size
    return [size, sha256(path.read_bytes()).hexdigest() if size <= _MAX_HASHED_BYTES else None]


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


OPTIMIZER: Final = "optimizer.pt"
_PROGRESS: Final = "progress.json"
_LR_SCHEDULER: Final = "scheduler.pt"
_MOMENTS: Final = "optimizer_0"
_DEEPSPEED: Final = "deepspeed"


@dataclass(slots=True)
class Progress:
    """Progress of a training."""

    step: int = 0
    """Optimizer steps done."""
    loss: float = 0.0
    """Sum of the losses of steps since the last line of metrics."""
    unlogged: int = 0
    last_loss: float = math.nan
    """Loss in the last line of metrics."""
    kept: int | None = None
    """Step of the finished model's weights; None before the end of the training."""
    evaluations: list[tuple[int, Mapping[str, float]]] = field(default_factory=list[tuple[int, Mapping[str, float]]])
    """Steps and held-out losses."""

    def evaluated(self, means: Mapping[str, float]) -> bool:
        """Record an evaluation; return True if its loss is the lowest so far."""
        previous_best = self.best
        self.evaluations.append((self.step, means))
        return previous_best is None or means[LOSS] < previous_best[1]

    @property
    def best(self) -> tuple[int, float] | None:
        """Step and loss of the best evaluation, the first among equals."""
        losses = [(step, means[LOSS]) for step, means in self.evaluations if not math.isnan(means[LOSS])]
        return min(losses, key=lambda evaluation: evaluation[1], default=None)


@dataclass(slots=True)
class Checkpoints:
    """Writer and reader of a training's checkpoints: a whole model or shards, and the state to resume from."""

    folder: Path
    writer: ModelWriter
    optimizer: Any
    lr_scheduler: Any
    identity: Mapping[str, Any]
    keep: Literal["all"] | int
    """Number of newest checkpoints to keep, besides the best."""
    events: Events

    def path(self, step: int) -> Path:
        return self.folder / f"checkpoint-{step}"

    def write(self, progress: Progress) -> None:
        """Write and mark a checkpoint, then delete older ones. Raises `TrainingError` if writing or a check fails."""
        accelerator, path = self.writer.accelerator, self.path(progress.step)
        is_main, fsdp = accelerator.is_main_process, accelerator.distributed_type == DistributedType.FSDP
        with file_errors(path, "written"):
            if is_main:
                remove(path)  # an unsound checkpoint of an earlier run
                path.mkdir(parents=True, exist_ok=True)
            accelerator.wait_for_everyone()
            # FSDP resumes from shards: the model is written for adapters, and for users with `keep: all`.
            if not fsdp or self.writer.trained.adapters or self.keep == ALL:
                self.writer.write(path)
            self.write_rank(path)
            if is_main:
                (path / _PROGRESS).write_text(json.dumps(asdict(progress)), encoding="utf-8")  # orjson has no NaN
            if fsdp:
                self.writer.check_shards(path)
            self._check_shared_disk(path)
            if is_main:
                mark(path, step=progress.step, identity=self.identity)
                best = progress.best or (progress.step, 0.0)
                rotate(self.folder, keep=self.keep, best=self.path(best[0]), written=progress.step)
                self.events.saved(path)

    def read(self, path: Path) -> Progress:
        """Restore everything from a checkpoint. Raises `TrainingError` if a file cannot be read."""
        with file_errors(path, "read"):
            self.read_rank(path)
            values = json.loads((path / _PROGRESS).read_text(encoding="utf-8"))
            evaluations = [(int(step), means) for step, means in values.pop("evaluations")]
            return Progress(**values, evaluations=evaluations)

    def restore_best(self, progress: Progress) -> None:
        """Restore the weights of the best evaluation, if its checkpoint is sound."""
        progress.kept = progress.step
        if progress.best is None or progress.best[0] == progress.step:
            return
        path = self.path(progress.best[0])
        if not checkpoint_folders(self.folder):
            return  # nothing is saved in this training
        checkpoint = read(path)
        if isinstance(checkpoint, str):
            self.events.note(f"The best model, in {path}, cannot be kept: {checkpoint}. The last one is kept instead.")
            return
        with file_errors(path, "read"):
            self.read_weights(path)
        progress.kept = progress.best[0]

    def _check_shared_disk(self, folder: Path) -> None:
        """Wait for all ranks. Raises `TrainingError` if rank 0 does not see a file of another rank."""
        self.writer.accelerator.wait_for_everyone()
        files = gather_objects([str(path.relative_to(folder)) for path in files_of(folder)])
        for rank, names in enumerate(files):
            if missing := sorted(set(names) - set(files[0])):
                raise TrainingError(
                    f"rank {rank} has written {missing[0]} to {folder}, and rank 0 does not see it there; give an output folder that all "
                    f"machines share"
                )

    def write_rank(self, folder: Path) -> None:
        """Write this rank's part of the state to resume from; every rank calls this."""
        accelerator, model = self.writer.accelerator, cast("Any", self.writer.model)
        rank, kind, adapters = accelerator.process_index, accelerator.distributed_type, self.writer.trained.adapters
        if kind == DistributedType.DEEPSPEED:
            model.save_checkpoint(str(folder), _DEEPSPEED, exclude_frozen_parameters=adapters)
        elif kind == DistributedType.FSDP:
            weights, moments = self._shards()
            write_shards({"model": weights}, checkpoint_id=folder / SHARDS)
            write_shards({"optimizer": moments}, checkpoint_id=folder / _MOMENTS)
        elif rank == 0:
            torch.save(self.optimizer.state_dict(), folder / OPTIMIZER)
        torch.save(_random_states(cuda=accelerator.device.type == "cuda"), folder / f"rng_state_{rank}.pth")
        if rank == 0:
            torch.save(self.lr_scheduler.state_dict(), folder / _LR_SCHEDULER)

    def read_rank(self, folder: Path) -> None:
        """Restore this rank's part; every rank calls this."""
        accelerator, model, adapters = self.writer.accelerator, self.writer.model, self.writer.trained.adapters
        kind, cuda = accelerator.distributed_type, accelerator.device.type == "cuda"
        if kind == DistributedType.DEEPSPEED:
            cast("Any", model).load_checkpoint(str(folder), _DEEPSPEED, load_module_strict=not adapters)
        elif kind == DistributedType.FSDP:
            weights, moments = self._shards()
            weight_states, states = {"model": weights}, {"optimizer": moments}
            read_shards(weight_states, checkpoint_id=folder / SHARDS)
            read_shards(states, checkpoint_id=folder / _MOMENTS)
            set_state_dict(
                model,
                self.optimizer.optimizer,
                model_state_dict=weight_states["model"],
                optim_state_dict=states["optimizer"],
                options=StateDictOptions(ignore_frozen_params=adapters, strict=not adapters),
            )
        else:
            self.read_weights(folder)
            moments = torch.load(folder / OPTIMIZER, map_location="cpu", weights_only=True, mmap=True)
            self.optimizer.load_state_dict(moments)
        self.lr_scheduler.load_state_dict(torch.load(folder / _LR_SCHEDULER, weights_only=True))
        rng_path = folder / f"rng_state_{accelerator.process_index}.pth"
        if rng_path.is_file():  # absent for ranks that did not exist before
            _restore_random_states(torch.load(rng_path, weights_only=True), cuda=cuda)

    def read_weights(self, folder: Path) -> None:
        """Restore the weights; DeepSpeed and FSDP restore all state. Every rank calls this."""
        accelerator = self.writer.accelerator
        if accelerator.distributed_type in {DistributedType.DEEPSPEED, DistributedType.FSDP}:
            self.read_rank(folder)
            return
        model = cast("Any", accelerator.unwrap_model(cast("Any", self.writer.model)))
        # Libraries rename weights on saving: load with the same library.
        if hasattr(model, "peft_config"):
            require("peft", "train").set_peft_model_state_dict(model, load_file(folder / ADAPTER_SAFE_WEIGHTS_NAME))
            return
        loaded = type(model).from_pretrained(str(folder), dtype=next(model.parameters()).dtype, use_safetensors=True)
        model.load_state_dict(loaded.state_dict())

    def _shards(self) -> tuple[dict[str, Any], Any]:
        """This rank's part of weights and moments; with adapters, frozen weights are left out, even tied ones."""
        model, adapters = self.writer.model, self.writer.trained.adapters
        options = StateDictOptions(ignore_frozen_params=adapters)
        weights, moments = get_state_dict(model, self.optimizer.optimizer, options=options)
        trainable = {name for name, p in model.named_parameters() if p.requires_grad}
        return {name: tensor for name, tensor in weights.items() if name in trainable or not adapters}, moments


def _random_states(*, cuda: bool) -> dict[str, Any]:
    # Plain values can be read with `weights_only`. Models may also draw from NumPy's legacy global state.
    kind, keys, *rest = cast("tuple[Any, ...]", np.random.get_state())  # noqa: NPY002
    return {
        "python": random.getstate(),
        "numpy": (kind, keys.tolist(), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if cuda else None,
    }


def _restore_random_states(states: dict[str, Any], *, cuda: bool) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])  # noqa: NPY002
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None and cuda:
        torch.cuda.set_rng_state(states["cuda"])
