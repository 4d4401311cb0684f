"""Counts of one evaluated episode: success and progress, and how the agent deals with its own failures."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

SCORE = "episode"
"""Name of the score in a log: its value holds success, progress and the environment's own measures, its metadata the
fields of `Counts`."""


class Move(NamedTuple):
    """One turn of an episode."""

    action: str
    """The action's text; empty where the message held none."""
    failed: bool
    """Whether it held no action, or one that the environment refused."""
    given: bool = False
    """Whether it stood in the chat from the start: what follows is the agent's answer to it, but it is none of its
    own."""


@dataclass(frozen=True)
class Counts:
    """Counts of one episode, or their sums over many; rates are quotients of sums, so that long episodes weigh more."""

    turns: int = 0
    format_errors: int = 0
    """Messages that hold no action, or more than one."""
    refused: int = 0
    """Actions that the environment did not take."""
    after_failure: int = 0
    """Turns that follow a failed one: one in which the agent could have learned from it."""
    repeated: int = 0
    """Of these, how many try again, word for word, what just failed."""
    failures: int = 0
    """Stretches of failed turns, of any length."""
    recovered: int = 0
    """Of these, how many end with an action that the environment takes."""
    steps_to_recover: int = 0
    """Turns from the first failed one of a stretch to the action that ends it, summed over what recovered; at least one
    each."""

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, name) + getattr(other, name) for name in Counts.__dataclass_fields__))

    @property
    def rates(self) -> dict[str, float | None]:
        """The rates that tables show; None where nothing happened that one could be taken of."""
        return {
            "format_errors": _share(self.format_errors, self.turns),
            "invalid_actions": _share(self.refused, self.turns),
            "repeats_failed_action": _share(self.repeated, self.after_failure),
            "recovers": _share(self.recovered, self.failures),
            "steps_to_recover": _share(self.steps_to_recover, self.recovered),
        }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def counts(moves: Sequence[Move]) -> Counts:
    """Count one episode's moves.

    A message without an action is a format error and is not counted as refused.
    """
    pairs = list(pairwise(moves))
    after = [(before, move) for before, move in pairs if before.failed]
    begins = [at for at, move in enumerate(moves) if move.failed and (at == 0 or not moves[at - 1].failed)]
    ends = [next((k for k in range(at, len(moves)) if not moves[k].failed), None) for at in begins]
    waits = [end - at for at, end in zip(begins, ends, strict=True) if end is not None]
    own = [move for move in moves if not move.given]
    return Counts(
        turns=len(own),
        format_errors=sum(not move.action for move in own),
        refused=sum(move.failed and bool(move.action) for move in own),
        after_failure=len(after),
        repeated=sum(before.action == move.action != "" for before, move in after),
        failures=len(begins),
        recovered=len(waits),
        steps_to_recover=sum(waits),
    )
