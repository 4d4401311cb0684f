"""Small grounded scripts: places, some shut, things to carry between them, and what is out of sight hidden."""

from collections.abc import Mapping
from typing import Any, cast

from hypothesis import strategies as st
from pydantic import JsonValue

from refinesynth.testing.drawing import pick, pick_some, whether
from refinesynth.trajectory import (
    ActionSpec,
    Effect,
    EffectOp,
    Invariant,
    MistakeKind,
    Requirement,
    Rulebook,
    Script,
    Sight,
)

_PLACES = ("table 1", "table 12", "shelf", "Drawer 3", "lab bench", "hall", "/home/ann", "bay ~1")
_THINGS = ("blue mug", "mug", "Red Book", "soap", "brass key", "café list", "box-7", "notes.txt", "試料")

_HERE = Requirement(
    condition="state.you.at == place", kind=MistakeKind.PLACE, hint="You are at {state:/you/at}, not at {place}."
)
_OPEN = Requirement(condition="state.places[place].open", hint="{place} is shut.")


@st.composite
def valid_grounded_scripts(draw: st.DrawFn) -> Script:
    """A script that `rules.grounded_script()` accepts: two to four places, one of them shut, two or three things to
    carry.

    With one condition in its goal or two; with hidden things, or everything in sight. Its goal can be reached from
    every state.
    """
    places = pick_some(draw, _PLACES, least=2, most=4)
    things = pick_some(draw, _THINGS, least=2, most=3)
    where = {thing: pick(draw, places) for thing in things}
    moved = pick_some(draw, things, least=1, most=2)
    to = {thing: pick(draw, [place for place in places if place != where[thing]]) for thing in moved}
    shut = pick(draw, places)
    held: list[JsonValue] = []
    environment: dict[str, JsonValue] = {
        "you": {"at": places[0], "holding": held},
        "places": {
            place: {
                "open": place != shut,
                "things": cast("JsonValue", [thing for thing in things if where[thing] == place]),
            }
            for place in places
        },
    }
    hidden = whether(draw)
    script = Script(
        introduction=pick(draw, ("", "You keep house.", "Vous êtes au bureau.")),
        environment=environment,
        goal="Bring everything to its place.",
        completion_conditions=tuple(f"{thing} is at {place}" for thing, place in to.items()),
        actions=_actions(tuple(places), tuple(things)),
        rulebook=Rulebook(
            goal=tuple(f"{_cel(thing)} in state.places[{_cel(place)}].things" for thing, place in to.items()),
            sights=_SIGHTS if hidden else (),
            invariants=(Invariant(condition="size(state.you.holding) <= 1", sentence="One thing at a time."),),
        ),
    )
    return _solved(script)


def errands(script: Script, state: JsonValue) -> list[str]:
    """Actions that reach the goal of such a script from a state of its world, thing by thing."""
    now = cast("Mapping[str, Any]", state)
    at: str = now["you"]["at"]
    spots = {place: [list[str](spot["things"]), spot["open"]] for place, spot in now["places"].items()}
    acts: list[str] = []

    def be_at(place: str) -> None:
        nonlocal at
        if at != place:
            acts.append(f"go to {place}")
        if not spots[place][1]:
            acts.append(f"open {place}")
        spots[place][1], at = True, place

    to = dict(condition.split(" is at ") for condition in script.completion_conditions)
    for thing in now["you"]["holding"]:
        be_at(to.get(thing, at))
        acts.append(f"put {thing} in {at}")
        spots[at][0].append(thing)
    for thing, target in to.items():
        source = next(place for place, (things, _) in spots.items() if thing in things)
        if source != target:
            be_at(source)
            acts.append(f"take {thing} from {source}")
            be_at(target)
            acts.append(f"put {thing} in {target}")
    return acts


def _solved(script: Script) -> Script:
    solution = tuple(errands(script, script.environment))
    return script.model_copy(
        update={"rulebook": script.rulebook and script.rulebook.model_copy(update={"solution": solution})}
    )


_SIGHTS = (
    Sight(path="/places"),
    Sight(path="/you/holding"),
    Sight(path="/places/{state:/you/at}/things", when="state.places[state.you.at].open"),
)


def _actions(places: tuple[str, ...], things: tuple[str, ...]) -> tuple[ActionSpec, ...]:
    holds = Requirement(condition="thing in state.you.holding", hint="You do not hold {thing}.")
    return (
        ActionSpec(
            name="go to {place}",
            pattern="go to (.+)",
            parameters={"place": places},
            requires=(Requirement(condition="state.you.at != place", hint="You are at {place} already."),),
            effects=(Effect(op=EffectOp.SET, path="/you/at", value="{place}"),),
            reveals="You go to {place}.",
        ),
        ActionSpec(
            name="open {place}",
            pattern="open (.+)",
            parameters={"place": places},
            requires=(_HERE, Requirement(condition="!state.places[place].open", hint="{place} is open already.")),
            effects=(Effect(op=EffectOp.SET, path="/places/{place}/open", value=True),),
            reveals="You open {place}.",
        ),
        ActionSpec(
            name="take {thing} from {place}",
            pattern="take (.+?) from (.+)",
            parameters={"thing": things, "place": places},
            requires=(
                _HERE,
                _OPEN,
                Requirement(condition="thing in state.places[place].things", hint="There is no {thing}."),
                Requirement(condition="size(state.you.holding) == 0", hint="You hold {state:/you/holding}."),
            ),
            effects=(
                Effect(op=EffectOp.MOVE, from_path="/places/{place}/things", path="/you/holding", value="{thing}"),
            ),
            reveals="You take {thing}.",
        ),
        ActionSpec(
            name="put {thing} in {place}",
            pattern="put (.+?) in (.+)",
            parameters={"thing": things, "place": places},
            requires=(holds, _HERE, _OPEN),
            effects=(
                Effect(op=EffectOp.MOVE, from_path="/you/holding", path="/places/{place}/things", value="{thing}"),
            ),
            reveals="You put {thing} in {place}.",
        ),
        ActionSpec(name="look", pattern="look", reveals="You look round. You hold {state:/you/holding}."),
    )


def _cel(name: str) -> str:
    return f'"{name}"'
