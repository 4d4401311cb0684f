"""A draft as exchanges of a player turn and its answer."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from refinesynth.trajectory import Draft, DungeonMasterTurn, MalformedTurn, PlayerTurn


class Exchange(NamedTuple):
    """A player turn with the turn after it."""

    turn: int
    """Index of the player turn."""
    player: PlayerTurn
    next_turn: PlayerTurn | DungeonMasterTurn | MalformedTurn | None
    """The turn that follows; None at the end of the draft."""

    @property
    def answer(self) -> DungeonMasterTurn | None:
        """The DungeonMaster's answer, if the next turn is one."""
        return self.next_turn if isinstance(self.next_turn, DungeonMasterTurn) else None

    @property
    def flagged(self) -> bool:
        """True if the DungeonMaster flagged the action."""
        return isinstance(self.next_turn, DungeonMasterTurn) and self.next_turn.flagged

    @property
    def accepted(self) -> bool:
        """True if the DungeonMaster answered without a flag."""
        return isinstance(self.next_turn, DungeonMasterTurn) and not self.next_turn.flagged

    @property
    def transient(self) -> bool:
        """True if the action was right and failed by chance; such an answer has no flag."""
        return isinstance(self.next_turn, DungeonMasterTurn) and self.next_turn.transient and not self.next_turn.flagged


def exchanges(turns: Sequence[PlayerTurn | DungeonMasterTurn | MalformedTurn]) -> Iterator[Exchange]:
    """Yield one exchange per player turn, in order."""
    last = len(turns) - 1
    for index, turn in enumerate(turns):
        if turn.role == "Player":  # a model's `isinstance` is slow to say no
            yield Exchange(index, turn, turns[index + 1] if index < last else None)


def is_complete(draft: Draft) -> bool:
    """Return whether the draft is finished and was read to its end, so an ending and a minimum can be required."""
    return draft.finished and draft.text_error is None
