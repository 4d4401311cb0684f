"""How long a trajectory may be."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from refinesynth.rules.rule import FIELDS, BaseRule, Violation
from refinesynth.trajectory import Draft, DungeonMasterTurn, MalformedTurn, PlayerTurn

MAX_OBSERVATION = 4_000
"""Longest observation of an executed world, in characters: half of what `SizeLimits` allows a turn."""


@dataclass(frozen=True, config=FIELDS)
class TurnLimit(BaseRule, built_in=True):
    """At most so many turns; else code `too_many_turns`, which starts over: a prefix that long leaves no room to
    end.
    """

    most: Annotated[int, Field(ge=1)] = 100
    """Turns of both roles together."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        turns = len(draft.turns)
        if turns > self.most:
            message = f"There are {turns} turns, at most {self.most} are allowed. Reach the goal in fewer turns."
            yield self.violation(self.most, "too_many_turns", message, keeps_prefix=False)


@dataclass(frozen=True, config=FIELDS)
class SizeLimits(BaseRule, built_in=True):
    """No turn and no trajectory is longer than so many characters.

    Codes: `turn_too_long`, which keeps the turns before it, and `too_long`, which starts over.
    """

    turn: Annotated[int, Field(ge=1)] = 8_000
    """Characters of one turn: thought and action, or thought and observation."""
    total: Annotated[int, Field(ge=1)] = 60_000
    """Characters of all turns together; about 15,000 tokens of English."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        total = 0
        for at, turn in enumerate(draft.turns):
            size = _characters(turn)
            if size > self.turn:
                message = f"Turn {at + 1} has {size:,} characters, at most {self.turn:,} are allowed. Write it shorter."
                yield self.violation(at, "turn_too_long", message)
            total += size
            if total > self.total:
                message = f"The turns have more than {self.total:,} characters. Write a shorter trajectory."
                yield self.violation(at, "too_long", message, keeps_prefix=False)
                return


def _characters(turn: PlayerTurn | DungeonMasterTurn | MalformedTurn) -> int:
    if isinstance(turn, MalformedTurn):
        return len(turn.raw)
    return len(turn.thought) + len(turn.action if isinstance(turn, PlayerTurn) else turn.observation)
