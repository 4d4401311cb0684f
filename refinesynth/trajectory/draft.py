"""A draft: a script with turns that are not verified yet."""

from collections.abc import Iterable, Sequence
from typing import Self

from pydantic import Field

from refinesynth.text.jsontext import read_json, scrub
from refinesynth.trajectory.liberties import Answer, Liberty, read_answer
from refinesynth.trajectory.script import Script
from refinesynth.trajectory.turns import DraftTurn, DungeonMasterTurn, PlayerTurn
from refinesynth.trajectory.value import Value

_TELLING = 3
"""So many different actions, made and judged alike in the same order, are no accident."""


class Draft(Value):  # noqa: PLW1641 - a script, being JSON, has no hash either
    """A script with turns that are not verified yet: what a `Rule` looks at."""

    script: Script
    turns: tuple[DraftTurn, ...] = ()
    text_error: str | None = None
    """Why the model's text for the turns after these could not be read, if it could not."""
    finished: bool = True
    """Whether this is meant to be the whole trajectory; of a part, rules do not ask for an ending."""
    liberties: tuple[tuple[int, Liberty], ...] = Field(default=(), exclude=True, repr=False)
    """Index of a turn and what the reader let pass there, in order. Never written: a draft that is read from a file has
    none.

    Drafts are equal that say the same, however they were read.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Draft) and self._says() == other._says()

    def _says(self) -> tuple[Script, tuple[DraftTurn, ...], str | None, bool]:
        return self.script, self.turns, self.text_error, self.finished

    @classmethod
    def from_text(cls, script: Script, text: str, *, prefix: Iterable[PlayerTurn | DungeonMasterTurn] = ()) -> Self:
        """Read a model's answer that continues `prefix`; never raises, an unreadable answer sets `text_error`."""
        before = tuple(prefix)
        try:
            answer = read_answer(read_json(text)).written_as(text)
        except ValueError as error:
            return cls(script=script, turns=before, text_error=scrub(str(error)))
        return cls.continued(script, answer, prefix=before)

    @classmethod
    def continued(
        cls, script: Script, answer: Answer, *, prefix: Iterable[PlayerTurn | DungeonMasterTurn] = ()
    ) -> Self:
        """`prefix` and what a model wrote after it.

        Turns that start over with those of `prefix` are recognised and not doubled, even in other words: a
        few different actions that are judged alike are enough.
        """
        before = tuple(prefix)
        again = len(before) if _repeats(answer.turns[: len(before)], before) else 0
        start = len(before) - again
        whole = (Liberty.FENCED, Liberty.MENDED_JSON)  # which stay said of what is left of the answer
        liberties = [(start + max(at, again), one) for at, one in answer.liberties if at >= again or one in whole]
        return cls(script=script, turns=(*before, *answer.turns[again:]), liberties=tuple(liberties))

    def prefix(self, turns: int) -> Self:
        """The first `turns` turns as an unfinished draft."""
        liberties = tuple((at, one) for at, one in self.liberties if at < turns)
        update = {"turns": self.turns[:turns], "liberties": liberties, "text_error": None, "finished": False}
        return self.model_copy(update=update)


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
