"""Typed parameters: one value has one spelling in texts, and a JSON value in calls, schemas and conditions."""

import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from refinesynth import rules
from refinesynth.actions.calls import Call, call_of, text_of, tools_of
from refinesynth.actions.matching import explain_mismatch, match_in, refusal
from refinesynth.testing import valid_scripts
from refinesynth.trajectory import Draft, ParameterType, Script
from refinesynth.world import World, check_solvability, plan

BOUNDS = st.none() | st.integers(-1_000, 1_000)


@st.composite
def kinds(draw: st.DrawFn) -> ParameterType:
    """Any type whose bounds are in order."""
    kind = draw(st.sampled_from(["string", "integer", "number", "boolean"]))
    if kind in {"string", "boolean"}:
        return ParameterType.model_validate({"type": kind})
    least, most = draw(BOUNDS), draw(BOUNDS)
    assume(least is None or most is None or least <= most)
    return ParameterType.model_validate({"type": kind, "minimum": least, "maximum": most})


NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr) | st.integers().map(str)
TEXTS = (
    NUMBERS | st.sampled_from(["true", "FALSE", " 3 ", "3.0", "+7", "-0", "1e5", "0x10", "٣", "", "nan"]) | st.text()
)


def tank(**fields: Any) -> Script:
    """A tank that is filled by whole numbers, and a pump that is on or off."""
    fill: dict[str, Any] = {
        "name": "fill {amount} liters",
        "pattern": "fill (.+) liters",
        "parameters": {"amount": []},
        "types": {"amount": {"type": "integer", "minimum": 1, "maximum": 5}},
        "requires": [{"condition": "state.level + amount <= 9", "hint": "{amount} is too much."}],
        "effects": [{"op": "add", "path": "/level", "value": "{amount}"}],
        "reveals": [{"when": "amount > 3", "text": "Much."}, {"text": "Level {state:/level}."}],
    }
    pump: dict[str, Any] = {
        "name": "switch the pump {on}",
        "pattern": "switch the pump (.+)",
        "parameters": {"on": []},
        "types": {"on": {"type": "boolean", "default": "true"}},
        "effects": [{"op": "set", "path": "/on", "value": "{on}", "when": "on || state.on"}],
    }
    drain = {"name": "drain", "pattern": "drain", "effects": [{"op": "set", "path": "/level", "value": 0}]}
    return Script.model_validate(
        {
            "environment": {"level": 3, "on": False},
            "goal": "Fill the tank.",
            "completion_conditions": ["The level is 7.", "The pump is on."],
            "actions": [{**fill, **fields}, pump, drain],
            "rulebook": {
                "goal": ["state.level == 7", "state.on"],
                "solution": ["fill 4 liters", "switch the pump true"],
            },
        }
    )


@pytest.mark.parametrize(
    ("kind", "minimum", "maximum", "samples"),
    [
        ("number", 1e-7, None, ("0.0000001",)),
        ("number", -1e-20, None, ("0",)),
        ("number", 1e-20, 2.5, ("0.000000000000001", "2.5")),
        ("number", 0.1 + 0.2, None, ("0.300000000000001",)),
        ("number", None, None, ("3", "12.5")),
        ("integer", 2.5, None, ("3",)),
        ("integer", None, -2.5, ("-3",)),
        ("integer", 0.5, 1000.5, ("1", "1000")),
    ],
)
def test_the_samples_are_valid_numbers_at_the_bounds(
    kind: Any, minimum: float | None, maximum: float | None, samples: tuple[str, ...]
) -> None:
    bounded = ParameterType(type=kind, minimum=minimum, maximum=maximum)
    assert bounded.samples() == samples
    assert all(bounded.canonical(sample) == sample for sample in samples)


@pytest.mark.parametrize("bound", [1e-7, 1e-20, -1e-20])
def test_small_bounds_are_read_from_their_words(bound: float) -> None:
    bounded = ParameterType(type="number", minimum=bound)
    assert ParameterType.from_words(bounded.to_words()) == bounded


@given(kinds(), TEXTS)
def test_a_value_has_one_spelling_that_stands_for_the_same(kind: ParameterType, text: str) -> None:
    spelled = kind.canonical(text)
    assert (spelled is None) == (kind.value(text) is None)
    if spelled is not None:
        assert kind.canonical(spelled) == spelled
        assert kind.value(spelled) == kind.value(text)


@given(kinds(), TEXTS)
def test_values_are_in_bounds_and_of_their_type(kind: ParameterType, text: str) -> None:
    value = kind.value(text)
    types = {"string": str, "integer": int, "number": float, "boolean": bool}
    assert value is None or type(value) is types[kind.type]
    if isinstance(value, float):
        assert math.isfinite(value)
    if kind.type in {"integer", "number"} and value is not None:
        assert kind.minimum is None or float(value) >= kind.minimum
        assert kind.maximum is None or float(value) <= kind.maximum


@given(kinds(), TEXTS)
def test_a_type_is_read_back_from_its_schema(kind: ParameterType, text: str) -> None:
    default = kind.canonical(text)
    kind = kind.model_copy(update={"default": default or None})
    listed = tuple(filter(None, [default]))
    read, values = ParameterType.from_schema(kind.json_schema(listed))
    assert (read, values) == (kind, listed)


def test_a_schema_lists_lists_and_objects_once() -> None:
    listed = ('{"a":1}', '{"a": 1}', "[1,2]", "[]")
    assert ParameterType(type="json").json_schema(listed) == {"enum": [{"a": 1}, [1, 2], []]}


@given(kinds())
def test_a_type_is_read_back_from_its_words(kind: ParameterType) -> None:
    assert ParameterType.from_words(kind.to_words()) == (None if kind.type == "string" else kind)


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"type": ["integer"]}, {"enum": [1, None]}, {"enum": "x"}])
def test_other_schemas_are_text(schema: dict[str, Any]) -> None:
    assert ParameterType.from_schema(schema) == (ParameterType(), ())


@given(valid_scripts(), st.data())
def test_an_action_s_text_and_its_call_say_the_same(script: Script, data: st.DataObject) -> None:
    action = data.draw(st.sampled_from(script.actions))
    values = {name: data.draw(st.sampled_from(action.choices(name) or ("x",))) for name in action.placeholders}
    text = action.fill(values)
    assert match_in(script, text) is not None
    call = call_of(script, text)
    assert text_of(script, call) == text
    for name, kind in action.types.items():
        (said,) = call.arguments.values()
        assert said == kind.value(values[name])
        assert not isinstance(said, str)


@pytest.mark.parametrize("amount", [3, "3", 3.0, "3.0", "+3"])
def test_one_value_in_several_spellings_is_one_action(amount: object) -> None:
    script = tank()
    text = text_of(script, Call("fill_liters", {"amount": amount}))  # type: ignore[dict-item] - JSON
    assert text == "fill 3 liters"
    assert call_of(script, f"fill {amount} liters") == Call("fill_liters", {"amount": 3})


def test_wrong_values_are_refused_with_what_is_allowed() -> None:
    script = tank()
    for wrong, said in (("fill 9 liters", 9), ("fill 2.5 liters", "2.5"), ("fill many liters", "many")):
        assert match_in(script, wrong) is None
        assert call_of(script, wrong) == Call("fill_liters", {"amount": said})
        assert text_of(script, call_of(script, wrong)) == wrong
        assert "amount is a whole number from 1 to 5" in refusal(script.actions, wrong)
        assert "only a whole number from 1 to 5" in explain_mismatch(script.actions, wrong).message


def test_a_default_stands_for_what_a_call_leaves_out() -> None:
    script = tank()
    assert text_of(script, Call("switch_the_pump", {})) == "switch the pump true"
    assert text_of(script, Call("switch_the_pump", {"on": False})) == "switch the pump false"
    assert text_of(script, Call("fill_liters", {})) == "fill {amount} liters"
    assert [tool.definition()["function"]["parameters"]["required"] for tool in tools_of(script)] == [
        ["amount"],
        [],
        [],
    ]


def test_conditions_and_effects_have_typed_values() -> None:
    script = tank()
    world, state = World(script), script.environment
    much = world.step(state, "fill 4.0 liters")
    assert (much.kind, much.text, much.state) == (None, "Much.", {"level": 7, "on": False})
    assert world.step(much.state, "fill 3 liters").text == "3 is too much."
    assert world.step(state, "switch the pump false").state == state
    assert world.step(state, "switch the pump TRUE").state == {"level": 3, "on": True}


@pytest.mark.parametrize(
    ("kind", "values", "text", "said", "value"),
    [
        ("boolean", [True, False], "put true", "true", True),
        ("number", [0.5, 1.0], "put 1", "1.0", 1.0),
        ("integer", [], "put 1234567890123456789", "1234567890123456789", 1234567890123456789),
        ("number", [], "put 1e-7", "0.0000001", 1e-7),
        ("string", [" true"], "put true", " true", " true"),
    ],
)
def test_listed_values_in_another_spelling_have_their_type_in_worlds(
    kind: str, values: object, text: str, said: str, value: object
) -> None:
    put: dict[str, Any] = {
        "name": "put {it}",
        "pattern": "put (.+)",
        "parameters": {"it": values},
        "types": {"it": {"type": kind, "optional": kind == "string"}},
        "requires": [{"condition": "it == state.wanted"}],
        "effects": [{"op": "set", "path": "/it", "value": "{it}"}],
        "reveals": "",
    }
    script = tank(**put).model_copy(update={"environment": {"wanted": value, "on": False}})
    done = World(script).step(script.environment, text)
    assert (done.kind, done.problem, done.values) == (None, None, {"it": said})
    assert isinstance(done.state, dict)
    assert repr(done.state["it"]) == repr(value)
    assert not rules.verify(Draft(script=script), rules.ValuesExist()).violations


def test_worlds_with_typed_parameters_are_planned_and_proved() -> None:
    script = tank()
    assert plan(World(script), script.environment) == ("fill 4 liters", "switch the pump true")
    found = check_solvability(script)
    assert (found.problem, found.solution_problem, found.faults) == (None, None, ())
    assert found.exhausted


@pytest.mark.parametrize(
    ("types", "values", "problem"),
    [
        ({"amount": {"type": "integer"}}, ["many"], "'many' is not a whole number"),
        ({"amount": {"type": "integer", "maximum": 2}}, ["3"], "'3' is not a whole number up to 2"),
        ({"amount": {"minimum": 2}}, [], "bounds are for numbers"),
        ({"amount": {"type": "number", "minimum": 2, "maximum": 1}}, [], "minimum is larger"),
        ({"amount": {"type": "integer", "default": "5"}}, ["1", "2"], "the default '5' is none"),
        ({"amount": {}, "other": {}}, [], "no placeholder has this name"),
    ],
)
def test_types_that_do_not_fit_are_found(types: dict[str, Any], values: list[str], problem: str) -> None:
    script = tank(types=types, parameters={"amount": values}).imagined()
    found = rules.verify(Draft(script=script), rules.PlaceholdersHaveParameters()).violations
    assert [violation.code for violation in found] == ["type_does_not_fit"]
    assert problem in found[0].message


@pytest.mark.parametrize("bound", [1e19, 1e400, float("nan"), -1e16])
def test_bounds_that_no_value_has_are_refused(bound: float) -> None:
    with pytest.raises(ValidationError):
        ParameterType.model_validate({"type": "integer", "minimum": 0, "maximum": bound})
    assert ParameterType.from_schema({"type": "integer", "maximum": bound})[0] == ParameterType(type="integer")


@pytest.mark.parametrize(("default", "spelled"), [(3, "3"), (2.5, "2.5"), (True, "true"), ("x", "x")])
def test_a_default_may_be_json(default: object, spelled: str) -> None:
    assert ParameterType.model_validate({"default": default}).default == spelled
