"""Log records of the package, written into the events of a run.

events.jsonl has one JSON object a line with `event`, `level` and `timestamp` (UTC); docs/events.md lists them.
"""

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from refinesynth.errors import StorageError
from refinesynth.run.lines import LineWriter
from refinesynth.text.jsontext import write_json

LOGGER = "refinesynth"
"""Parent of all loggers of the package."""

LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
"""Names that `RunSettings.log_level` takes."""


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the facts of a record, from `extra={"facts": {"event": ..., ...}}`; text alone is the event `log`."""
    facts: Mapping[str, Any] = getattr(record, "facts", {})
    return {"event": "log", "text": record.getMessage(), **facts}


class EventLog:
    """Writer of events of `level` and above."""

    def __init__(self, writer: LineWriter, level: int = logging.INFO) -> None:
        self._writer = writer
        self._level = level

    def log(self, level: int, event: str, **facts: Any) -> None:
        if level >= self._level:
            stamp = datetime.now(UTC).isoformat().replace("+00:00", "Z")
            line = {**facts, "event": event, "level": logging.getLevelName(level).lower(), "timestamp": stamp}
            self._writer.write(write_json(line, default=repr))

    def info(self, event: str, **facts: Any) -> None:
        self.log(logging.INFO, event, **facts)

    def warning(self, event: str, **facts: Any) -> None:
        self.log(logging.WARNING, event, **facts)


@contextmanager
def logged(log: EventLog, level: int) -> Generator[None]:
    """Write the package's log records at `level` or above to `log` too, while the context lasts."""
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
    def __init__(self, log: EventLog, level: int) -> None:
        super().__init__(level)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        facts = facts_of(record)
        try:
            self._log.log(record.levelno, facts.pop("event"), **facts)
        except StorageError:
            # A full disk is found out by those who write what counts; logging must not fail for it.
            self.handleError(record)
