"""Counts of one episode: turns, failures and recoveries."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

SCORE = "episode"
"""Name of the score in a log: measures as its value, the fields of `Counts` in its metadata."""


class EpisodeStep(NamedTuple):
    action: str
    """Text of the action; empty if the message held none."""
    failed: bool
    """True without an action, or if the environment refused it."""
    in_history: bool = False
    """True for a turn of the given history, which the agent did not make."""


@dataclass(frozen=True)
class Counts:
    """Counts of one episode, or sums over many; rates are quotients of sums."""

    turns: int = 0
    format_errors: int = 0
    """Messages from which no action could be read."""
    refused: int = 0
    """Actions that the environment refused."""
    after_failure: int = 0
    """Turns after a failed one."""
    repeated: int = 0
    """Turns after a failed one that repeat its action verbatim."""
    failures: int = 0
    """Runs of consecutive failed turns."""
    recovered: int = 0
    """Runs of failed turns that an accepted action ends."""
    steps_to_recover: int = 0
    """Turns from the first failed one to the accepted action, summed over recoveries."""

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, name) + getattr(other, name) for name in Counts.__dataclass_fields__))

    @property
    def rates(self) -> dict[str, float | None]:
        """Rates for tables; None if the denominator is 0."""
        return {
            "format_errors": _share(self.format_errors, self.turns),
            "invalid_actions": _share(self.refused, self.turns),
            "repeats_failed_action": _share(self.repeated, self.after_failure),
            "recovers": _share(self.recovered, self.failures),
            "steps_to_recover": _share(self.steps_to_recover, self.recovered),
        }


def _share(part: int, total: int) -> float | None:
    return part / total if total else None


def counts(moves: Sequence[EpisodeStep]) -> Counts:
    """Count one episode's moves. A message without an action is a format error, not a refused action."""
    pairs = list(pairwise(moves))
    after_failed = [(previous, move) for previous, move in pairs if previous.failed]
    starts = [index for index, move in enumerate(moves) if move.failed and (index == 0 or not moves[index - 1].failed)]
    ends = [next((k for k in range(start, len(moves)) if not moves[k].failed), None) for start in starts]
    durations = [end - start for start, end in zip(starts, ends, strict=True) if end is not None]
    own_moves = [move for move in moves if not move.in_history]
    return Counts(
        turns=len(own_moves),
        format_errors=sum(not move.action for move in own_moves),
        refused=sum(move.failed and bool(move.action) for move in own_moves),
        after_failure=len(after_failed),
        repeated=sum(previous.action == move.action != "" for previous, move in after_failed),
        failures=len(starts),
        recovered=len(durations),
        steps_to_recover=sum(durations),
    )
