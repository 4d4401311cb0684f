"""What rulebooks can say beyond single changes: sums, effects on each element, else, and the state before."""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from world_scripts import action_of, script_of, setting

from refinesynth.trajectory import Effect, EffectOp
from refinesynth.world import RulebookError, World, check_solvability, plan
from refinesynth.world.effects import MAX_EACH
from refinesynth.world.expression import compile_expression


def _change(**given: Any) -> Effect:
    return Effect.model_validate({"op": "set", **given})


def _after(state: Any, *effects: Effect, **values: str) -> Any:
    """The state after an action with these effects."""
    name = " ".join(("do", *(f"{{{name}}}" for name in values)))
    world = World(script_of(action_of(name, *effects), environment=state))
    ruling = world.step(state, " ".join(("do", *values.values())))
    assert ruling.problem is None, ruling.problem
    return ruling.state


def _problem(state: Any, *effects: Effect) -> str:
    """Why an action with these effects cannot be carried out."""
    ruling = World(script_of(action_of("do", *effects), environment=state)).step(state, "do")
    assert ruling.state is state
    return ruling.problem or ""


@given(st.lists(st.integers(-50, 50)), st.dictionaries(st.text(max_size=3), st.integers(-50, 50)))
def test_a_sum_is_that_of_the_numbers(numbers: list[int], prices: dict[str, int]) -> None:
    state: JsonValue = {"numbers": [*numbers], "prices": {**prices}, "doubles": [number / 2 for number in numbers]}
    assert compile_expression("state.numbers.sum(n, n)", set()).value(state, {}) == sum(numbers)
    assert compile_expression("state.prices.sum(n, state.prices[n])", set()).value(state, {}) == sum(prices.values())
    assert compile_expression("state.doubles.sum(n, n)", set()).value(state, {}) == sum(numbers) / 2


@pytest.mark.parametrize("source", ["state.texts.sum(t, t)", "state.mixed.sum(n, n)", "state.n.sum(x, 1)"])
def test_only_numbers_of_one_kind_have_a_sum(source: str) -> None:
    answer = compile_expression(f"{source} == 1", set()).answer({"texts": ["a"], "mixed": [1, 1.5], "n": 1}, {})
    assert isinstance(answer, str)
    with pytest.raises(RulebookError, match=r"sum is written x\.sum\(name, number with name\)"):
        compile_expression("state.texts.sum(t) == 1", set())


def test_an_effect_is_made_for_each_key_text_or_index() -> None:
    state = {"lamps": {"red": {"on": True}, "blue": {"on": False}}, "bag": ["red"], "rows": [[1, 2], [3]]}
    toggled = _after(state, _change(path="/lamps/{each}/on", value={"cel": "!state.lamps[each].on"}, each="/lamps"))
    assert [lamp["on"] for lamp in toggled["lamps"].values()] == [False, True]
    held = _after(state, _change(path="/lamps/{each}/held", value="{each} {p}", each="/bag"), p="x")
    assert held["lamps"] == {"red": {"on": True, "held": "red x"}, "blue": {"on": False}}
    longer = _after(state, _change(op="add", path="/rows/{each}", value=0, each="/rows", when="each != '0'"))
    assert longer["rows"] == [[1, 2], [3, 0]]


def test_what_an_effect_is_made_for_is_bounded_and_there() -> None:
    wide = {"all": {str(at): "x" * 500 for at in range(MAX_EACH)}, "copies": {}}
    grows = _change(path="/copies/{each}", value="{state:/all}", each="/all")
    assert "makes the state too deep or larger" in _problem(wide, grows)
    assert "more than 64, for each" in _problem(
        {"all": [""] * (MAX_EACH + 1)}, _change(path="/n", value=1, each="/all")
    )
    assert "/n is neither a list nor an object" in _problem({"n": 1}, _change(path="/n", value=1, each="/n"))
    assert "nothing at /missing" in _problem({}, _change(path="/n", value=1, each="/missing"))
    costly = "state.all.all(a, state.all.all(b, state.all.all(c, a != '' || b != c)))"
    state = {"all": ["x"] * 60, "n": 0}
    assert _after(state, _change(path="/n", value=1, each="/all", when=costly)) == state, "it has no answer"


def test_an_effect_is_made_where_the_one_before_it_is_not() -> None:
    effects = (
        _change(path="/lamp", value="on", when="state.lamp == 'off'"),
        _change(path="/lamp", value="off", when="else"),
        _change(op="add", path="/off", value=1, when="else"),
        _change(op="add", path="/n", value=1),
    )
    on = _after({"lamp": "off", "off": 0, "n": 0}, *effects)
    assert on == {"lamp": "on", "off": 0, "n": 1}
    assert _after(on, *effects) == {"lamp": "off", "off": 1, "n": 2}
    unanswered = (_change(path="/n", value=1, when="state.missing"), _change(path="/n", value=2, when="else"))
    assert _after({"n": 0}, *unanswered) == {"n": 2}


@pytest.mark.parametrize("before", [(), (_change(path="/n", value=1),), (_change(path="/n", when="true", each="/l"),)])
def test_there_is_no_else_without_a_condition(before: tuple[Effect, ...]) -> None:
    with pytest.raises(RulebookError, match="`when` is 'else', but the effect before it has no `when`, or has `each`"):
        World(script_of(action_of("do", *before, _change(path="/n", value=2, when="else"))))


def test_effects_see_the_state_before_the_action() -> None:
    swap = (
        _change(path="/a", value={"cel": "before.b"}),
        _change(path="/b", value={"cel": "before.a"}),
        _change(op="add", path="/n", value=1, when="before.a < before.b && state.a > state.b"),
    )
    assert _after({"a": 1, "b": 2, "n": 0}, *swap) == {"a": 2, "b": 1, "n": 1}
    assert _after({"n": 0}, _change(path="/n", value={"cel": "size(before)"}), before="x") == {"n": 1}, "a parameter's"
    with pytest.raises(RulebookError, match="'before' is not a variable here"):
        World(script_of(action_of("do", needs=("before.n == 1",))))


@given(
    st.sampled_from(["state.n > 1", "'a' in state.l", "state.l.exists(before, before == 'b')", "state.gone"]),
    st.integers(0, 3),
    st.lists(st.sampled_from("ab"), max_size=2),
)
def test_else_is_the_negation_of_what_held_before(condition: str, number: int, items: list[str]) -> None:
    state: Any = {"n": number, "l": items}
    then, other = _change(path="/n", value=9, when=condition), _change(op="add", path="/l", value="c", when="else")
    holds = compile_expression(condition, set()).answer(state, {}) is True
    expected = {**state, "n": 9} if holds else {**state, "l": [*items, "c"]}
    assert _after(state, then, other) == expected


def test_a_search_finds_toggles_sums_and_each() -> None:
    """Three lamps, each of whose switches toggles the other two as well."""
    lamps = ("a", "b", "c")
    press = action_of(
        "press {lamp}",
        setting("/on/{lamp}", value=False, when="state.on[lamp]"),
        setting("/on/{lamp}", value=True, when="else"),
        Effect(op=EffectOp.SET, path="/on/{each}", value={"cel": "!before.on[each]"}, each="/on", when="each > lamp"),
        lamp=lamps,
    )
    world = World(
        script_of(
            press,
            goal=("state.on.sum(x, state.on[x] ? 1 : 0) == 3",),
            environment={"on": {"a": False, "b": True, "c": False}},
        )
    )
    state: Any = world.script.environment
    found = plan(world, state)
    assert found is not None
    for action in found:
        state = world.step(state, action).state
    assert world.done(state)
    solvability = check_solvability(world.script)
    assert (solvability.faults, solvability.exhausted) == ((), True)
    assert len(solvability.shortest or ()) == len(found)


def test_the_documented_effects_switch_lamps_and_pay() -> None:
    docs = (Path(__file__).parents[2] / "docs" / "grounded.md").read_text(encoding="utf-8")
    (block,) = (text for text in re.findall(r"```json\n(.*?)```", docs, re.DOTALL) if '"/lamps/' in text)
    state = {
        "lamps": {"door": "on", "desk": "off", "bed": "on"},
        "beside": {"door": ["desk", "bed"]},
        "cash": 9,
        "crates": ["tea", "tea", "rum"],
        "fee": {"tea": 1, "rum": 3},
    }
    effects = [_change(**effect) for effect in orjson.loads(block)["effects"]]
    after = _after(state, *effects, lamp="door")
    assert (after["lamps"], after["cash"]) == ({"door": "off", "desk": "on", "bed": "off"}, 4)
