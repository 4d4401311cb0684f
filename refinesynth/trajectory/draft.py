"""A draft: a script with turns that nobody has verified yet."""

from collections.abc import Iterable, Sequence
from typing import Self

from refinesynth.jsontext import read_json, scrub
from refinesynth.trajectory.script import Script
from refinesynth.trajectory.turns import DraftTurn, DungeonMasterTurn, PlayerTurn, read_turns
from refinesynth.trajectory.value import Value

_TELLING = 3
"""So many different actions, made and judged alike in the same order, are no accident."""


class Draft(Value):
    """A script with turns that nobody has verified yet: what a `Rule` looks at."""

    script: Script
    turns: tuple[DraftTurn, ...] = ()
    text_error: str | None = None
    """Why the model's text for the turns after these could not be read, if it could not."""
    finished: bool = True
    """Whether this is meant to be the whole trajectory; of a part, rules do not ask for an ending."""

    @classmethod
    def from_text(cls, script: Script, text: str, *, prefix: Iterable[PlayerTurn | DungeonMasterTurn] = ()) -> Self:
        """Read a model's answer that continues `prefix`; never raises, an unreadable answer sets `text_error`."""
        before = tuple(prefix)
        try:
            turns = read_turns(read_json(text))
        except ValueError as error:
            return cls(script=script, turns=before, text_error=scrub(str(error)))
        return cls.continued(script, turns, prefix=before)

    @classmethod
    def continued(
        cls, script: Script, turns: Sequence[DraftTurn], *, prefix: Iterable[PlayerTurn | DungeonMasterTurn] = ()
    ) -> Self:
        """`prefix` and what a model wrote after it.

        Turns that start over with those of `prefix` are recognised and not doubled, even if they are told in other words: a
        few different actions that are judged alike are enough.
        """
        before = tuple(prefix)
        if _repeats(turns[: len(before)], before):
            turns = turns[len(before) :]
        return cls(script=script, turns=(*before, *turns))

    def prefix(self, turns: int) -> Self:
        """The first `turns` turns as an unfinished draft."""
        return self.model_copy(update={"turns": self.turns[:turns], "text_error": None, "finished": False})


def _repeats(turns: Sequence[DraftTurn], before: Sequence[DraftTurn]) -> bool:
    """Whether `turns` are those of `before`, perhaps in other words."""
    if turns == before:
        return True
    acts = {turn.action for turn in before if isinstance(turn, PlayerTurn)}
    return len(acts) >= _TELLING and list(map(_gist, turns)) == list(map(_gist, before))


def _gist(turn: DraftTurn) -> tuple[str, object]:
    if isinstance(turn, PlayerTurn):
        return turn.role, " ".join(turn.action.split()).casefold()
    return turn.role, turn.mistake_kind if isinstance(turn, DungeonMasterTurn) else None
