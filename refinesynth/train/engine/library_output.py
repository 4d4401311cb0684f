"""Keeps libraries from writing to the terminal."""

import logging
import warnings
from collections.abc import Generator
from contextlib import contextmanager

from transformers.utils import logging as library


@contextmanager
def libraries_silenced() -> Generator[None]:
    """Within, libraries write nothing between what `events` shows: errors are raised, and what a user should know is
    reported here.
    """
    bars = library.is_progress_bar_enabled()
    loggers = [logging.getLogger(name) for name in ("transformers", "accelerate", "peft", "DeepSpeed")]
    levels = [each.level for each in loggers]
    library.disable_progress_bar()
    for each in loggers:
        each.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # DeepSpeed and FSDP call torch by names of before; nothing that a user could change, once for each call.
            warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
            yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)
        if bars:
            library.enable_progress_bar()
