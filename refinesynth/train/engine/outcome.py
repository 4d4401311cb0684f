"""How a training in other processes ended, handed to the process that started them through a file.

torchrun ends with exit code 1 whatever went wrong; the file says what: the result, or the error and its text.
"""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, cast

import orjson

from refinesynth import errors
from refinesynth.files.atomic_write import atomic_write
from refinesynth.train.result import TrainResult

OUTCOME: Final = "REFINESYNTH_TRAIN_OUTCOME"
"""Environment variable that names the file. Where it is set, whoever set it tells the user of errors."""


def told_elsewhere() -> bool:
    """Whether another process waits for the outcome and says what went wrong."""
    return OUTCOME in os.environ


def tell(outcome: TrainResult | errors.RefinesynthError, *, leads: bool = True) -> None:
    """Write the outcome for the process that waits for it; nothing where none does.

    What another rank than the one that `leads` has to say counts if nothing was said before.
    """
    path = os.environ.get(OUTCOME)
    if path is None or (not leads and Path(path).exists()):
        return
    if isinstance(outcome, TrainResult):
        said: dict[str, Any] = {"result": {**asdict(outcome), "output": str(outcome.output)}}
    else:
        said = {"error": type(outcome).__name__, "message": str(outcome)}
    with atomic_write(Path(path)) as file:
        file.write(orjson.dumps(said))


def heard(path: Path) -> TrainResult | None:
    """The result that was written to `path`; None where the processes ended without a word.

    Raises:
        RefinesynthError: What ended the training there.
    """
    if not path.exists():
        return None
    said = cast("dict[str, Any]", orjson.loads(path.read_bytes()))
    if "error" in said:
        kind = getattr(errors, said["error"], errors.TrainingError)
        raise cast("type[errors.RefinesynthError]", kind)(said["message"])
    result: dict[str, Any] = said["result"]
    result["output"] = Path(result["output"])
    return TrainResult(**result)
