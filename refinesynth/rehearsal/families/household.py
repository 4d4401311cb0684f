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
    Verb,
    act,
    chance,
    in_either,
    listed,
    logic,
    moves,
    place,
    quoted,
    sets,
    shuffled,
)

_OPEN = ("kitchen counter", "dining table", "coffee table", "bedside table", "windowsill", "bookshelf", "sideboard",
         "writing desk", "ironing board", "piano stool", "mantelpiece", "porch bench")  # fmt: skip
_SHUT = ("fridge", "pantry", "wardrobe", "linen chest", "toolbox", "medicine cabinet", "desk drawer", "cupboard",
         "breadbox", "glass cabinet")  # fmt: skip
_WASHING = ("sink", "wash basin", "laundry tub")
_WARMING = ("stove", "microwave", "oven", "camping burner")
_LOOKS = ("blue", "red", "striped", "old", "small", "green", "chipped", "wooden", "yellow", "heavy")
_ARTICLES = ("mug", "plate", "towel", "vase", "jar", "bowl", "teapot", "scarf", "ladle", "tray", "lantern", "kettle")
_FOODS = ("soup", "potato", "apple pie", "bread roll", "egg", "milk", "lentil stew", "porridge")
_HOMES = ("a two-room flat above a bakery", "a farmhouse kitchen and its hall", "a narrow terraced house",
          "a student's shared flat", "a houseboat on the canal", "a grandmother's cottage", "a holiday cabin",
          "a top-floor studio")  # fmt: skip

_HELD = "item in state.you.holding"

VERBS = (
    Verb(
        key="go",
        wordings=("go to {place}", "walk to {place}", "head over to {place}", "move to {place}"),
        about=("Go to another spot in the home", "Walk to a piece of furniture or an appliance"),
        doing="go to the {place}",
        done=("You are now at the {place}.", "You walk over to the {place}.", "You go to the {place}."),
        requires=(logic("state.you.at != place", "The {place} is right here already; there is no way to go."),),
        effects=(sets("/you/at", "{place}"),),
    ),
    Verb(
        key="take",
        wordings=("take {item} from {place}", "pick up {item} at {place}", "grab {item} off {place}",
                  "from {place} collect {item}"),
        about=("Take something that is where you are", "Pick something up with a free hand"),
        doing="take the {item} from the {place}",
        done=("You take the {item} from the {place}.", "The {item} is in your hand now.",
              "You pick up the {item} that was at the {place}."),
        requires=(
            logic(f"!({_HELD})", "The {item} is in hand already, so it cannot be taken again."),
            place("state.you.at == place", "The {place} is out of reach from here."),
            logic("state.places[place].open", "The {place} is shut, so nothing can be taken out of it."),
            logic("item in state.places[place].things", "There is no {item} at the {place}."),
            logic("size(state.you.holding) < state.you.hands", "There is no free hand to take the {item} with."),
        ),
        effects=(moves("/places/{place}/things/{item}", "/you/holding/{item}"),),
    ),
    Verb(
        key="put",
        wordings=("put {item} in {place}", "place {item} into {place}", "leave {item} at {place}",
                  "set {item} down at {place}"),
        about=("Put down something you hold", "Leave a held thing where you are"),
        doing="put the {item} at the {place}",
        done=("You put the {item} at the {place}.", "The {item} is at the {place} now.",
              "You leave the {item} at the {place}."),
        requires=(
            logic(_HELD, "The {item} is not in hand, so it cannot be put anywhere."),
            place("state.you.at == place", "The {place} is out of reach from here."),
            logic("state.places[place].open", "The {place} is shut, so nothing can be put into it."),
        ),
        effects=(moves("/you/holding/{item}", "/places/{place}/things/{item}"),),
    ),
    Verb(
        key="open",
        wordings=("open {container}", "unlatch {container}", "pull open {container}"),
        about=("Open something that is shut",),
        doing="open the {container}",
        done=("The {container} is open now.", "You open the {container}.", "With a creak the {container} opens."),
        requires=(
            place("state.you.at == container", "The {container} is out of reach from here."),
            logic("!state.places[container].open", "The {container} is open already."),
        ),
        effects=(sets("/places/{container}/open", True),),
    ),
    Verb(
        key="close",
        wordings=("close {container}", "shut {container}", "push {container} shut"),
        about=("Close something that is open",),
        doing="close the {container}",
        done=("The {container} is closed now.", "You close the {container}.", "The {container} falls shut."),
        requires=(
            place("state.you.at == container", "The {container} is out of reach from here."),
            logic("state.places[container].open", "The {container} is closed already."),
        ),
        effects=(sets("/places/{container}/open", False),),
    ),
    Verb(
        key="wash",
        wordings=("wash {item}", "clean {item}", "rinse {item}", "scrub {item}"),
        about=("Wash something you hold, where there is running water",),
        doing="wash the {item}",
        done=("You wash the {item} until it is clean.", "Water runs over the {item}; it is clean now.",
              "After a good scrub the {item} is clean."),
        requires=(
            logic(_HELD, "The {item} is not in hand, so it cannot be washed."),
            place("state.places[state.you.at].water", "There is no running water here to wash the {item} with."),
            logic("state.you.holding[item].dirty", "The {item} is clean already."),
        ),
        effects=(sets("/you/holding/{item}/dirty", False),),
    ),
    Verb(
        key="warm",
        wordings=("warm up {item}", "heat {item}", "warm {item}", "reheat {item}"),
        about=("Warm food you hold, where there is a source of heat",),
        doing="warm the {item}",
        done=("The {item} is warm now.", "You warm the {item} through.", "A minute later the {item} is steaming."),
        requires=(
            logic(_HELD, "The {item} is not in hand, so it cannot be warmed."),
            place("state.places[state.you.at].heat", "Nothing here gives heat to warm the {item} with."),
            logic("state.you.holding[item].food", "The {item} is no food; warming it makes no sense."),
            logic("!state.you.holding[item].warm", "The {item} is warm already."),
        ),
        effects=(sets("/you/holding/{item}/warm", True),),
    ),
    Verb(
        key="look",
        wordings=("look around", "look", "examine surroundings"),
        about=("See what is where you are",),
        doing="look around",
        done=("You look around.", "You take a look around."),
    ),
)  # fmt: skip


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
    surfaces, containers = rng.sample(_OPEN, 3), rng.sample(_SHUT, rng.choice((2, 3)))
    water, heat = rng.choice(_WASHING), rng.choice(_WARMING)
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
            "place": tuple(name for name in (*_OPEN, *_SHUT) if name not in names)[:8],
            "container": tuple(name for name in _SHUT if name not in names)[:4],
            "item": tuple(item.split()[-1] for item in home.items if " " in item),
        },
        useful=tuple(_useful(home, task, places)),
    )


def _items(rng: Random, *, food_first: bool) -> tuple[str, ...]:
    foods = rng.sample(_FOODS, 2)
    articles = [" ".join(pair) for pair in zip(rng.sample(_LOOKS, 4), rng.sample(_ARTICLES, 4), strict=True)]
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
        places[where]["things"][item] = {"dirty": dirty, "food": item in _FOODS, "warm": False}
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
        f"You look after {rng.choice(_HOMES)}. You stand at the {you['at']} and can carry {hands}. "
        f"There is water at the {home.water} and heat at the {home.heat}. You remember {listed(where)}."
    )


HOUSEHOLD = Family(
    name="household",
    verbs=VERBS,
    draw=draw,
    see=see,
    refusals=("Nothing happens.", "That does not work.", "You cannot do that.", "No effect."),
)
