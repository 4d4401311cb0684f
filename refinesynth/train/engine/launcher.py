"""Entry to a training on this rank, alone or under torchrun. Imports no torch."""

import logging
import os
from collections.abc import Sequence
from typing import Any

from refinesynth.extras import require
from refinesynth.train.config import TrainConfig
from refinesynth.train.events import Events, NullEvents, TrainResult
from refinesynth.train.inputs import check_inputs, with_adapter_settings
from refinesynth.train.plan import Plan


def launch(config: TrainConfig, *, events: Events | None = None, sources: Sequence[Any] | None = None) -> TrainResult:
    """Train on this rank, and wait for the end. `sources` is data in memory. Raises the training's `RefinesynthError`."""
    check_inputs(config, sources)
    check_trainer(config)
    from refinesynth.train.engine.rank_training import run_training

    return run_training(config, events=events or NullEvents(), sources=sources)


def plan(config: TrainConfig, *, sources: Sequence[Any] | None = None) -> Plan:
    """Plan a training, without loading weights or writing files."""
    check_inputs(config, sources)
    check_trainer(config)
    from refinesynth.train.engine.parallel import Distributed
    from refinesynth.train.engine.rank_training import libraries_silenced, prepare_training

    config = with_adapter_settings(config)
    with libraries_silenced():
        return prepare_training(config, Distributed.from_environment(config), sources).plan


def check_trainer(config: TrainConfig) -> None:
    """Raises: ConfigurationError: A library is missing, or rejects the optimizer or schedule settings."""
    choose_accelerator()
    from refinesynth.train.engine.parallel import check_loop

    check_loop(config)


def choose_accelerator() -> None:
    """Set DeepSpeed's accelerator on machines without a GPU: its own detection prints a warning on every command."""
    # peft imports bitsandbytes, which warns about missing CPU kernels.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    torch = require("torch", "train")
    require("transformers", "train")
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
