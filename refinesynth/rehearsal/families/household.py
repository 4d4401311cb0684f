"""Rooms full of furniture: carry things about, wash and warm them, mind what is shut."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from refinesynth.rehearsal.families.family import (
    Act,
    Condition,
    Family,
    Plot,
    State,
    act,
    chance,
    in_either,
    listed,
    quoted,
    read_laws,
    shuffled,
)

LAWS = read_laws("household")
_WORDS = LAWS.words


def see(state: State, key: str, values: Mapping[str, str]) -> str:
    """What is at the player's place and in the player's hands, after moving, opening or looking."""
    if key not in {"go", "open", "look"}:
        return ""
    here: str = values.get("place") or values.get("container") or state["you"]["at"]
    spot = state["places"][here]
    seen = f"At the {here} you see {_things(spot['things'])}." if spot["open"] else f"The {here} is shut."
    return f"{seen} You hold {_things(state['you']['holding'])}." if key == "look" else seen


def _things(things: Mapping[str, Any]) -> str:
    return listed([f"the {name}{' (dirty)' * thing['dirty']}" for name, thing in things.items()])


@dataclass(frozen=True)
class _Home:
    names: tuple[str, ...]
    containers: tuple[str, ...]
    water: str
    heat: str
    items: tuple[str, ...]


@dataclass(frozen=True)
class _Task:
    kind: str
    moved: tuple[str, ...]
    source: str
    target: str
    closing: bool


def draw(rng: Random) -> Plot:
    """A home with seven or eight places and six things, one or two of which have to end up somewhere else."""
    kind = rng.choice(("carry", "carry two", "wash", "wash", "warm"))
    surfaces, containers = rng.sample(_WORDS["open"], 3), rng.sample(_WORDS["shut"], rng.choice((2, 3)))
    water, heat = rng.choice(_WORDS["washing"]), rng.choice(_WORDS["warming"])
    names = shuffled(rng, [*surfaces, *containers, water, heat])
    home = _Home(tuple(names), tuple(containers), water, heat, _items(rng, food_first=kind == "warm"))
    # Something that is merely carried is shut away, so that there is more to it than four steps.
    source = rng.choice(containers if kind == "carry" else [*surfaces, *containers])
    target, start = rng.sample([name for name in (*surfaces, *containers) if name != source], 2)
    closing = kind != "carry two" and target in containers and chance(rng, 0.5)
    task = _Task(kind, home.items[: 2 if kind == "carry two" else 1], source, target, closing)
    places = _furnished(rng, home, task)
    hands = 2 if kind == "carry two" else rng.choice((1, 2))
    state: dict[str, Any] = {"you": {"at": start, "hands": hands, "holding": {}}, "places": places}
    goal, conditions = _ending(home, task)
    return Plot(
        introduction=_introduction(rng, state, home),
        state=state,
        goal=goal,
        conditions=tuple(conditions),
        values={"place": home.names, "container": home.containers, "item": home.items},
        absent={
            "place": tuple(name for name in (*_WORDS["open"], *_WORDS["shut"]) if name not in names)[:8],
            "container": tuple(name for name in _WORDS["shut"] if name not in names)[:4],
            "item": tuple(item.split()[-1] for item in home.items if " " in item),
        },
        useful=tuple(_useful(home, task, places)),
    )


def _items(rng: Random, *, food_first: bool) -> tuple[str, ...]:
    foods = rng.sample(_WORDS["foods"], 2)
    articles = [
        " ".join(pair) for pair in zip(rng.sample(_WORDS["looks"], 4), rng.sample(_WORDS["articles"], 4), strict=True)
    ]
    first, rest = (foods[:2], articles) if food_first else (articles[:2], [*articles[2:], *foods])
    return (*first, *shuffled(rng, rest))


def _furnished(rng: Random, home: _Home, task: _Task) -> dict[str, Any]:
    places: dict[str, Any] = {
        name: {
            "open": name not in home.containers or (chance(rng, 0.3) and (name, task.kind) != (task.source, "carry")),
            "water": name == home.water,
            "heat": name == home.heat,
            "things": {},
        }
        for name in home.names
    }
    for item in home.items:
        moved = item in task.moved
        dirty = (moved and task.kind == "wash") or chance(rng, 0.4)
        where = task.source if moved else rng.choice(home.names)
        places[where]["things"][item] = {"dirty": dirty, "food": item in _WORDS["foods"], "warm": False}
    return places


def _ending(home: _Home, task: _Task) -> tuple[str, list[Condition]]:
    things = f"state.places[{quoted(task.target)}].things"
    conditions = [
        Condition(cel=f"{quoted(item)} in {things}", sentence=f"The {item} is at the {task.target}.")
        for item in task.moved
    ]
    item = task.moved[0]
    goal = f"put {listed([f'the {name}' for name in task.moved])} at the {task.target}"
    if task.kind == "wash":
        goal = f"wash the {item} at the {home.water} and put it at the {task.target}"
        cel = in_either(item, "state.you.holding", things, ".dirty == false")
        conditions.append(Condition(cel=cel, sentence=f"The {item} is clean."))
    elif task.kind == "warm":
        goal = f"warm the {item} at the {home.heat} and put it at the {task.target}"
        cel = in_either(item, "state.you.holding", things, ".warm")
        conditions.append(Condition(cel=cel, sentence=f"The {item} is warm."))
    if task.closing:
        goal += f", leaving the {task.target} closed"
        cel = f"!state.places[{quoted(task.target)}].open"
        conditions.append(Condition(cel=cel, sentence=f"The {task.target} is closed."))
    return goal, conditions


def _useful(home: _Home, task: _Task, places: State) -> Iterator[Act]:
    for name in (task.source, task.target):
        yield act("go", place=name)
        if not places[name]["open"]:
            yield act("open", container=name)
    for item in task.moved:
        yield act("take", item=item, place=task.source)
        yield act("put", item=item, place=task.target)
    if task.kind in {"wash", "warm"}:
        yield act("go", place=home.water if task.kind == "wash" else home.heat)
        yield act(task.kind, item=task.moved[0])
    if task.closing:
        yield act("close", container=task.target)


def _introduction(rng: Random, state: State, home: _Home) -> str:
    where = [f"the {item} at the {name}" for name, spot in state["places"].items() for item in spot["things"]]
    you = state["you"]
    hands = "one thing at a time" if you["hands"] == 1 else "two things at once"
    return (
        f"You look after {rng.choice(_WORDS['homes'])}. You stand at the {you['at']} and can carry {hands}. "
        f"There is water at the {home.water} and heat at the {home.heat}. You remember {listed(where)}."
    )


HOUSEHOLD = Family(name=LAWS.name, verbs=LAWS.verbs, draw=draw, see=see, refusals=LAWS.refusals)
