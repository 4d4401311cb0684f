"""What the package logs and a user should see at once, said above the board."""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager

from refinesynth.run.logs import LOGGER, facts_of
from refinesynth.text.printable import one_line


@contextmanager
def remarks(say: Callable[[str], None]) -> Generator[None]:
    """Within the block, a rule that takes seconds is named, what requests go without from now on, workers without a
    place, and journals that cannot be read; each once.
    """
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
        facts = facts_of(record)
        of_its_text = dict.fromkeys(("goes_without", "workers_wait", "journal_lost"), facts["text"])
        about = {"slow_rule": facts.get("rule"), **of_its_text}.get(facts["event"])
        if about is not None and about not in self._said:
            self._said.add(about)
            self._say(one_line(f"! {record.getMessage()}"))
