"""What is visible: computed from the state's content alone, usable in conditions and texts, and planned for."""

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from world_scripts import action_of, script_of

from refinesynth.rehearsal.search_plan import hidden_names
from refinesynth.trajectory import ActionSpec, Effect, EffectOp, MistakeKind, Requirement, Sight
from refinesynth.world import RulebookError, World, plan
from refinesynth.world.expression import MAX_WORK, WorkLimit, WorkLimitExceeded
from refinesynth.world.visibility import MAX_BINDINGS, MAX_VISIBLE

ROOMS, THINGS = ("kitchen", "hall"), ("milk", "egg", "umbrella")
HERE = Sight(path="/rooms/{state:/you/at}/things")
INSIDE = Sight(
    path="/boxes/{each}/things", each="/boxes", when="state.boxes[each].at == state.you.at && state.boxes[each].open"
)
BOXES = Sight(path="/rooms/{state:/you/at}/boxes")
HANDS = Sight(path="/you/holding")


def _seen(name: str) -> Requirement:
    hint = f"There is no {{{name}}} here; there is {{visible}}."
    return Requirement(condition=f"{name} in visible", kind=MistakeKind.PLACE, hint=hint)


def _actions() -> tuple[ActionSpec, ...]:
    def flag(box: bool) -> Effect:
        return Effect(op=EffectOp.SET, path="/boxes/{box}/open", value=box)

    go = Effect(op=EffectOp.SET, path="/you/at", value="{room}")
    take = Effect(op=EffectOp.MOVE, from_path="/boxes/{box}/things", path="/you/holding", value="{thing}")
    return (
        action_of("go to {room}", go, reveals="You are in the {room}.", room=ROOMS),
        action_of(
            "open {box}",
            flag(box=True),
            needs=(_seen("box"),),
            reveals="It holds {state:/boxes/{box}/things}.",
            box=("fridge", "stand"),
        ),
        action_of("shut {box}", flag(box=False), needs=(_seen("box"),), box=("fridge", "stand")),
        action_of(
            "take {thing} from {box}", take, needs=(_seen("thing"), _seen("box")), thing=THINGS, box=("fridge", "stand")
        ),
    )


def _state() -> dict[str, Any]:
    return {
        "you": {"at": "hall", "holding": []},
        "rooms": {
            "kitchen": {"things": ["table"], "boxes": ["fridge"]},
            "hall": {"things": ["mat"], "boxes": ["stand"]},
        },
        "boxes": {
            "fridge": {"at": "kitchen", "open": False, "things": ["milk", "egg"]},
            "stand": {"at": "hall", "open": True, "things": ["umbrella"]},
        },
    }


@pytest.fixture(scope="module")
def flat() -> World:
    """Two rooms with a box each; what is in a shut box, or in the other room, is hidden."""
    goal = ("'milk' in state.you.holding", "'umbrella' in state.you.holding", "!state.boxes.fridge.open")
    return World(script_of(*_actions(), goal=goal, sights=(HERE, BOXES, INSIDE, HANDS), environment=_state()))


def test_what_is_shut_or_elsewhere_is_hidden(flat: World) -> None:
    state: JsonValue = _state()
    assert flat.visible(state) == ("mat", "stand", "umbrella")
    in_kitchen = flat.step(state, "go to kitchen")
    assert in_kitchen.visible == in_kitchen.appeared == ("table", "fridge")
    opened = flat.step(in_kitchen.state, "open fridge")
    assert opened.appeared == ("milk", "egg")
    assert flat.step(opened.state, "shut fridge").visible == ("table", "fridge")


def test_what_appears_and_is_not_said_is_added_to_the_observation(flat: World) -> None:
    there = flat.step(_state(), "go to kitchen")
    assert there.text == "You are in the kitchen. In sight: table and fridge."
    # Both are in the words already.
    assert flat.step(there.state, "open fridge").text == "It holds milk and egg."
    assert flat.step(there.state, "go to hall").text == "You are in the hall. In sight: mat, stand and umbrella."


def test_hidden_things_are_planned_for(flat: World) -> None:
    found = plan(flat, _state())
    assert found is not None
    state: JsonValue = _state()
    for action in found:
        ruling = flat.step(state, action)
        assert ruling.kind is None
        state = ruling.state
    assert flat.done(state)
    # Without having to try everything: by reasoning backwards alone, with few states.
    assert found == plan(flat, _state(), most=12)
    assert len(found) == 5


def test_without_sights_everything_with_a_name_is_visible() -> None:
    world = World(script_of(*_actions(), environment=_state()))
    assert set(world.visible(_state())) == world.names == {*ROOMS, *THINGS, "fridge", "stand"}
    assert world.step(_state(), "take umbrella from stand").kind is None
    assert world.step(_state(), "go to kitchen").text == "You are in the kitchen."


def test_a_state_changed_in_place_is_looked_at_anew(flat: World) -> None:
    state = _state()
    assert "milk" not in flat.visible(state)
    state["you"]["at"] = "kitchen"
    state["boxes"]["fridge"]["open"] = True
    assert "milk" in flat.visible(state)


def test_the_condition_of_an_effect_sees_what_the_effects_before_it_left() -> None:
    go = Effect(op=EffectOp.SET, path="/you/at", value="kitchen")
    note = Effect(op=EffectOp.SET, path="/you/noticed", value=True, when="'table' in visible && !('mat' in visible)")
    world = World(script_of(action_of("rush", go, note), sights=(HERE,)))
    state = world.step(_state(), "rush").state
    assert isinstance(state, dict)
    assert state["you"] == {"at": "kitchen", "holding": [], "noticed": True}


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["a", "b", "", " ", "a/b", "~"])
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "x", "0"]), inner, max_size=4)
    ),
)
paths = st.lists(st.sampled_from(["a", "b", "0", "{state:/a}", "{state:/b/a}"]), min_size=1, max_size=3).map(
    lambda steps: "".join(f"/{step}" for step in steps)
)
whens = st.sampled_from(
    ["true", "state.a", "has(state.b)", "size(state) > 1", "state.a.exists(k, k == 'a')", "1 / 0 == 1"]
)


@st.composite
def sights(draw: st.DrawFn) -> Sight:
    path, each, when = draw(paths), draw(st.none() | paths), draw(st.none() | whens)
    return Sight(path=path + "/{each}" * draw(st.booleans()) if each else path, each=each, when=when)


@given(
    st.lists(sights(), min_size=1, max_size=4), json_values | st.dictionaries(st.sampled_from(["a", "b"]), json_values)
)
def test_any_sights_and_state_show_names_that_are_in_the_state_each_once(seen: list[Sight], state: JsonValue) -> None:
    world = World(script_of(sights=seen))
    before = copy.deepcopy(state)
    names = world.visible(state)
    assert repr(state) == repr(before)
    assert len(set(names)) == len(names) <= MAX_VISIBLE
    written = orjson.dumps(state)
    assert all(orjson.dumps(name)[1:-1] in written for name in names)
    # In whatever order objects name their keys, and in a world that remembers nothing.
    again = orjson.loads(orjson.dumps(state, option=orjson.OPT_SORT_KEYS))
    assert World(world.script).visible(again) == names


@pytest.mark.parametrize("state", [{"a": "\ud800"}, {"a": {1, 2}}, {"a": "x" * 300_000}, None, 7])
def test_nothing_is_visible_in_what_is_no_state(state: JsonValue) -> None:
    assert World(script_of(sights=(Sight(path="/a"),))).visible(state) == ()


def test_there_is_a_bound_on_readings_and_names_and_it_is_told_of() -> None:
    many = Sight(path="/things/{each}", each="/things")
    state: JsonValue = {"things": {f"thing {number:04}": f"name {number}" for number in range(2_000)}}
    world = World(script_of(sights=(many,)))
    assert len(world.visible(state)) == MAX_BINDINGS
    assert "read more than" in (world.visibility.names_in(state).problem or "")
    all_keys = World(script_of(sights=(Sight(path="/things"),)))
    assert len(all_keys.visible(state)) == MAX_VISIBLE
    assert "at once" in (all_keys.visibility.names_in(state).problem or "")


def test_a_search_pays_once_for_costly_sights() -> None:
    costly = "state.l.all(a, state.l.all(b, state.l.all(c, c >= 0)))"
    world = World(
        script_of(sights=(Sight(path="/names", when=costly),) * 3, environment={"l": [0] * 28, "names": ["a"]})
    )
    state: JsonValue = world.script.environment
    remaining: list[float] = []
    for _ in range(2):  # with a cold and a warm cache
        with WorkLimit().applied() as limit:
            remaining += [(world.visible(state), limit.remaining)[1] for _ in range(2)]
    assert remaining[:2] == remaining[2:]
    assert MAX_WORK - remaining[0] > 10_000_000
    assert remaining[0] - remaining[1] < 10_000
    with WorkLimit(10_000_000).applied(), pytest.raises(WorkLimitExceeded):
        world.visible(state)


@pytest.mark.parametrize(
    ("sight", "expected"),
    [
        (Sight(path="rooms"), "sight 1: 'rooms' is no path, which begins with a slash, and no name that"),
        (Sight(path="{each}"), "sight 1: '{each}' uses {each}; say in `each`"),
        (Sight(path="/rooms/{each}"), "sight 1: '/rooms/{each}' uses {each}; say in `each`"),
        (Sight(path="/a", when="each == 'x'"), "'each' is not a variable here"),
        (Sight(path="/a", when="'x' in visible"), "'visible' is not a variable here"),
        (Sight(path="/a/{visible}"), "{visible}, which is no parameter"),
    ],
)
def test_a_sight_that_cannot_be_read_is_refused(sight: Sight, expected: str) -> None:
    with pytest.raises(RulebookError) as caught:
        World(script_of(sights=(sight,)))
    assert expected in str(caught.value)


def _garden() -> World:
    """A leaf is in sight once its plant has grown, a rake while it is day: no list holds them."""
    grow = Effect(op=EffectOp.SET, path="/plants/{plant}/grown", value=True)
    take = Effect(op=EffectOp.SET, path="/you", value="{thing}")
    night = Effect(op=EffectOp.SET, path="/day", value={"cel": "!state.day"})
    return World(
        script_of(
            action_of("water {plant}", grow, needs=("state.day",), plant=("fern", "moss")),
            action_of("wait", night),
            action_of("take {thing}", take, needs=(_seen("thing"),), thing=("rake", "fern")),
            goal=("state.you == 'fern'",),
            sights=(
                Sight(path="rake", when="state.day"),
                Sight(path="{each}", each="/plants", when="state.plants[each].grown"),
            ),
            environment={
                "day": False,
                "you": "nothing",
                "plants": {"fern": {"grown": False}, "moss": {"grown": False}},
            },
        )
    )


def test_a_name_is_in_sight_under_a_condition_though_nothing_holds_it() -> None:
    world = _garden()
    state = world.script.environment
    assert world.visible(state) == ()
    assert world.step(state, "take rake").kind is MistakeKind.PLACE
    day = world.step(state, "wait")
    assert (day.visible, day.text) == (("rake",), "Done. In sight: rake.")
    assert world.visible(world.step(day.state, "water moss").state) == ("rake", "moss")
    assert plan(world, state) == ("wait", "water fern", "take fern")
    assert hidden_names(world).places_of == {}


def test_a_fixed_name_is_in_sight_where_one_of_many_things_shows_it() -> None:
    switch = Effect(op=EffectOp.SET, path="/rooms/{room}/light", value=True)
    take = Effect(op=EffectOp.SET, path="/you", value="{thing}")
    world = World(
        script_of(
            action_of("light {room}", switch, room=("hall", "attic")),
            action_of("take {thing}", take, needs=(_seen("thing"),), thing=("lamp", "rope")),
            goal=("state.you == 'lamp'",),
            sights=(Sight(path="lamp", each="/rooms", when="state.rooms[each].light"),),
            environment={"you": "nothing", "rooms": {"hall": {"light": False}, "attic": {"light": False}}},
        )
    )
    (sight,), state = world.visibility.sights, world.script.environment
    lit = world.step(state, "light attic").state
    assert (world.visible(state), world.visible(lit)) == ((), ("lamp",))
    assert sight.holds(lit, {"each": "attic"}, "lamp")
    assert not sight.holds(lit, {"each": "attic"}, "attic")
    assert len(plan(world, state) or ()) == 2


@pytest.mark.parametrize("place", ["path", "value"])
def test_what_is_visible_is_no_place_and_no_value_to_set(place: str) -> None:
    effect = Effect(op=EffectOp.SET, path="/a", value=1).model_copy(update={place: "/{visible}"})
    with pytest.raises(RulebookError, match="no parameter of the action"):
        World(script_of(action_of("do", effect)))
