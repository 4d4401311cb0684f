"""A draft as exchanges of a player turn and its answer."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from refinesynth.trajectory import Draft, DungeonMasterTurn, MalformedTurn, PlayerTurn


class Exchange(NamedTuple):
    """A player turn with the turn after it."""

    at: int
    """Index of the player turn."""
    player: PlayerTurn
    after: PlayerTurn | DungeonMasterTurn | MalformedTurn | None
    """The turn that follows; None at the end of the draft."""

    @property
    def answer(self) -> DungeonMasterTurn | None:
        """The DungeonMaster's answer, if the next turn is one."""
        return self.after if isinstance(self.after, DungeonMasterTurn) else None

    @property
    def flagged(self) -> bool:
        """True if the DungeonMaster flagged the action."""
        return isinstance(self.after, DungeonMasterTurn) and self.after.flagged

    @property
    def accepted(self) -> bool:
        """True if the DungeonMaster answered without a flag."""
        return isinstance(self.after, DungeonMasterTurn) and not self.after.flagged

    @property
    def transient(self) -> bool:
        """True if the action was right and failed by chance; such an answer has no flag."""
        return isinstance(self.after, DungeonMasterTurn) and self.after.transient and not self.after.flagged


def exchanges(turns: Sequence[PlayerTurn | DungeonMasterTurn | MalformedTurn]) -> Iterator[Exchange]:
    """Yield one exchange per player turn, in order."""
    last = len(turns) - 1
    for at, turn in enumerate(turns):
        if turn.role == "Player":  # a model's `isinstance` is slow to say no
            yield Exchange(at, turn, turns[at + 1] if at < last else None)


def is_complete(draft: Draft) -> bool:
    """Return whether the draft is finished and was read to its end, so an ending and a minimum can be required."""
    return draft.finished and draft.text_error is None
