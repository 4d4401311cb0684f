"""Events of a run: the package's log records as JSON lines.

Each line of events.jsonl is a JSON object with `event`, `level` and `timestamp` (UTC); docs/events.md lists the events.
"""

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from refinesynth.errors import StorageError
from refinesynth.run.jsonl import LineWriter
from refinesynth.text.json_reader import write_json

LOGGER = "refinesynth"
"""Parent of all loggers of the package."""


def level_of(name: str) -> int:
    """Return the number of a level that `RunSettings.log_level` names."""
    return logging.getLevelNamesMapping()[name.upper()]


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the facts of a record, from `extra={"facts": {"event": ..., ...}}`; a record without facts is a `log` event."""
    facts: Mapping[str, Any] = getattr(record, "facts", {})
    return {"event": "log", "text": record.getMessage(), **facts}


class EventLog:
    """Logger that writes the events of `level` and above as lines of JSON."""

    def __init__(self, writer: LineWriter, *, level: int = logging.INFO) -> None:
        self._writer = writer
        self._level = level

    def log(self, level: int, event: str, /, **facts: object) -> None:
        if level >= self._level:
            name, timestamp = logging.getLevelName(level).lower(), datetime.now(UTC).isoformat().replace("+00:00", "Z")
            line = write_json({**facts, "event": event, "level": name, "timestamp": timestamp}, default=repr)
            self._writer.write(line)

    def info(self, event: str, /, **facts: object) -> None:
        self.log(logging.INFO, event, **facts)

    def warning(self, event: str, /, **facts: object) -> None:
        self.log(logging.WARNING, event, **facts)


@contextmanager
def logged(log: EventLog, level: int) -> Generator[None]:
    """Copy the package's log records at `level` or above to `log` within the context."""
    logger = logging.getLogger(LOGGER)
    handler = _EventHandler(log, level)
    level_before = logger.level
    logger.addHandler(handler)
    if not logger.isEnabledFor(level):
        logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level_before)


class _EventHandler(logging.Handler):
    def __init__(self, log: EventLog, level: int) -> None:
        super().__init__(level)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        facts = facts_of(record)
        try:
            self._log.log(record.levelno, facts.pop("event"), **facts)
        except StorageError:
            # The writers of data report a full disk; a log call must not raise.
            self.handleError(record)
