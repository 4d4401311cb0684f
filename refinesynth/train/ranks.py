"""This process among the ranks of a training: rank, signals, and outcome for the launcher. Imports no torch.

The outcome is a file of the launcher's with the result, or the error and its text.
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
    """Number of this process over all machines; only 0 writes and prints."""
    return int(os.environ.get("RANK", "0"))


def is_launched() -> bool:
    """Return True if this process is one of several, started by torchrun for one."""
    return "RANK" in os.environ


def free_port() -> int:
    """A free port of this machine, for ranks to meet at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def signals_handled(
    handler: Callable[[int, FrameType | None], None], *, hangup: bool = False
) -> Generator[Callable[[], None]]:
    """Within, SIGTERM and SIGINT (and SIGHUP with `hangup`, unless ignored) go to `handler`; yields what ends that.

    Only the main thread may set handlers; elsewhere this does nothing.
    """
    numbers = [signal.SIGTERM, signal.SIGINT]
    if hangup and hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before: dict[int, Any] = {}

    def put_back() -> None:
        for number, usual in before.items():
            signal.signal(number, signal.SIG_DFL if usual is None else usual)

    try:
        with suppress(ValueError):
            before.update((number, signal.signal(number, handler)) for number in numbers)
        yield put_back
    finally:
        put_back()


OUTCOME: Final = "REFINESYNTH_TRAIN_OUTCOME"
"""Environment variable with the file's path; if set, the launcher reports errors."""


def is_reported_by_launcher() -> bool:
    return OUTCOME in os.environ


def write_outcome(outcome: TrainResult | errors.RefinesynthError, *, is_main: bool = True) -> None:
    """Write the outcome, if a launcher waits for it. One of a rank that is not the main one counts only if it is the
    first.
    """
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
    """Read the result at `path`; None if there is none. Raises the `RefinesynthError` that ended the training."""
    if not path.exists():
        return None
    written = cast("dict[str, Any]", orjson.loads(path.read_bytes()))
    if "error" in written:
        kind = getattr(errors, written["error"], errors.TrainingError)
        raise cast("type[errors.RefinesynthError]", kind)(written["message"])
    result: dict[str, Any] = written["result"]
    result["output"] = Path(result["output"])
    return TrainResult(**result)
