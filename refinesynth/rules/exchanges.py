"""A draft read as exchanges: what the player did, and how the DungeonMaster answered."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from refinesynth.trajectory import Draft, DungeonMasterTurn, MalformedTurn, PlayerTurn


class Exchange(NamedTuple):
    """A player turn with the turn after it."""

    at: int
    """Index of the player turn."""
    player: PlayerTurn
    after: PlayerTurn | DungeonMasterTurn | MalformedTurn | None
    """The turn that follows; None if the draft ends here."""

    @property
    def answer(self) -> DungeonMasterTurn | None:
        """The DungeonMaster's answer, if the next turn is one."""
        return self.after if isinstance(self.after, DungeonMasterTurn) else None

    @property
    def flagged(self) -> bool:
        """Return whether the DungeonMaster called the action wrong."""
        return isinstance(self.after, DungeonMasterTurn) and self.after.flagged

    @property
    def accepted(self) -> bool:
        """Return whether the DungeonMaster answered and called nothing wrong."""
        return isinstance(self.after, DungeonMasterTurn) and not self.after.flagged

    @property
    def transient(self) -> bool:
        """Return whether the action was right and failed for a moment; the DungeonMaster calls nothing wrong then."""
        return isinstance(self.after, DungeonMasterTurn) and self.after.transient and not self.after.flagged


def exchanges(turns: Sequence[PlayerTurn | DungeonMasterTurn | MalformedTurn]) -> Iterator[Exchange]:
    """One exchange for each player turn, in order."""
    last = len(turns) - 1
    for at, turn in enumerate(turns):
        if turn.role == "Player":  # a model's `isinstance` is slow to say no
            yield Exchange(at, turn, turns[at + 1] if at < last else None)


def is_complete(draft: Draft) -> bool:
    """Return whether the draft claims to be whole, so that one may ask for an ending and a minimum."""
    return draft.finished and draft.text_error is None
