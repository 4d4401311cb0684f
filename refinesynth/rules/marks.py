"""Which turns of a trajectory are mistakes, and which ones answer them."""

from dataclasses import dataclass

from refinesynth.rules.repairs import repairs
from refinesynth.trajectory import Draft, DungeonMasterTurn, MistakeKind, flagged_turns


@dataclass(frozen=True)
class Mistake:
    """The DungeonMaster flagged this player turn."""

    kind: MistakeKind


@dataclass(frozen=True)
class Refinement:
    """This player turn answers mistakes, see `repairs`."""

    of: tuple[int, ...]
    """Indices of the mistakes' turns."""


@dataclass(frozen=True)
class Unrelated:
    """This player turn was the first that was accepted after mistakes that nothing answers, and has nothing to do with
    them.
    """

    after: tuple[int, ...]
    """Indices of the mistakes' turns."""


Mark = Mistake | Refinement | Unrelated


def marks(draft: Draft) -> dict[int, Mark]:
    """Turn index to what the turn is; turns that are none of these are left out."""
    found: dict[int, Mark] = {}
    answers: dict[int, tuple[int, ...]] = {}
    others: dict[int, tuple[int, ...]] = {}
    for at in flagged_turns(draft.turns):
        answer = draft.turns[at + 1]
        if isinstance(answer, DungeonMasterTurn) and answer.mistake_kind is not None:
            found[at] = Mistake(answer.mistake_kind)
    for repair in repairs(draft):
        if repair.answer is not None:
            answers[repair.answer] = (*answers.get(repair.answer, ()), repair.mistake.at)
        elif repair.unrelated is not None:
            others[repair.unrelated] = (*others.get(repair.unrelated, ()), repair.mistake.at)
    found.update((at, Unrelated(after)) for at, after in others.items())
    found.update((at, Refinement(of)) for at, of in answers.items())
    return found
