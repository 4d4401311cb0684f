"""Small hand-written worlds, each in another style of state."""

import re
from collections.abc import Mapping, Sequence

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


def _move(value: str, from_path: str, path: str) -> Effect:
    return Effect(op=EffectOp.MOVE, from_path=from_path, path=path, value=value)


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


def _rooms_actions() -> tuple[ActionSpec, ...]:
    places, items = ("hall", "kitchen", "attic", "garden", "cellar"), ("cup", "plate", "apple", "pen", "key")
    go = _action(
        "walk to {room}",
        [_need("state.at != room"), _need("!state.rooms[room].locked", "The {room} is locked.")],
        [setting("/at", "{room}")],
        "Here you see {state:/rooms/{state:/at}/things}.",
        room=places,
    )
    take = _action(
        "grab {thing}",
        [_need("thing in state.rooms[state.at].things", "There is none."), _need("size(state.bag) < 2", "Too heavy.")],
        [_move("{thing}", "/rooms/{state:/at}/things", "/bag")],
        thing=items,
    )
    drop = _action(
        "drop {thing}",
        [_need("thing in state.bag")],
        [_move("{thing}", "/bag", "/rooms/{state:/at}/things")],
        thing=items,
    )
    unlock = _action(
        "unlock {room}",
        [_need("'key' in state.bag && state.rooms[room].locked")],
        [setting("/rooms/{room}/locked", value=False)],
        room=places,
    )
    return (go, take, drop, unlock)


def _rooms_state() -> JsonValue:
    things: Mapping[str, list[JsonValue]] = {
        "hall": ["plate"],
        "kitchen": ["cup", "apple"],
        "attic": ["key"],
        "garden": [],
        "cellar": ["pen"],
    }
    rooms: dict[str, JsonValue] = {room: {"things": each, "locked": room == "cellar"} for room, each in things.items()}
    return {"at": "hall", "bag": [], "rooms": rooms}


def _blocks_actions() -> tuple[ActionSpec, ...]:
    blocks = ("a", "b", "c", "d")
    free = "state.clear[x] && state.hand == null"

    def lift(x: str) -> list[Effect]:
        return [setting("/hand", x), setting(f"/on/{x}", "hand"), setting(f"/clear/{x}", value=False)]

    def lay(x: str, on: str) -> list[Effect]:
        return [setting("/hand", None), setting(f"/on/{x}", on), setting(f"/clear/{x}", value=True)]

    pick = _action("pick up {x}", [_need("state.on[x] == 'table'"), _need(free)], lift("{x}"), x=blocks)
    down = _action("put down {x}", [_need("state.hand == x")], lay("{x}", "table"), x=blocks)
    stack = _action(
        "stack {x} on {y}",
        [_need("state.hand == x && state.clear[y]")],
        [*lay("{x}", "{y}"), setting("/clear/{y}", value=False)],
        x=blocks,
        y=blocks,
    )
    unstack = _action(
        "unstack {x} from {y}",
        [_need("state.on[x] == y"), _need(free)],
        [*lift("{x}"), setting("/clear/{y}", value=True)],
        x=blocks,
        y=blocks,
    )
    return (pick, down, stack, unstack)


def _blocks_state() -> JsonValue:
    return {
        "hand": None,
        "on": {"a": "b", "b": "table", "c": "table", "d": "c"},
        "clear": {"a": True, "b": False, "c": False, "d": True},
    }


def _world(actions: tuple[ActionSpec, ...], *goal: str) -> World:
    return World(script_of(*actions, goal=goal))


@pytest.fixture(scope="session")
def house() -> tuple[World, JsonValue]:
    """Objects with a place each; eight places, ten items; the cup is to be clean and in the closed cabinet."""
    return _world(_house_actions(), "state.items.cup.clean", "state.items.cup.place == 'cabinet'"), _house_state()


@pytest.fixture(scope="session")
def rooms() -> tuple[World, JsonValue]:
    """Lists of things in rooms; where an action writes depends on where the player is; one room is locked."""
    goal = ("'cup' in state.rooms.cellar.things", "'pen' in state.rooms.garden.things")
    return _world(_rooms_actions(), *goal), _rooms_state()


@pytest.fixture(scope="session")
def blocks() -> tuple[World, JsonValue]:
    """The blocks world, with an order in which a greedy player goes wrong."""
    return _world(_blocks_actions(), "state.on.b == 'a' && state.on.c == 'b'", "state.on.d == 'c'"), _blocks_state()
