"""Steps of an executed world: 50 things in 10 rooms, of which the player sees those that are near.

python -m bench.grounded.steps [--quick]
"""

import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import orjson

from bench.figures import Figure, Section
from bench.measuring import pin, program
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
from refinesynth.world import World, replay

ROOMS = tuple(f"room {number}" for number in range(10))
THINGS = tuple(f"thing {number}" for number in range(40))
BOXES = tuple(f"box {number}" for number in range(10))


def measure(*, quick: bool) -> Section:
    """Random actions that a player may well try, half of which are possible, over two ways to say what is visible."""
    pin("client")
    rounds, steps = (3, 500) if quick else (9, 2_000)
    listed, flagged = World(_script(_BY_ROOM)), World(_script(_BY_THING))
    actions = _walk(listed, steps)
    reading = _best(lambda: _read_and_written(listed, steps), rounds) / steps

    def figure(what: str, world: World, goal: float | None = None) -> Figure:
        # A world of its own for each round: nothing is known from the last one.
        rate = steps / _best(lambda: replay(World(world.script), actions), rounds)
        return Figure(what=what, value=rate, unit="/s", reference=1 / reading, goal=goal, aim="at least")

    return Section(
        title="Steps of an executed world",
        how=f"{steps} actions in a world of {len(THINGS) + len(BOXES)} objects and {len(ROOMS)} rooms with a state of "
        f"{len(orjson.dumps(listed.script.environment)):,} bytes, requirements, effects, sights and an invariant; rulings include appeared "
        f"names and changes. Best of {rounds} rounds of CPU time, including compilation. Ratios are to reading and writing the state as JSON.",
        figures=(
            Figure(what="reading and writing the state", value=1 / reading, unit="/s", reference=1 / reading),
            figure("sights by room", listed, goal=2_000),
            figure("a condition for each of 50 objects", flagged, goal=2_000),
        ),
    )


_BY_ROOM = (
    Sight(path="/rooms/{state:/you/at}/things"),
    Sight(path="/rooms/{state:/you/at}/boxes"),
    Sight(path="/boxes/{each}/things", each="/rooms/{state:/you/at}/boxes", when="state.boxes[each].open"),
    Sight(path="/you/holding"),
)
"""One reading for a room, and one for each box in it."""

_BY_THING = (
    Sight(path="/objects/{each}/name", each="/objects", when="state.objects[each].at == state.you.at"),
    Sight(path="/you/holding"),
)
"""A condition for each of the 50 objects, as somebody writes who keeps one list of everything."""


def _script(sights: Sequence[Sight]) -> Script:
    rulebook = Rulebook(
        goal=("state.boxes['box 9'].open", "'thing 7' in state.rooms['room 0'].things"),
        sights=tuple(sights),
        invariants=(Invariant(condition="size(state.you.holding) <= 3", sentence="Nobody has more than three hands."),),
    )
    return Script(
        introduction="Ten rooms.",
        environment=_environment(Random(1)),
        goal="Open the last box.",
        completion_conditions=("The last box is open.", "Thing 7 is in the first room."),
        actions=_actions(),
        rulebook=rulebook,
    )


def _environment(rng: Random) -> dict[str, Any]:
    at = {name: rng.choice(ROOMS) for name in (*THINGS, *BOXES)}
    return {
        "you": {"at": ROOMS[0], "holding": []},
        "rooms": {
            room: {
                "things": [thing for thing in THINGS if at[thing] == room],
                "boxes": [box for box in BOXES if at[box] == room],
            }
            for room in ROOMS
        },
        "boxes": {box: {"open": False, "things": []} for box in BOXES},
        # Told twice over, so that both kinds of sights have what they need.
        "objects": {name: {"name": name, "at": room, "clean": rng.random() < 0.5} for name, room in at.items()},
    }


def _actions() -> tuple[ActionSpec, ...]:
    seen = Requirement(
        condition="{} in visible", kind=MistakeKind.PLACE, hint="There is no {} here; you see {visible}."
    )

    def need(name: str) -> Requirement:
        hint = seen.hint.replace("{}", f"{{{name}}}")
        return seen.model_copy(update={"condition": f"{name} in visible", "hint": hint})

    go = ActionSpec(
        name="go to {room}",
        pattern="go to (.+)",
        parameters={"room": ROOMS},
        requires=(Requirement(condition="state.you.at != room", hint="You are there."),),
        effects=(Effect(op=EffectOp.SET, path="/you/at", value="{room}"),),
        reveals="You are in {room}.",
    )
    open_it = ActionSpec(
        name="open {box}",
        pattern="open (.+)",
        parameters={"box": BOXES},
        requires=(need("box"), Requirement(condition="!state.boxes[box].open", hint="It is open.")),
        effects=(Effect(op=EffectOp.SET, path="/boxes/{box}/open", value=True),),
        reveals="The {box} is open.",
    )
    take = ActionSpec(
        name="take {thing}",
        pattern="take (.+)",
        parameters={"thing": THINGS},
        requires=(
            need("thing"),
            Requirement(condition="!(thing in state.you.holding)", hint="You hold it."),
            Requirement(condition="size(state.you.holding) < 3", hint="You hold {state:/you/holding}."),
        ),
        effects=(
            Effect(op=EffectOp.MOVE, from_path="/rooms/{state:/you/at}/things", path="/you/holding", value="{thing}"),
            Effect(op=EffectOp.SET, path="/objects/{thing}/at", value="hand"),
        ),
        reveals="You hold {state:/you/holding}.",
    )
    drop = ActionSpec(
        name="drop {thing}",
        pattern="drop (.+)",
        parameters={"thing": THINGS},
        requires=(Requirement(condition="thing in state.you.holding", hint="You do not hold it."),),
        effects=(
            Effect(op=EffectOp.MOVE, from_path="/you/holding", path="/rooms/{state:/you/at}/things", value="{thing}"),
            Effect(op=EffectOp.SET, path="/objects/{thing}/at", value="{state:/you/at}"),
        ),
        reveals="You drop {thing}.",
    )
    return (go, open_it, take, drop)


def _walk(world: World, steps: int) -> list[str]:
    """Actions as somebody writes them who knows where things are most of the time."""
    rng = Random(2)
    # The executor's own type of a state is any JSON value; this one is an object.
    state: Any = world.script.environment
    actions: list[str] = []
    for _ in range(steps):
        here = state["rooms"][state["you"]["at"]]
        choices = [
            f"go to {rng.choice(ROOMS)}",
            f"take {rng.choice(here['things'] or THINGS)}",
            f"take {rng.choice(THINGS)}",
        ]
        choices += [
            f"open {rng.choice(here['boxes'] or BOXES)}",
            f"drop {rng.choice(state['you']['holding'] or THINGS)}",
        ]
        actions.append(rng.choice(choices))
        state = world.step(state, actions[-1]).state
    return actions


def _read_and_written(world: World, times: int) -> None:
    text = orjson.dumps(world.script.environment)
    for _ in range(times):
        text = orjson.dumps(orjson.loads(text))


def _best(work: Callable[[], object], rounds: int) -> float:
    """Seconds of CPU of the best round, after one that loads what is imported where it is used."""
    work()
    return min(_seconds(work) for _ in range(rounds))


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    program(measure)
