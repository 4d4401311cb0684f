"""Which turns of a trajectory are mistakes, and which ones mend them."""

from collections.abc import Sequence
from dataclasses import dataclass

from refinesynth.actions.wording import folded
from refinesynth.rules.exchanges import Exchange, exchanges
from refinesynth.trajectory import DungeonMasterTurn, MalformedTurn, MistakeKind, PlayerTurn


@dataclass(frozen=True)
class Mistake:
    """The DungeonMaster flagged this player turn."""

    kind: MistakeKind


@dataclass(frozen=True)
class Refinement:
    """This player turn is the first that was accepted after a mistake, and differs from it."""

    of: int
    """Index of the mistake's turn."""


def marks(turns: Sequence[PlayerTurn | DungeonMasterTurn | MalformedTurn]) -> dict[int, Mistake | Refinement]:
    """Turn index to what the turn is; turns that are neither are left out.

    Of several mistakes in a row, the next accepted action mends the last one. Actions are compared as the rules do it,
    without regard to case and white space.
    """
    found: dict[int, Mistake | Refinement] = {}
    unmended: Exchange | None = None
    for exchange in exchanges(turns):
        kind = exchange.answer.mistake_kind if exchange.answer is not None else None
        if kind is not None:
            found[exchange.at] = Mistake(kind)
            unmended = exchange
        elif exchange.accepted and unmended is not None:
            if folded(exchange.player.action) != folded(unmended.player.action):
                found[exchange.at] = Refinement(unmended.at)
            unmended = None
    return found
