"""When the Player is privately asked for a mistake, and for which kind.

Natural mistakes teach most, but a strong player makes few; asked-for ones fill up what is missing. Whatever is asked
for, only the DungeonMaster's flag makes an action a mistake, and the request never enters the record.
"""

from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Literal

from pydantic import BaseModel, Field

from refinesynth.trajectory import DungeonMasterTurn, MalformedTurn, MistakeKind, PlayerTurn

_KINDS = tuple(MistakeKind)


class Mistakes(BaseModel, frozen=True, extra="forbid"):
    """A policy: pure and deterministic in the turns so far, the episode's index and the attempt.

    No policy asks on the very first turn, nor while the last mistake is unrepaired, that is before another action was
    accepted. Kinds are balanced over a run: which comes first, and in which order the others follow, goes round with
    the episode's index.
    """

    policy: Literal["natural", "prompted", "at_least"] = "at_least"
    minimum: int = Field(default=2, ge=0)
    """How many mistakes a trajectory is to hold: `at_least` asks until there are so many, natural ones counted;
    narrated play asks its Narrator for so many under every policy."""
    turns: tuple[int, ...] = ()
    """For `prompted`: the player's turns, counted from 0, on which to ask. One that falls on the repair of a mistake is
    put off to the turn after it; turn 0 is put off to turn 1."""

    def ask(
        self, turns: Sequence[PlayerTurn | DungeonMasterTurn | MalformedTurn], *, episode: int, attempt: int = 1
    ) -> MistakeKind | None:
        """The kind of mistake to ask the Player for now, or None.

        `turns` are those played so far, an opening observation included or not. From the second attempt on, `at_least`
        asks at the first chance instead of leaving room for natural mistakes.
        """
        verdicts = _verdicts(turns)
        now = len(verdicts)
        if now == 0 or verdicts[-1] is not None:
            return None
        if self.policy == "prompted":
            return None if _due(verdicts).isdisjoint(self.turns) else _order(verdicts, episode)[0]
        made = sum(kind is not None for kind in verdicts)
        if self.policy == "natural" or made >= self.minimum:
            return None
        overdue = _accepted_in_a_row(verdicts) - 1 - (_pause(episode, made) if attempt == 1 else 0)
        if overdue < 0:
            return None
        # A kind that did not come about, perhaps because this world cannot go wrong in that way, gives way to the next.
        return _order(verdicts, episode)[overdue % len(_KINDS)]


def natural() -> Mistakes:
    """Only what the player model gets wrong by itself."""
    return Mistakes(policy="natural")


def prompted(*turns: int) -> Mistakes:
    """Ask on these turns of the player, counted from 0; `prompted()` asks on turns 1 and 4."""
    return Mistakes(policy="prompted", turns=turns or (1, 4))


def at_least(minimum: int = 2) -> Mistakes:
    """Ask only as far as natural mistakes do not reach `minimum`: the default."""
    return Mistakes(policy="at_least", minimum=minimum)


def _verdicts(turns: Sequence[PlayerTurn | DungeonMasterTurn | MalformedTurn]) -> list[MistakeKind | None]:
    """Of each player's turn that was answered: what kind of mistake it was, None if it was accepted."""
    kinds: list[MistakeKind | None] = []
    for turn, answer in pairwise(turns):
        if isinstance(turn, PlayerTurn) and isinstance(answer, DungeonMasterTurn):
            kinds.append(answer.mistake_kind)
    return kinds


def _accepted_in_a_row(verdicts: Sequence[MistakeKind | None]) -> int:
    """Player's turns accepted since the last mistake, or since the start."""
    return next((at for at, kind in enumerate(reversed(verdicts)) if kind is not None), len(verdicts))


def _due(verdicts: Sequence[MistakeKind | None]) -> set[int]:
    """The turn that comes now, and the turns before it on which asking was not allowed."""
    now = len(verdicts)
    due = {now}
    while now > 1 and verdicts[now - 2] is not None:
        now -= 1
        due.add(now)
    return due | {0} if now == 1 else due


def _pause(episode: int, made: int) -> int:
    """0 or 1 more accepted turns before asking, so that mistakes do not fall on the same turn in every episode."""
    return blake2b(f"{episode}/{made}".encode(), digest_size=1).digest()[0] & 1


def _order(verdicts: Sequence[MistakeKind | None], episode: int) -> list[MistakeKind]:
    """The kinds, those least made in this episode first; among equals the run's rotation decides."""
    start = episode % len(_KINDS)
    rotation = [*_KINDS[start:], *_KINDS[:start]]
    if episode // len(_KINDS) % 2:
        rotation = [rotation[0], *reversed(rotation[1:])]
    return sorted(rotation, key=verdicts.count)
