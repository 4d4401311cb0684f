"""`metrics.jsonl`: one line for every time that a training says where it stands."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from refinesynth.errors import StorageError
from refinesynth.files.atomic_write import write_file
from refinesynth.files.regular import open_to_append
from refinesynth.text.jsontext import write_json
from refinesynth.train.events import NullEvents

MetricsKind = Literal["train", "held_out"]
_FIXED: Final = {"kind", "step", "time"}


@dataclass(frozen=True, slots=True)
class Measured:
    """One line of metrics."""

    kind: MetricsKind
    step: int
    """Optimizer steps done."""
    values: Mapping[str, float]
    """By the names in `train/events.py`."""


class MetricsFile(NullEvents):
    """Writes `metrics.jsonl` from a training's events.

    When a training goes on from a checkpoint, the lines of steps that are done again are taken out first, so that each
    step is there once. Infinite and undefined numbers are written as null.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fresh = True

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        self._write("train", step, metrics)

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        self._write("held_out", step, metrics)

    def _write(self, kind: MetricsKind, step: int, metrics: Mapping[str, float]) -> None:
        if self._fresh:
            self._fresh = False
            _forget_from(self._path, step)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = write_json({"kind": kind, "step": step, **metrics, "time": now})
        try:
            with open_to_append(self._path) as file:
                file.write(line + b"\n")
        except OSError as error:
            raise StorageError(f"{str(self._path)!r} cannot be written: {error.strerror}") from error


def read_metrics(path: Path) -> Iterator[Measured]:
    """The lines of a `metrics.jsonl`, in order; none if there is no such file. A torn line, at the end after a crash,
    is left out.
    """
    for _, found in _lines(path):
        yield found


def _lines(path: Path) -> Iterator[tuple[bytes, Measured]]:
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    for line in lines:
        try:
            found: Any = orjson.loads(line)
            values = {name: _number(value) for name, value in found.items() if name not in _FIXED}
            yield line, Measured(found["kind"], int(found["step"]), values)
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
            continue


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _forget_from(path: Path, step: int) -> None:
    """Take out the lines of `step` and later ones, and torn ones."""
    kept = [line for line, found in _lines(path) if found.step < step]
    if path.exists():
        write_file(path, b"".join(line + b"\n" for line in kept))
