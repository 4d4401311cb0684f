"""Drafts that `rules.grounded()` accepts, played in small worlds: what the rulebook rules, in its own words."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, cast

from hypothesis import strategies as st
from pydantic import JsonValue

from refinesynth.testing.drawing import pick, whether, whole
from refinesynth.testing.grounded_worlds import errands, valid_grounded_scripts
from refinesynth.trajectory import Draft, DungeonMasterTurn, MistakeKind, PlayerTurn, Script
from refinesynth.world import Ruling, World, ground_actions, world_of

# What is imported with the first world draws from Python's random numbers, which strategies must leave alone.
import_module("cel")

_THOUGHTS = ("I try this next.", "That should bring me nearer.", "Das könnte gehen.")
_NO_ACTIONS = ("juggle everything", "fly to the moon", "please help", "open sesame", "zzzz 1 2 3")
_PASSING = (
    "It does not work this time; try again.",
    "For a moment something is stuck, and nothing has changed.",
    "Your hand slips. Nothing happens for now.",
)
"""What is said of a transient failure."""

_STRIDES = (1, 101, 211, 307, 401)
"""Steps that visit every action: primes larger than the number of actions."""


@st.composite
def valid_grounded_drafts(draw: st.DrawFn) -> Draft:
    """A whole draft that `rules.grounded()` accepts: two to four mistakes of any kind, each answered by the next
    action.

    Either what was refused can be done then, or the player says why it does something else. It may open with an
    observation, wander about, and have transient failures, each tried again with success.
    """
    script = draw(valid_grounded_scripts())
    play = _Play(draw, script)
    if whether(draw):
        progress = pick(draw, (None, play.world.progress(play.state)))
        play.turns.append(_answer("Here you are.", progress=progress))
    for _ in range(whole(draw, 2, 4)):
        for _ in range(whole(draw, 0, 2)):
            play.right(play.harmless())
        play.answer(play.mistake())
    for action in errands(script, play.state):
        play.right(action)
    return Draft(script=script, turns=tuple(play.turns))


class _Play:
    """A play on its way."""

    def __init__(self, draw: st.DrawFn, script: Script) -> None:
        self.draw, self.world = draw, world_of(script)
        self.actions = _ground(self.world)
        self.state: JsonValue = script.environment
        self.turns: list[PlayerTurn | DungeonMasterTurn] = []
        self.wrong: set[str] = set()

    def harmless(self) -> str:
        """A right action that does not reach the goal; there is always one, to look round."""
        return next(text for text in self._shuffled() if (it := self._rule(text)).kind is None and not it.done)

    def right(self, action: str, *, thought: str | None = None) -> None:
        """Carry out an action, which may fail for a moment before."""
        if self._rule(action).state is not self.state and not whole(self.draw, 0, 4):
            observation = pick(self.draw, _PASSING)
            progress = self.world.progress(self.state)
            self.turns.extend((self._said(action, thought), _answer(observation, progress=progress, transient=True)))
        self._act(action, thought)

    def mistake(self) -> str:
        """An action that the world refuses and that was not tried wrongly before."""
        unread = pick(self.draw, [text for text in _NO_ACTIONS if text not in self.wrong])
        refused = (
            text
            for text in self._shuffled()
            if text not in self.wrong and self._rule(text).kind is not None and not self._foreknown(text)
        )
        action = next(refused, unread) if whether(self.draw) else unread
        self.wrong.add(action)
        self._act(action)
        return action

    def answer(self, wrong: str) -> None:
        """What makes a refused action possible, without a word, or something harmless with the reason for it."""
        helpful = self._helpful(wrong) if whether(self.draw) else None
        if helpful is not None:
            self.right(helpful)
        else:
            self.right(self.harmless(), thought=f"{self._rule(wrong).text} So I do something else.")

    def _helpful(self, wrong: str) -> str | None:
        for text in self._shuffled():
            it = self._rule(text)
            if it.kind is None and not it.done and self.world.step(it.state, wrong).kind is None:
                return text
        return None

    def _foreknown(self, action: str) -> bool:
        """Whether it takes something from its place, which the player perhaps could not know."""
        read = self.world.read(action)
        spots = cast("Mapping[str, Any]", self.world.script.environment["places"])
        values: Mapping[str, str] = {} if read is None else read[1]
        place = spots.get(values.get("place", ""), {"things": ()})
        return values.get("thing") in place["things"]

    def _shuffled(self) -> Iterator[str]:
        """All actions, in another order each time."""
        count = len(self.actions)
        start, step = whole(self.draw, 0, count - 1), pick(self.draw, _STRIDES)
        return (self.actions[(start + step * at) % count] for at in range(count))

    def _rule(self, action: str) -> Ruling:
        return self.world.step(self.state, action)

    def _act(self, action: str, thought: str | None = None) -> None:
        ruling = self._rule(action)
        ending = " Task Succeed" if ruling.done else ""
        self.turns.append(self._said(action, thought))
        self.turns.append(_answer(f"{ruling.text}{ending}", progress=ruling.progress, kind=ruling.kind))
        self.state = ruling.state

    def _said(self, action: str, thought: str | None) -> PlayerTurn:
        spelled = f" {action}\n" if whether(self.draw) else action
        return PlayerTurn(thought=thought or pick(self.draw, _THOUGHTS), action=spelled)


def _answer(
    observation: str, *, progress: float | None, kind: MistakeKind | None = None, transient: bool = False
) -> DungeonMasterTurn:
    return DungeonMasterTurn(
        thought="",
        observation=observation,
        parameter_error=kind is MistakeKind.PARAMETER,
        place_error=kind is MistakeKind.PLACE,
        logic_error=kind is MistakeKind.LOGIC,
        progress=progress,
        transient=transient,
    )


@lru_cache(maxsize=256)
def _ground(world: World) -> Sequence[str]:
    return tuple(ground_actions(world))
