"""The way into a training on this rank, without importing torch before it is needed."""

import logging
import os
from collections.abc import Sequence
from typing import Any

from refinesynth.extras import check_installed, require
from refinesynth.train.adapter import with_own_settings
from refinesynth.train.config import TrainConfig
from refinesynth.train.events import Events, NullEvents
from refinesynth.train.input_check import check_inputs
from refinesynth.train.plan import Plan
from refinesynth.train.result import TrainResult


def run(config: TrainConfig, *, events: Events | None = None, sources: Sequence[Any] | None = None) -> TrainResult:
    """Train on this rank: see `refinesynth.train.engine.running.run_training`."""
    check_trainer(config)
    from refinesynth.train.engine.running import run_training

    return run_training(config, events=events or NullEvents(), sources=sources)


def plan(config: TrainConfig, *, sources: Sequence[Any] | None = None) -> Plan:
    """What the training will do and take: see `refinesynth.train.engine.running.plan_training`."""
    check_installed("train", "torch", "transformers")
    check_inputs(config, sources)
    check_trainer(config)
    from refinesynth.train.engine.running import plan_training

    return plan_training(with_own_settings(config), sources=sources)


def check_trainer(config: TrainConfig) -> None:
    """Make sure that the library is the one that this was written for, and takes what `config.trainer` gives it.

    Raises:
        ConfigurationError: It is not, or does not.
    """
    choose_accelerator()
    from refinesynth.train.engine.signatures import TRAINING, check

    check(TRAINING)
    from refinesynth.train.engine.passthrough import check_passthrough

    check_passthrough(config)


def choose_accelerator() -> None:
    """Set for DeepSpeed that there is no GPU before it is imported: left to detect it, it warns on every command.

    Raises:
        ConfigurationError: torch or transformers is not installed.
    """
    # peft imports it, and it warns of kernels that a CPU could have.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    torch = require("torch", "train")
    require("transformers", "train")
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
