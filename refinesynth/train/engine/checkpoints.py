"""Marks of checkpoints: written last, with a checkpoint's files and the identity of its training. Imports no torch.

A checkpoint without its mark, or with other files than the mark lists, is unsound: an older one is used.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, cast

import orjson

from refinesynth._version import __version__
from refinesynth.errors import InputError
from refinesynth.files.atomic_write import atomic_write

MARK: Final = "refinesynth.json"
_FORMAT: Final = 2
"""Version of a checkpoint's content; the oldest marks have none."""
_PREFIX: Final = "checkpoint-"
_HASHED: Final = 2**24
"""Files up to this many bytes are hashed; larger ones are compared by size, since hashing takes minutes."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Sound checkpoint."""

    path: Path
    step: int
    """Optimizer steps done."""
    identity: Mapping[str, Any]
    """Everything that decides about the weights (`rank_training.py`)."""


def mark(folder: Path, *, step: int, identity: Mapping[str, Any]) -> None:
    """Flush all files of `folder` to the disk and mark it as sound."""
    files = {str(path.relative_to(folder)): _described(path) for path in files_of(folder)}
    for name in files:
        _flush(folder / name)
    content = {"refinesynth": __version__, "format": _FORMAT, "step": step, "identity": dict(identity), "files": files}
    with atomic_write(folder / MARK) as file:
        file.write(orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS))
    _flush(folder)


def read(folder: Path) -> Checkpoint | str:
    """The checkpoint in `folder`, or the reason why it is unsound. Raises `InputError` for another version's form."""
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
            f"with that version, give another output folder, or start over with resume: never"
        )
    for name, wanted in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if _described(path) != wanted:
            return f"{name} is not as it was written"
    return checkpoint


def newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest sound checkpoint under `folder`, and a remark for each newer one."""
    remarks: list[str] = []
    for path in reversed(checkpoint_folders(folder)):
        found = read(path)
        if isinstance(found, Checkpoint):
            return found, remarks
        remarks.append(f"{path} is passed over: {found}.")
    return None, remarks


def checkpoint_folders(folder: Path) -> list[Path]:
    """All checkpoints under `folder`, sound or not, by steps."""
    found = [path for path in folder.glob(f"{_PREFIX}*") if path.is_dir() and path.name[len(_PREFIX) :].isdecimal()]
    return sorted(found, key=lambda path: int(path.name[len(_PREFIX) :]))


def rotate(folder: Path, *, keep: Literal["all"] | int, best: Path) -> None:
    """Delete all but the newest `keep` and the best; called when the newest is sound."""
    if keep == "all":
        return
    for path in checkpoint_folders(folder)[:-keep]:
        if path.name != best.name:
            remove(path)


def remove(folder: Path) -> None:
    """Delete a checkpoint, its mark first."""
    (folder / MARK).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def refuse_differences(checkpoint: Checkpoint, identity: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another training. Raises `InputError` that names every difference, with both values."""
    before, now = checkpoint.identity, orjson.loads(orjson.dumps(dict(identity)))
    lines = [
        f"  {name}: {before.get(name, 'not known')!r} in the checkpoint, {now.get(name, 'not known')!r} now"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
    if lines:
        raise InputError(
            f"{checkpoint.path} is of another training, so that going on from it would give neither of the two:\n"
            + "\n".join(lines)
            + "\nGive the same settings, another output folder, or resume: never, which starts over and keeps what is there beside it."
        )


def files_of(folder: Path) -> Iterator[Path]:
    """The files of a checkpoint, without its mark."""
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and MARK not in path.name)


def _described(path: Path) -> list[Any]:
    size = path.stat().st_size
    return [size, sha256(path.read_bytes()).hexdigest() if size <= _HASHED else None]


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
