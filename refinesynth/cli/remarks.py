"""What the package logs and a user should see at once, said above the board."""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager

from refinesynth.rules.slow import LOGGER


@contextmanager
def remarks(say: Callable[[str], None]) -> Generator[None]:
    """Within the block, a rule that takes seconds is named, once."""
    logger, handler = logging.getLogger(LOGGER), _Once(say)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Once(logging.Handler):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say
        self._said: set[object] = set()

    def emit(self, record: logging.LogRecord) -> None:
        rule = record.args[0] if isinstance(record.args, tuple) else record.msg
        if rule not in self._said:
            self._said.add(rule)
            self._say(f"! {record.getMessage()}")
