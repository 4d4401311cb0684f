"""What comes of an action: laws over any rulebook, state and text, and examples in the house."""

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue, ValidationError
from world_scripts import action_of, script_of

from refinesynth.errors import InputError
from refinesynth.trajectory import ActionSpec, Effect, EffectOp, MistakeKind, Requirement, Rulebook, Script
from refinesynth.trajectory.rulebook import MAX_ACTIONS
from refinesynth.world import RulebookError, Ruling, World, plan
from refinesynth.world.expression import MAX_STATE_BYTES

scalars: st.SearchStrategy[JsonValue] = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
)
words = st.sampled_from(["a", "b", "c", "x", "0", "1"])
json_values: st.SearchStrategy[JsonValue] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words | st.text(max_size=3), inner, max_size=4)
)
states = json_values | st.dictionaries(words, json_values, max_size=5)
paths = st.lists(st.sampled_from(["a", "b", "x", "0", "{p}", "{state:/a}", "~0", ""]), min_size=1, max_size=3).map(
    lambda steps: "".join(f"/{step}" for step in steps)
)
conditions = st.sampled_from(
    [
        "true",
        "state.a == p",
        "p in state.b",
        "state[p] > 1",
        "has(state.x) && !state.x",
        "state.b.exists(k, state.b[k] == p)",
        "state.a.filter(k, k != p).size() < 3",
        "size(state) > 1",
        "1 / state.x == 1",
        "state.a + state.a > 0",
        "'no condition'",
    ]
)
to_fill = st.sampled_from(["{p}", "{state:/a}", "{p} and {state:/b/{p}}", "{{}}", "plain"])
values: st.SearchStrategy[JsonValue] = st.none() | st.booleans() | st.integers(-9, 9) | st.just(0.5) | to_fill
act = ActionSpec(name="do {p}", pattern="(?i)do (.+)")
requirements = st.builds(Requirement, condition=conditions, kind=st.sampled_from(MistakeKind), hint=st.just("No {p}."))
goals = st.sampled_from(["true", "size(state) > 2", "state.a == 1", "has(state.b)", "'a' in state.b"])


@st.composite
def effects(draw: st.DrawFn) -> Effect:
    op = draw(st.sampled_from(EffectOp))
    value = draw(values | st.lists(values, max_size=2) | st.dictionaries(words, values, max_size=2))
    return Effect(
        op=op,
        path=draw(paths),
        value=0 if op is EffectOp.ADD and value is None else value,
        from_path=draw(paths) if op is EffectOp.MOVE else None,
        when=draw(st.none() | conditions),
    )


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    laws = {
        "requires": tuple(draw(st.lists(requirements, max_size=3))),
        "effects": tuple(draw(st.lists(effects(), max_size=4))),
        "reveals": "There is {state:/a}, {p}.",
    }
    goal = draw(st.lists(goals, min_size=1, max_size=3))
    return script_of(act.model_copy(update=laws), goal=goal)


texts = (
    words.map("do {}".format)
    | st.text(max_size=12).map("DO {} ".format)
    | st.text(alphabet=st.characters(), max_size=9)
)


@given(scripts(), states, texts)
def test_any_text_and_state_give_a_ruling_and_leave_the_given_state_as_it_was(
    script: Script, state: JsonValue, text: str
) -> None:
    before, world = copy.deepcopy(state), World(script)
    ruling = world.step(state, text)
    assert repr(state) == repr(before)
    assert orjson.loads(orjson.dumps(ruling.state)) == ruling.state, "a new state is JSON again"
    assert 0.0 <= ruling.progress == world.progress(ruling.state) <= 1.0
    assert (ruling.progress == 1.0) == ruling.done == world.done(ruling.state)
    assert isinstance(ruling.text, str)
    assert ruling.text
    assert (ruling.action is None) <= (ruling.kind is MistakeKind.PARAMETER)
    assert ruling.kind is None or ruling.state is state, "a mistake changes nothing"


@given(scripts(), states, texts)
def test_an_equal_state_in_another_world_object_gets_an_equal_ruling(
    script: Script, state: JsonValue, text: str
) -> None:
    world = World(script)
    ruling = world.step(state, text)
    # A remembered answer, a fresh world, and a state whose keys come in another order.
    assert _said(world.step(state, text)) == _said(ruling)
    reordered = orjson.loads(orjson.dumps(state, option=orjson.OPT_SORT_KEYS))
    assert _said(World(script).step(reordered, text)) == _said(ruling)


def _said(ruling: Ruling) -> tuple[object, ...]:
    state = orjson.dumps(ruling.state, option=orjson.OPT_SORT_KEYS)
    return (state, ruling.kind, ruling.action, ruling.values, ruling.done, ruling.progress)


def _deep(levels: int) -> JsonValue:
    state: JsonValue = 1
    for _ in range(levels):
        state = [state]
    return state


class Odd(dict[str, JsonValue]):
    pass


@pytest.mark.parametrize(
    "state",
    [
        {"a": _deep(5_000)},
        {"a": 2**80},
        {"a": "\ud800"},
        {1: 2},
        {"a": {1, 2}},
        {"a": object()},
        Odd(a=1),
        {"a": "x" * MAX_STATE_BYTES},
        {"a": [float("nan")]},
        {"a": None, "b": -float("inf")},
        "\udfff",
    ],
    ids=["deep", "huge", "surrogate", "key", "set", "object", "subclass", "large", "nan", "infinity", "text"],
)
def test_a_state_that_is_no_usable_json_is_a_ruling_too(house: tuple[World, JsonValue], state: JsonValue) -> None:
    ruling = house[0].step(state, "go to sofa")
    assert ruling.kind is MistakeKind.LOGIC
    assert ruling.state is state
    assert ruling.problem is not None
    assert not ruling.done


@pytest.mark.parametrize(
    "text", ["", " ", "\ud800", "go to", "x" * 100_000, "go to " + "a" * 50_000, "(((", "go to \x00"]
)
def test_a_text_that_is_no_action_is_a_parameter_mistake(house: tuple[World, JsonValue], text: str) -> None:
    world, state = house
    ruling = world.step(state, text)
    assert ruling.kind is MistakeKind.PARAMETER
    assert ruling.action is None
    assert ruling.state is state
    assert ruling.text.encode()


def _world(*effects: Effect, requires: tuple[Requirement, ...] = (), goal: str = "true", name: str = "do {p}") -> World:
    spec = ActionSpec(name=name, pattern="do (.+)", requires=requires, effects=effects)
    return World(script_of(spec, goal=(goal,)))


def test_the_first_unmet_requirement_decides() -> None:
    world = _world(
        requires=(
            Requirement(condition="p == 'x'", kind=MistakeKind.PARAMETER, hint="{p}, not x"),
            Requirement(condition="state.n > 1", kind=MistakeKind.PLACE, hint="{state:/n} is too few"),
        )
    )
    assert world.step({"n": 1}, "do y").kind is MistakeKind.PARAMETER
    ruling = world.step({"n": 1}, "do x")
    assert (ruling.kind, ruling.text) == (MistakeKind.PLACE, "1 is too few")


@pytest.mark.parametrize(
    "condition", ["state.missing", "1 / state.n == 1", "state.n", "state.n + p == 1", "state.n < 'a'", "p[0] == 'x'"]
)
def test_a_condition_without_an_answer_is_an_unmet_logic_requirement(condition: str) -> None:
    world = _world(requires=(Requirement(condition=condition, kind=MistakeKind.PLACE, hint="No."),))
    ruling = world.step({"n": 0}, "do x")
    assert (ruling.kind, ruling.text) == (MistakeKind.LOGIC, "No.")
    assert ruling.problem is not None
    assert ruling.problem.startswith("requirement 1 of 'do {p}': ")


def test_effects_apply_all_or_none() -> None:
    world = _world(Effect(op=EffectOp.SET, path="/a", value=1), Effect(op=EffectOp.REMOVE, path="/b"))
    state: JsonValue = {"a": 0}
    ruling = world.step(state, "do x")
    assert ruling.kind is MistakeKind.LOGIC
    assert ruling.state is state
    assert ruling.problem == "effect 2 of 'do {p}' cannot be applied: there is nothing at /b"


def test_a_state_cannot_grow_beyond_its_bound_within_one_action() -> None:
    # Each effect would double the state a few times over; unbounded, this would need more memory than there is.
    copies: list[JsonValue] = ["{state:/a}"] * 16
    double = Effect(op=EffectOp.SET, path="/a", value=copies)
    ruling = _world(*[double] * 24).step({"a": "seed"}, "do x")
    assert ruling.kind is MistakeKind.LOGIC
    assert ruling.problem is not None
    assert "larger than" in ruling.problem


def test_a_state_cannot_grow_beyond_its_bound_over_many_actions() -> None:
    world = _world(Effect(op=EffectOp.ADD, path="/a", value="{state:/a}"))
    state: JsonValue = {"a": "x" * 1_000}
    for _ in range(12):
        state = world.step(state, "do x").state
    assert len(orjson.dumps(state)) <= MAX_STATE_BYTES
    assert world.step(state, "do x").kind is MistakeKind.LOGIC


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"requires": (Requirement(condition="state."),)},
            "action 1, 'do {p}': requirement 1: 'state.' does not parse",
        ),
        (
            {"requires": (Requirement(condition="true", hint="{q}"),)},
            "requirement 1: '{q}' uses {q}, which is no parameter",
        ),
        ({"effects": (Effect(op=EffectOp.SET, path="a"),)}, "effect 1: 'a': a path into the state is a JSON Pointer"),
        ({"reveals": "{state:a}"}, "reveals: '{state:a}': a path into the state"),
    ],
)
def test_an_error_says_where_it_is(change: dict[str, object], expected: str) -> None:
    spec = act.model_copy(update=change)
    with pytest.raises(RulebookError) as caught:
        World(script_of(spec))
    assert expected in str(caught.value)
    assert isinstance(caught.value, InputError)


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("do {state}", "do (.+)", "no parameter can be called 'state'"),
        ("do {package}", "do (.+)", "no parameter can be called 'package'"),
        ("do {true}", "do (.+)", "no parameter can be called 'true'"),
        ("do {visible}", "do (.+)", "no parameter can be called 'visible'"),
        ("do {each}", "do (.+)", "no parameter can be called 'each'"),
        ("do {p}", "do (.+", "do {p}"),
        ("do {p}", "do it", "the pattern captures 0 groups"),
    ],
)
def test_an_action_whose_form_cannot_work_is_refused(name: str, pattern: str, expected: str) -> None:
    spec = ActionSpec(name=name, pattern=pattern)
    with pytest.raises(RulebookError) as caught:
        World(script_of(spec))
    assert expected in str(caught.value)


def test_names_of_actions_are_unique_and_a_goal_is_over_the_state_alone() -> None:
    with pytest.raises(RulebookError, match="two actions"):
        World(script_of(act, act))
    with pytest.raises(RulebookError, match="goal condition 2: 'p' is not a variable here"):
        World(script_of(act, goal=("true", "p == 1")))


def test_a_rulebook_is_data_with_bounds(house: tuple[World, JsonValue]) -> None:
    script = house[0].script
    assert Script.model_validate_json(script.model_dump_json()) == script
    with pytest.raises(ValidationError):
        Rulebook(goal=())
    with pytest.raises(ValidationError):
        Rulebook(goal=("true",) * 25)
    with pytest.raises(ValidationError):
        Requirement(condition="true || " * 1_000 + "true")
    with pytest.raises(RulebookError, match="has no rulebook"):
        World(script.imagined())


def test_a_rulebook_of_too_many_actions_is_not_run() -> None:
    look = [ActionSpec(name=f"look {number}", pattern=f"look {number}") for number in range(MAX_ACTIONS + 1)]
    World(script_of(*look[:-1]))
    with pytest.raises(RulebookError, match=f"at most {MAX_ACTIONS}"):
        World(script_of(*look))


def test_a_player_is_told_something_even_where_what_is_told_is_empty() -> None:
    blank = Requirement(condition="state.open", hint="{state:/text}")
    read = ActionSpec(name="read", pattern="read", reveals="{state:/text}")
    world = World(script_of(read, read.model_copy(update={"name": "pry", "pattern": "pry", "requires": (blank,)})))
    state: JsonValue = {"text": " ", "open": False}
    assert world.step(state, "read").text == "Done."
    assert world.step(state, "pry").text == "Nothing happens."


def _kettle() -> World:
    """It boils three steps after it was put on; a clock is read by nobody."""
    on = Effect(op=EffectOp.SET, path="/kettle/on", value=True)
    pour = Effect(op=EffectOp.SET, path="/pot", value="tea")
    heat = Effect(op=EffectOp.ADD, path="/kettle/heat", value=1, when="state.kettle.on && state.kettle.heat < 3")
    clock = Effect(op=EffectOp.ADD, path="/minutes", value=1)
    script = script_of(
        action_of("put the kettle on", on, needs=("!state.kettle.on",), reveals="It hums."),
        action_of("wait", reveals="It is {state:/minutes} minutes past."),
        action_of("pour", pour, needs=("state.kettle.heat == 3",)),
        goal=("state.pot == 'tea'",),
        each_step=(heat, clock),
        environment={"kettle": {"on": False, "heat": 0}, "pot": "", "minutes": 0},
    )
    return World(script)


def test_something_happens_after_each_accepted_action_and_after_no_mistake() -> None:
    world = _kettle()
    state: Any = world.script.environment
    assert world.step(state, "pour").state is state
    assert world.step(state, "wait").text == "It is 1 minutes past."
    found = plan(world, state)
    assert found is not None
    assert sorted(found) == ["pour", "put the kettle on", "wait", "wait"]
    for action in found:
        state = world.step(state, action).state
    assert (world.done(state), state["minutes"]) == (True, 4)
    assert "each_step" in world.script.model_dump(mode="json")["rulebook"]
    assert "each_step" not in script_of().model_dump_json(), "old rulebooks are written as they were"


def test_a_fault_of_what_happens_after_each_step_is_named() -> None:
    for effect, problem in (
        (Effect(op=EffectOp.ADD, path="/missing", value=1), "effect 1 of each step cannot be applied"),
        (Effect(op=EffectOp.SET, path="/n", value="{item}"), "each step: effect 1: '{item}' uses {item}"),
    ):
        broken = script_of(action_of("wait"), each_step=(effect,), environment={"n": 1})
        if "uses" in problem:
            with pytest.raises(RulebookError) as caught:
                World(broken)
            assert problem in str(caught.value)
        else:
            assert problem in (World(broken).step({"n": 1}, "wait").problem or "")
