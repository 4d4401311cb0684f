"""Log records that the user sees at once, above the board."""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager

from refinesynth.run.jsonl import LOGGER, facts_of
from refinesynth.text.printable import one_line

_SAID = frozenset(
    {
        "goes_without",
        "loading",
        "batch_sent",
        "batch_ended",
        "store",
        "workers_wait",
        "block_lost",
        "tool_parser",
        "real_tools",
    }
)


@contextmanager
def remarks(say: Callable[[str], None]) -> Generator[None]:
    """Within the block, show each of these events and each slow rule once."""
    logger, handler = logging.getLogger(LOGGER), _Once(say)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Once(logging.Handler):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._say = say
        self._said: set[object] = set()

    def emit(self, record: logging.LogRecord) -> None:
        facts = facts_of(record)
        text = facts.get("text")
        about = facts.get("rule") if facts["event"] == "slow_rule" else text if facts["event"] in _SAID else None
        if about is not None and about not in self._said:
            self._said.add(about)
            mark = "! " if record.levelno >= logging.WARNING else ""
            self._say(one_line(f"{mark}{record.getMessage()}"))
