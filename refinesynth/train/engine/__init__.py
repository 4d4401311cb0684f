"""Training on one rank, alone or under torchrun. Imports torch when a function is called."""

import logging
import os
from collections.abc import Sequence
from typing import Any

from refinesynth.errors import InputError
from refinesynth.lazy_imports import check_installed
from refinesynth.train.config import TrainConfig
from refinesynth.train.data import read_configured
from refinesynth.train.events import Events, NullEvents, TrainResult
from refinesynth.train.inputs import with_adapter_settings
from refinesynth.train.plan import Plan


def launch(config: TrainConfig, *, events: Events | None = None, sources: Sequence[Any] | None = None) -> TrainResult:
    """Train on this rank, and wait for the end. `sources` is data in memory. Raises the training's `RefinesynthError`."""
    prepare(config, sources)
    from refinesynth.train.engine.rank_training import run_training

    return run_training(config, events=events or NullEvents(), sources=sources)


def plan(config: TrainConfig, *, sources: Sequence[Any] | None = None) -> Plan:
    """Plan a training, without loading weights or writing files."""
    prepare(config, sources)
    from refinesynth.train.engine import rank_training as training

    config = with_adapter_settings(config)
    with training.libraries_silenced():
        return training.prepare_training(config, training.Distributed.from_environment(config), sources).plan


def data_digest(config: TrainConfig, *, sources: Sequence[Any] | None = None) -> tuple[str, int] | None:
    """Digest of the training data's tokens and number of held-out tokens; None if data or tokenizer are not there."""
    try:
        prepare(config, sources)
    except InputError:
        return None
    from refinesynth.train.engine import rank_training as training

    with training.libraries_silenced():
        return training.data_digest(config, sources)


def prepare(config: TrainConfig, sources: Sequence[Any] | None) -> None:
    """Check that the data and torch are there. Raises `InputError` or `ConfigurationError`."""
    check_installed("train", "torch", "transformers")
    read_configured(config, sources)
    # peft imports bitsandbytes, which warns about missing CPU kernels.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    import torch

    if not torch.cuda.is_available():  # DeepSpeed's own detection would print a warning on every command
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
