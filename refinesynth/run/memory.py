"""What a run's journal knows of one episode: what was paid for is not asked for again."""

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from refinesynth.journal import Journal, JournalReader, Paid, Recorded

_LOG = logging.getLogger("refinesynth.run")


class EpisodeMemory:
    """The completions that one episode has paid for, those of an earlier process among them."""

    def __init__(
        self,
        journal: Journal,
        episode: str,
        *,
        begun: bool,
        elsewhere: Sequence[JournalReader] = (),
        known: Sequence[Paid] = (),
    ) -> None:
        """The memory of the episode with this id; `begun` says whether an earlier process may have begun it.

        What is kept goes to `journal`; it and those `elsewhere` are asked what was paid for before. `known` was read
        from journals that cannot be reached from here.
        """
        self._journal = journal
        self._episode = episode
        self._known = known
        self._asked = (journal, *elsewhere) if begun else ()

    @property
    def ended(self) -> bool:
        """Whether the episode had ended, and is made again because its lines are missing.

        Raises:
            StorageError: The journal cannot be read.
        """
        below = max((journal.ended_below for journal in self._asked), default=0)
        return any(paid.index < below for paid in self._recorded)

    def recall(self, role: str, step: int, digest: bytes) -> Paid | None:
        """What this request was answered with before; None if it was not made.

        Raises:
            StorageError: The journal cannot be read.
        """
        return self._recorded.get(role, step, digest)

    async def keep(self, *paid: Paid) -> None:
        """Returns when the completions are committed, together.

        Raises:
            StorageError: It could not be.
        """
        await self._journal.keep(*paid)
        if _LOG.isEnabledFor(logging.DEBUG):
            for one in paid:
                _LOG.debug("%s answered in episode %s", one.role, one.episode, extra={"facts": _facts(one)})

    @cached_property
    def _recorded(self) -> Recorded:
        # Read when the first request is made, and only where there can be something to read.
        read = [paid for journal in self._asked for paid in journal.recorded(self._episode)]
        return Recorded([*self._known, *read])

    def everything(self) -> tuple[Paid, ...]:
        """All that was paid for before this process began.

        Raises:
            StorageError: The journal cannot be read.
        """
        return tuple(self._recorded)


def _facts(paid: Paid) -> dict[str, Any]:
    """The completion as an event: everything but its words; `episode`, `role` and `step` find these in the journal."""
    return {
        "event": "completion",
        "episode": paid.episode,
        "attempt": paid.attempt,
        "role": paid.role,
        "step": paid.step,
        "model": paid.model,
        "input_tokens": paid.input_tokens,
        "cached_tokens": paid.cached_tokens,
        "output_tokens": paid.output_tokens,
        "cost_usd": paid.cost_usd,
    }
