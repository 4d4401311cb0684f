"""A small hand-written world."""

import re
from collections.abc import Sequence

import pytest
from pydantic import JsonValue
from world_scripts import script_of, setting

from refinesynth.trajectory import ActionSpec, Effect, EffectOp, MistakeKind, Requirement
from refinesynth.world import World

PLACE, PARAMETER = MistakeKind.PLACE, MistakeKind.PARAMETER
PLACES = ("kitchen", "sink", "fridge", "cabinet", "sofa", "desk", "shelf", "hall")
ITEMS = ("cup", "plate", "apple", "book", "pen", "knife", "towel", "bowl", "key", "lamp")


def _action(
    name: str,
    requires: Sequence[Requirement],
    effects: Sequence[Effect],
    observation: str = "Done.",
    **parameters: Sequence[str],
) -> ActionSpec:
    pattern = "(?i)" + re.sub(r"\{[^}]*\}", "(.+)", name)
    return ActionSpec(
        name=name,
        pattern=pattern,
        parameters={key: tuple(each) for key, each in parameters.items()},
        requires=tuple(requires),
        effects=tuple(effects),
        reveals=observation,
    )


def _need(condition: str, hint: str = "Nothing happens.", kind: MistakeKind = MistakeKind.LOGIC) -> Requirement:
    return Requirement(condition=condition, kind=kind, hint=hint)


def _house_actions() -> tuple[ActionSpec, ...]:
    here = _need("state.player.place == place", "You are at the {state:/player/place}, not at the {place}.", PLACE)
    is_open = _need("state.places[place].open", "The {place} is closed.")
    held = _need("item in state.player.holding", "You do not hold the {item}; you hold {state:/player/holding}.")
    go = _action(
        "go to {place}",
        [_need("state.player.place != place", "You are there already.")],
        [setting("/player/place", "{place}")],
        "You are at the {place}.",
        place=PLACES,
    )
    open_it = _action(
        "open {place}",
        [here, _need("!state.places[place].open", "The {place} is open already.")],
        [setting("/places/{place}/open", value=True)],
        "The {place} is open.",
        place=PLACES,
    )
    take = _action(
        "take {item} from {place}",
        [
            here,
            _need("state.items[item].place == place", "There is no {item} at the {place}."),
            is_open,
            _need("state.player.holding.size() < 1", "Your hands hold {state:/player/holding}."),
        ],
        [setting("/items/{item}/place", "player"), Effect(op=EffectOp.ADD, path="/player/holding", value="{item}")],
        "You hold {state:/player/holding}.",
        item=ITEMS,
        place=PLACES,
    )
    put = _action(
        "put {item} in {place}",
        [held, here, is_open],
        [setting("/items/{item}/place", "{place}"), Effect(op=EffectOp.REMOVE, path="/player/holding", value="{item}")],
        "You hold {state:/player/holding}.",
        item=ITEMS,
        place=PLACES,
    )
    clean = _action(
        "clean {item}",
        [held, _need("state.player.place == 'sink'", "There is no water here.", PLACE)],
        [setting("/items/{item}/clean", value=True)],
        "The {item} is clean.",
        item=ITEMS,
    )
    return (go, open_it, take, put, clean)


def _house_state() -> JsonValue:
    closed = {"fridge", "cabinet"}
    return {
        "player": {"place": "sofa", "holding": []},
        "places": {place: {"open": place not in closed} for place in PLACES},
        "items": {item: {"place": PLACES[3 * at % len(PLACES)], "clean": False} for at, item in enumerate(ITEMS)},
    }


@pytest.fixture(scope="session")
def house() -> tuple[World, JsonValue]:
    """Objects with a place each; eight places, ten items; the cup is to be clean and in the closed cabinet."""
    goal = ("state.items.cup.clean", "state.items.cup.place == 'cabinet'")
    return World(script_of(*_house_actions(), goal=goal)), _house_state()
