"""Events of a run: the package's log records as JSON lines.

Each line of events.jsonl is a JSON object with `event`, `level` and `timestamp` (UTC); docs/events.md lists the events.
The logger is bound to the run's file; structlog's global configuration is neither read nor changed.
"""

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from refinesynth.errors import StorageError
from refinesynth.run.jsonl import LineWriter
from refinesynth.text.json_reader import write_json

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

LOGGER = "refinesynth"
"""Parent of all loggers of the package."""


def level_of(name: str) -> int:
    """Return the number of a level that `RunSettings.log_level` names."""
    return logging.getLevelNamesMapping()[name.upper()]


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the facts of a record, from `extra={"facts": {"event": ..., ...}}`; a record without facts is a `log` event."""
    facts: Mapping[str, Any] = getattr(record, "facts", {})
    return {"event": "log", "text": record.getMessage(), **facts}


@contextmanager
def logged(log: "FilteringBoundLogger", level: int) -> Generator[None]:
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
    def __init__(self, log: "FilteringBoundLogger", level: int) -> None:
        super().__init__(level)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        facts = facts_of(record)
        try:
            self._log.log(record.levelno, facts.pop("event"), **facts)
        except StorageError:
            # The writers of data report a full disk; a log call must not raise.
            self.handleError(record)


def open_events(writer: LineWriter, *, level: int = logging.INFO) -> "FilteringBoundLogger":
    """Return a structlog logger that writes events of `level` and above to `writer`."""
    # Imported here: structlog imports rich, and the readers of a run need neither.
    import structlog

    logger = structlog.wrap_logger(
        _LineSink(writer),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(serializer=write_json, default=repr),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        context_class=dict,
        cache_logger_on_first_use=True,
    )
    return cast("FilteringBoundLogger", logger)


class _LineSink:
    """Sink of structlog with one method per level."""

    def __init__(self, writer: LineWriter) -> None:
        self._writer = writer

    def info(self, line: bytes) -> None:
        self._writer.write(line)

    debug = warning = error = critical = info
