"""Output folder of a training: its content, its lock, and refusal of folders that hold something else."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, cast

import orjson

from refinesynth.errors import InputError, RefinesynthError, StorageError
from refinesynth.files.atomic_write import irregular, write_json_file, write_text_file
from refinesynth.files.output_folder import FolderLock, move_aside, refuse_from_within
from refinesynth.train.config import PATHS, TrainConfig
from refinesynth.train.events import TrainResult
from refinesynth.train.layered_settings import layered, portable, portable_config, to_yaml
from refinesynth.train.plan import Plan

MARKER: Final = ".refinesynth-training"
"""Written first, and locked while a training runs: only folders with it are written to or deleted from."""
CONFIG: Final = "train.yaml"
PLAN: Final = "plan.json"
METRICS: Final = "metrics.jsonl"
VERSIONS: Final = "versions.json"
RESULT: Final = "result.json"
CARD: Final = "README.md"
TENSORBOARD: Final = "tensorboard"
CHECKPOINTS: Final = "checkpoints"

_MAY_CHANGE = (
    "output recipe tokens_per_pack packing gradient_checkpointing attention processes parallel device "
    "save_every keep log_every tensorboard resume save_dtype trust_remote_code"
)
MAY_CHANGE: Final = frozenset(_MAY_CHANGE.split())
"""Settings that may differ on resuming, since they do not change what is learned."""


def check_output(config: TrainConfig) -> TrainResult | None:
    """Check whether the output folder can be used; nothing is changed. All ranks get the same answer.

    Returns the result if this very training is finished.

    Raises:
        InputError: The folder holds something else, or a training with other settings; or the checkpoint to resume from
            does not exist.
        StorageError: It cannot be read.
    """
    output = Path(config.output)
    if config.resume not in {"auto", "never"} and not Path(config.resume).is_dir():
        raise InputError(
            f"there is no checkpoint {config.resume!r}; give the folder of one (such as {str(output / CHECKPOINTS / 'checkpoint-100')!r}), "
            "auto for the newest sound one, or never to start over"
        )
    if not _is_taken(output):
        return None
    if config.resume == "never":
        refuse_from_within(output)
        return None
    _refuse_other_settings(output, config)
    return finished(output)


def open_output(config: TrainConfig, plan: Plan) -> FolderLock:
    """Prepare and lock the output folder, and write settings and plan; for rank 0. Returns the lock.

    With `resume="never"` the folder's earlier content is moved to `FOLDER.old-1`.

    Raises:
        InputError: The folder holds something else or a training on other data, or another training is running in it.
        StorageError: It cannot be written.
    """
    output = Path(config.output)
    is_taken = _is_taken(output)
    lock = _marked(output)
    if is_taken and config.resume == "never":
        try:
            move_aside(output)
        except OSError as error:
            raise StorageError(f"{str(output)!r} cannot be renamed: {error.strerror}") from error
        lock = _marked(output)
    note_plan(output, plan)
    write_text_file(output / CONFIG, to_yaml(config))
    return lock


def finished(output: Path) -> TrainResult | None:
    """The result of the finished training in a folder, else None."""
    try:
        found: dict[str, Any] = {**orjson.loads((output / RESULT).read_bytes()), "output": output}
        return TrainResult(**found)
    except (OSError, orjson.JSONDecodeError, TypeError):
        return None


def note_result(result: TrainResult) -> None:
    """Write the result of a finished training. Raises `StorageError` if it cannot be written."""
    fields = result.as_json()
    del fields["output"]
    write_json_file(result.output / RESULT, fields)


def note_plan(output: Path, plan: Plan) -> None:
    """Write the plan. Raises `InputError` if its tokens and labels are not those of the folder's checkpoints."""
    began = plan.sizes.digest
    with contextlib.suppress(OSError, orjson.JSONDecodeError, KeyError, TypeError):
        began = str(orjson.loads((output / PLAN).read_bytes())["sizes"]["digest"])
    if began != plan.sizes.digest and _has_checkpoints(output):
        raise InputError(
            f"the data of the training in {str(output)!r} was other data (or its tokenizer or chat template was another): tokens and "
            "labels differ. Give the data it began with, another -o, or --resume never to start over"
        )
    values = plan.as_json()
    values["model"]["name"] = portable(plan.model.name)
    write_json_file(output / PLAN, values)


def _has_checkpoints(output: Path) -> bool:
    return any((output / CHECKPOINTS).glob("*")) or (output / RESULT).exists()


def _is_taken(output: Path) -> bool:
    """Return True if the folder holds a training. Raises `InputError` if it holds something else, or a link."""

    def is_nothing(path: Path) -> bool:  # an empty folder for checkpoints: another rank may be quicker
        return path.name == CHECKPOINTS and path.is_dir() and not any(path.iterdir())

    try:
        there = sorted(path.name for path in output.iterdir() if not is_nothing(path)) if output.is_dir() else []
        is_something_else = output.exists() and not output.is_dir()
    except OSError as error:
        raise StorageError(f"{str(output)!r} cannot be read: {error.strerror}") from error
    if MARKER in there:
        if odd := next((path for path in sorted(output.iterdir()) if irregular(path)), None):
            raise InputError(
                f"{str(odd)!r} is {irregular(odd)}; a training writes regular files and folders alone: remove it, or give another -o"
            )
        return True
    if there or is_something_else:
        what = f"holds something else ({', '.join(there[:3])}, ...)" if there else "is a file"
        raise InputError(f"the output {str(output)!r} {what}; give a new or empty folder with -o")
    return False


def _marked(output: Path) -> FolderLock:
    """Create the folder and lock its marker; file systems without locks lock nothing."""
    lock = FolderLock(output, MARKER, work="training", names_holder=False)
    try:
        output.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(StorageError):
            lock.acquire()
        (output / MARKER).touch()
    except OSError as error:
        raise StorageError(f"{str(output)!r} cannot be written: {error.strerror}") from error
    return lock


def _refuse_other_settings(output: Path, config: TrainConfig) -> None:
    """Raises: InputError: The training in the folder has other settings; all differences are named."""
    if not _has_checkpoints(output):
        # Nothing was learned yet, so nothing can be mixed.
        return

    def settings(of: TrainConfig) -> dict[str, Any]:
        return portable_config(of) | {"trainer": of.trainer.deciding()}

    before: dict[str, Any] = {}
    with contextlib.suppress(RefinesynthError):
        before = settings(layered(file=output / CONFIG).config)
    now = settings(config)
    compared = before.keys() & now.keys() - MAY_CHANGE
    if finished(output) is None:
        # What is in the data decides, not where it lies: the digest of the plan is compared once the data is read.
        compared -= {"data"}
    else:
        compared |= {"save_dtype"} & before.keys()  # the model is written, and will not be written again
    differences = [
        f"{name} was {before[name]!r} and is {now[name]!r}"
        for name in sorted(compared)
        if _same_paths(name, before[name]) != _same_paths(name, now[name])
    ]
    if differences:
        raise InputError(
            f"a training with other settings is in {str(output)!r}: {'; '.join(differences)}. Give the same settings to go on with it, "
            "another -o, or --resume never to start over"
        )


def _same_paths(name: str, value: object) -> object:
    if name not in PATHS:
        return value
    if isinstance(value, list | tuple):
        return [_same_paths(name, each) for each in cast("Iterable[object]", value)]
    path = Path(value).expanduser() if isinstance(value, str) and value else None
    return str(path.resolve()) if path is not None and path.exists() else value
