"""What the package says through Python's `logging` while a run goes on, written into that run's events as well."""

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from refinesynth.errors import ConfigurationError, StorageError

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

LOGGER = "refinesynth"
"""All loggers of the package are below it."""

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def level_of(name: str) -> int:
    """A level by its name.

    Raises:
        ConfigurationError: There is none of that name.
    """
    if name not in LEVELS:
        raise ConfigurationError(f"log level {name!r}: there are {', '.join(LEVELS)}")
    return LEVELS[name]


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """What a record says beside its text: `extra={"facts": {"event": ..., ...}}`; text alone is the event `log`."""
    facts: Mapping[str, Any] = getattr(record, "facts", {})
    return {"event": "log", "text": record.getMessage(), **facts}


@contextmanager
def logged(log: "FilteringBoundLogger", level: int) -> Generator[None]:
    """Within the block, what the package logs at `level` or above goes to `log` too."""
    logger = logging.getLogger(LOGGER)
    handler = _ToEvents(log, level)
    before = logger.level
    logger.addHandler(handler)
    if not logger.isEnabledFor(level):
        logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class _ToEvents(logging.Handler):
    def __init__(self, log: "FilteringBoundLogger", level: int) -> None:
        super().__init__(level)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        facts = facts_of(record)
        try:
            self._log.log(record.levelno, facts.pop("event"), **facts)
        except StorageError:
            # A full disk is found out by those who write what counts; logging must not fail for it.
            self.handleError(record)
