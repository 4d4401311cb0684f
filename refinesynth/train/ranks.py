"""Rank, signals, and outcome of a training process. Imports no torch.

The outcome is a file in which ranks report the result, or the error and its message, to the launcher.
"""

import os
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

import orjson

from refinesynth import errors
from refinesynth.files.atomic_write import atomic_write
from refinesynth.train.events import TrainResult


def rank() -> int:
    """Number of this process over all machines; rank 0 reports and prints."""
    return int(os.environ.get("RANK", "0"))


def is_launched() -> bool:
    """Return True if torchrun or the launcher started this process as a rank."""
    return "RANK" in os.environ


def free_port() -> int:
    """A free local port, for the rendezvous of the ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def signals_handled(
    handler: Callable[[int, FrameType | None], None], *, hangup: bool = False
) -> Generator[Callable[[], None]]:
    """Context in which `handler` receives SIGTERM and SIGINT (and SIGHUP with `hangup`, unless it is ignored).

    Yields a function that restores the former handlers. In threads other than the main thread, nothing is changed.
    """
    numbers = [signal.SIGTERM, signal.SIGINT]
    if hangup and hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    previous: dict[int, Any] = {}

    def restore() -> None:
        for number, previous_handler in previous.items():
            signal.signal(number, signal.SIG_DFL if previous_handler is None else previous_handler)

    try:
        with suppress(ValueError):
            previous.update((number, signal.signal(number, handler)) for number in numbers)
        yield restore
    finally:
        restore()


OUTCOME: Final = "REFINESYNTH_TRAIN_OUTCOME"
"""Environment variable with the path of the outcome; if it is set, the launcher reports errors."""


def is_reported_by_launcher() -> bool:
    return OUTCOME in os.environ


def write_outcome(outcome: TrainResult | errors.RefinesynthError, *, is_main: bool = True) -> None:
    """Write the outcome for the launcher, if there is one. Ranks other than the main rank do not replace an outcome."""
    path = os.environ.get(OUTCOME)
    if path is None or (not is_main and Path(path).exists()):
        return
    if isinstance(outcome, TrainResult):
        outcome_json: dict[str, Any] = {"result": outcome.as_json()}
    else:
        outcome_json = {"error": type(outcome).__name__, "message": str(outcome)}
    with atomic_write(Path(path)) as file:
        file.write(orjson.dumps(outcome_json))


def read_outcome(path: Path) -> TrainResult | None:
    """Read the result at `path`; None without a file. Raises the `RefinesynthError` that ended the training."""
    if not path.exists():
        return None
    outcome = cast("dict[str, Any]", orjson.loads(path.read_bytes()))
    if "error" in outcome:
        error_type = getattr(errors, outcome["error"], errors.TrainingError)
        raise cast("type[errors.RefinesynthError]", error_type)(outcome["message"])
    result: dict[str, Any] = outcome["result"]
    result["output"] = Path(result["output"])
    return TrainResult(**result)
