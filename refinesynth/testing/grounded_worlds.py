"""Small grounded scripts: places, one of them shut, and things to carry, possibly hidden."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from hypothesis import strategies as st
from pydantic import JsonValue

from refinesynth.testing.valid import answer, integer, pick, pick_some, whether
from refinesynth.trajectory import (
    ActionSpec,
    Draft,
    DungeonMasterTurn,
    Effect,
    EffectOp,
    Invariant,
    MistakeKind,
    PlayerTurn,
    Requirement,
    Rulebook,
    Script,
    Sight,
)
from refinesynth.world import Ruling, ground_actions, plan, world_of

_PLACES = ("table 1", "table 12", "shelf", "Drawer 3", "lab bench", "hall", "/home/ann", "bay ~1")
_THINGS = ("blue mug", "mug", "Red Book", "soap", "brass key", "café list", "box-7", "notes.txt", "試料")


@st.composite
def valid_grounded_scripts(draw: st.DrawFn) -> Script:
    """Strategy for scripts that `rules.grounded_script()` accepts: two to four places, one of them shut, two or three things.

    The goal has one or two conditions and is reachable from every state; things may be hidden.
    """
    places = pick_some(draw, _PLACES, least=2, most=4)
    things = pick_some(draw, _THINGS, least=2, most=3)
    where = {thing: pick(draw, places) for thing in things}
    moved = pick_some(draw, things, least=1, most=2)
    to = {thing: pick(draw, [place for place in places if place != where[thing]]) for thing in moved}
    shut = pick(draw, places)
    environment: dict[str, Any] = {
        "you": {"at": places[0], "holding": []},
        "places": {
            place: {"open": place != shut, "things": [thing for thing in things if where[thing] == place]}
            for place in places
        },
    }
    rulebook = Rulebook(
        goal=tuple(f'"{thing}" in state.places["{place}"].things' for thing, place in to.items()),
        sights=_SIGHTS if whether(draw) else (),
        invariants=(Invariant(condition="size(state.you.holding) <= 1", sentence="One thing at a time."),),
    )
    script = Script(
        introduction=pick(draw, ("", "You keep house.", "Vous êtes au bureau.")),
        environment=environment,
        goal="Bring everything to its place.",
        completion_conditions=tuple(f"{thing} is at {place}" for thing, place in to.items()),
        actions=_actions(places, things),
        rulebook=rulebook,
    )
    solution = plan(world_of(script), script.environment) or ()
    return script.model_copy(update={"rulebook": rulebook.model_copy(update={"solution": solution})})


_SIGHTS = (
    Sight(path="/places"),
    Sight(path="/you/holding"),
    Sight(path="/places/{state:/you/at}/things", when="state.places[state.you.at].open"),
)

_AT_PLACE = Requirement(
    condition="state.you.at == place", kind=MistakeKind.PLACE, hint="You are at {state:/you/at}, not at {place}."
)
_OPEN = Requirement(condition="state.places[place].open", hint="{place} is shut.")


def _actions(places: Sequence[str], things: Sequence[str]) -> tuple[ActionSpec, ...]:
    def action(name: str, reveals: str, effect: Effect, *requires: Requirement) -> ActionSpec:
        known = {"place": tuple(places), "thing": tuple(things)}
        pattern = name.replace("{thing}", "(.+?)").replace("{place}", "(.+)")
        parameters = {one: known[one] for one in ActionSpec(name=name, pattern=pattern).placeholders}
        return ActionSpec(
            name=name, pattern=pattern, parameters=parameters, requires=requires, effects=(effect,), reveals=reveals
        )

    return (
        action(
            "go to {place}",
            "You go to {place}.",
            Effect(op=EffectOp.SET, path="/you/at", value="{place}"),
            Requirement(condition="state.you.at != place", hint="You are at {place} already."),
        ),
        action(
            "open {place}",
            "You open {place}.",
            Effect(op=EffectOp.SET, path="/places/{place}/open", value=True),
            _AT_PLACE,
            Requirement(condition="!state.places[place].open", hint="{place} is open already."),
        ),
        action(
            "take {thing} from {place}",
            "You take {thing}.",
            Effect(op=EffectOp.MOVE, from_path="/places/{place}/things", path="/you/holding", value="{thing}"),
            _AT_PLACE,
            _OPEN,
            Requirement(condition="thing in state.places[place].things", hint="There is no {thing}."),
            Requirement(condition="size(state.you.holding) == 0", hint="You hold {state:/you/holding}."),
        ),
        action(
            "put {thing} in {place}",
            "You put {thing} in {place}.",
            Effect(op=EffectOp.MOVE, from_path="/you/holding", path="/places/{place}/things", value="{thing}"),
            Requirement(condition="thing in state.you.holding", hint="You do not hold {thing}."),
            _AT_PLACE,
            _OPEN,
        ),
        ActionSpec(name="look", pattern="look", reveals="You look round. You hold {state:/you/holding}."),
    )


_THOUGHTS = ("I try this next.", "That should bring me nearer.", "Das könnte gehen.")
_NO_ACTIONS = ("juggle everything", "fly to the moon", "please help", "open sesame", "zzzz 1 2 3")
_PASSING = (
    "It does not work this time; try again.",
    "For a moment something is stuck, and nothing has changed.",
    "Your hand slips. Nothing happens for now.",
)

_STRIDES = (1, 101, 211, 307, 401)
"""Step widths that visit every action: 1, and primes larger than the number of actions."""


@st.composite
def valid_grounded_drafts(draw: st.DrawFn) -> Draft:
    """Strategy for complete drafts that `rules.grounded()` accepts: two to four mistakes, each answered by the next action.

    The answer makes the refused action possible, or its thought gives a reason for another action. The draft may begin
    with an observation, and have needless actions and transient failures, each followed by a successful retry.
    """
    script = draw(valid_grounded_scripts())
    play = _Play(draw, script)
    if whether(draw):
        progress = pick(draw, (None, play.world.progress(play.state)))
        play.turns.append(answer("Here you are.", progress=progress))
    for _ in range(integer(draw, 2, 4)):
        for _ in range(integer(draw, 0, 2)):
            play.right(play.harmless())
        play.answer(play.mistake())
    for action in plan(play.world, play.state) or ():
        play.right(action)
    return Draft(script=script, turns=tuple(play.turns))


class _Play:
    def __init__(self, draw: st.DrawFn, script: Script) -> None:
        self.draw, self.world = draw, world_of(script)
        self.actions = tuple(ground_actions(self.world))
        self.state: JsonValue = script.environment
        self.turns: list[PlayerTurn | DungeonMasterTurn] = []
        self.wrong: set[str] = set()

    def harmless(self) -> str:
        """Draw a right action that does not reach the goal."""
        return next(text for text in self._shuffled() if (it := self._rule(text)).kind is None and not it.done)

    def right(self, action: str, *, thought: str | None = None) -> None:
        """Execute an action, possibly after a transient failure."""
        if self._rule(action).state is not self.state and not integer(self.draw, 0, 4):
            observation = pick(self.draw, _PASSING)
            progress = self.world.progress(self.state)
            self.turns.extend(
                (self._player_turn(action, thought), answer(observation, progress=progress, transient=True))
            )
        self._act(action, thought)

    def mistake(self) -> str:
        """Execute a new action that the world refuses, and return it."""
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
        """Make a refused action possible, or execute a harmless action with a reason."""
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
        """Return True for an action on a thing in its place; the player may not know the place."""
        read = self.world.read(action)
        spots = cast("Mapping[str, Any]", self.world.script.environment["places"])
        values: Mapping[str, str] = {} if read is None else read[1]
        place = spots.get(values.get("place", ""), {"things": ()})
        return values.get("thing") in place["things"]

    def _shuffled(self) -> Iterator[str]:
        count = len(self.actions)
        start, step = integer(self.draw, 0, count - 1), pick(self.draw, _STRIDES)
        return (self.actions[(start + step * at) % count] for at in range(count))

    def _rule(self, action: str) -> Ruling:
        return self.world.step(self.state, action)

    def _act(self, action: str, thought: str | None = None) -> None:
        ruling = self._rule(action)
        ending = " Task Succeed" if ruling.done else ""
        self.turns.append(self._player_turn(action, thought))
        self.turns.append(answer(f"{ruling.text}{ending}", flag=ruling.kind, progress=ruling.progress))
        self.state = ruling.state

    def _player_turn(self, action: str, thought: str | None) -> PlayerTurn:
        spelled = f" {action}\n" if whether(self.draw) else action
        return PlayerTurn(thought=thought or pick(self.draw, _THOUGHTS), action=spelled)
