"""Passthrough: fields of transformers' `TrainingArguments` that a user gives, their types, and whether the library can
do what they ask for.
"""

# torch and transformers are typed in part: pyright may not know all of a member that is used here.
# pyright: reportUnknownMemberType=false

import importlib
import os
from pathlib import Path
from typing import Any, Final, cast, get_type_hints

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import nn
from transformers import Trainer, TrainingArguments, optimization
from transformers.training_args import trainer_log_levels

from refinesynth.errors import ConfigurationError, RefinesynthError
from refinesynth.extras import missing
from refinesynth.train.config import TrainConfig
from refinesynth.train.folder import TENSORBOARD

_NONE: Final[tuple[Any, ...]] = (None, "none", [], ["none"])


def passthrough_arguments(config: TrainConfig) -> dict[str, Any]:
    """The fields, with the types that the library has for them; trackers put together.

    Raises:
        ConfigurationError: A value is of another type.
    """
    hints = get_type_hints(TrainingArguments)
    found = {name: _typed(name, value, hints[name]) for name, value in config.trainer.items()}
    found["report_to"] = _trackers(config, found.get("report_to", "none"))
    if found["report_to"] != "none":
        found.setdefault("run_name", Path(config.output).name)
    return found


def _typed(name: str, value: object, wanted: Any) -> object:
    try:
        return TypeAdapter(wanted, config=ConfigDict(arbitrary_types_allowed=True)).validate_python(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]["msg"]
        raise ConfigurationError(f"trainer.{name} is {value!r}: {problem}") from None


def _trackers(config: TrainConfig, asked: Any) -> Any:
    if not config.tensorboard:
        return "none" if asked in _NONE else asked
    named: list[str] = [] if asked in _NONE else [asked] if isinstance(asked, str) else list(asked)
    return named if "all" in named else [*dict.fromkeys([*named, "tensorboard"])]


def place_trackers(config: TrainConfig) -> None:
    """Have TensorBoard's files in the output folder, unless its own variable says where."""
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(Path(config.output) / TENSORBOARD))


class _DryArguments(TrainingArguments):
    """Arguments that touch no device and join no process group."""

    _setup_devices = torch.device("cpu")  # pyright: ignore


def check_passthrough(config: TrainConfig) -> None:
    """Check before anything is loaded that the library takes what is given, and has what that needs.

    Raises:
        ConfigurationError: It does not; the message is the library's.
    """
    values = passthrough_arguments(config)
    evaluates = bool(config.held_out) and config.evaluate_every != "never"
    try:
        asked = _DryArguments(
            output_dir="on-paper",
            use_cpu=True,
            lr_scheduler_type=config.schedule,
            eval_strategy="steps" if evaluates else "no",
            eval_steps=1,
            **values,
        )
        _check_levels(asked.log_level, asked.log_level_replica)
        _check_trackers(cast("list[str]", asked.report_to))
        Trainer.get_optimizer_cls_and_kwargs(asked, cast("Any", nn.Module()))
        _check_schedule(asked)
    except RefinesynthError:
        raise
    except Exception as error:  # The library raises many kinds.
        given = (
            ", ".join(f"{name}={value!r}" for name, value in config.trainer.items()) or f"schedule={config.schedule}"
        )
        problem = " ".join(str(error).split())
        raise ConfigurationError(
            f"transformers does not take what is given for its trainer ({given}): {problem}"
        ) from error


def _check_levels(*levels: str) -> None:
    if unknown := set(levels) - set(trainer_log_levels):
        raise ValueError(f"{', '.join(unknown)} is no log level; expected one of {', '.join(trainer_log_levels)}")


def _check_trackers(names: list[str]) -> None:
    integrations = cast("Any", importlib.import_module("transformers.integrations.integration_utils"))
    integrations.get_reporting_integration_callbacks(names)
    for name in names:
        if name not in integrations.get_available_reporting_integrations():
            raise ConfigurationError(
                missing("tensorboard", "train")
                if name == "tensorboard"
                else f"trainer.report_to is {name!r}, whose package is not installed: pip install {name}"
            )


def _check_schedule(asked: TrainingArguments) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))])
    cast("Any", optimization).get_scheduler(asked.lr_scheduler_type, optimizer, 0, 1, asked.lr_scheduler_kwargs)
