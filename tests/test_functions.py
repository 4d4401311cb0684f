"""A user's functions as actions: exported word for word, their calls as text and back, refused in words."""

import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from refinesynth.actions.calls import Call, call_of, python_call, text_of, tools_of
from refinesynth.actions.functions import MAX_BYTES, action_of, actions_of
from refinesynth.actions.matching import explain_mismatch, match_in, refusal
from refinesynth.chat import render_task
from refinesynth.imports.conversations import read_task
from refinesynth.rules import chains, verify
from refinesynth.trajectory import ActionSpec, Draft, ParameterType, Script

TEXT = {"type": "string"}


def function(name: str, properties: dict[str, Any], required: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required), **more}
    return {"name": name, "description": f"Do {name}.", "parameters": parameters}


def script_of(actions: tuple[ActionSpec, ...]) -> Script:
    return Script(environment={"is": "there"}, goal="none", completion_conditions=("none",), actions=actions)


GIVEN = {
    "weather": function("get_weather", {"city": TEXT, "unit": {"enum": ["c", "f"], "default": "c"}}, ("city",)),
    "nothing": function("now", {}),
    "names": function("move-Files_2", {"to-dir": TEXT, "in": TEXT, "state": TEXT, "ünit": TEXT, "_unit": TEXT}, ("in",)),
    "nullable": function("page", {"size": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}}),
    "types": function("find", {"near": {"type": ["number", "null"], "minimum": -1.5}, "all": {"type": "boolean"}}),
    "nested": function("add", {"rows": {"type": "array", "items": {"type": "object"}}, "at": {"type": "object"}}, ("at",)),
    "referred": function(
        "sort", {"by": {"$ref": "#/$defs/By"}, "rows": {"$ref": "#/$defs/Rows"}}, ("by",),
        **{"$defs": {"By": {"type": "string", "enum": ["a", "b b"]}, "Rows": {"type": "array"}}},
    ),
    "const": function("set", {"level": {"const": 3}, "kind": {"oneOf": [{"const": "x"}, {"const": "y"}]}}, ("level",)),
}  # fmt: skip


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("key", ["parameters", "inputSchema", "input_schema"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_function_in_any_form_is_exported_as_it_was_given(name: str, key: str, *, wrapped: bool) -> None:
    given = GIVEN[name]
    form = (
        {**given, key: given["parameters"]}
        if key == "parameters"
        else {**given, "parameters": None, key: given["parameters"]}
    )
    actions = actions_of({"tools": [{"type": "function", "function": form}]} if wrapped else [form])
    script = script_of(actions)
    (tool,) = (tool.definition() for tool in tools_of(script))
    assert tool == {"type": "function", "function": given}
    assert not verify(Draft(script=script), chains.script()).violations
    assert Script.from_json(script.to_json()) == script
    assert action_of(tool) == actions[0]


CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "weather": ({"city": "New York", "unit": "f"}, "get_weather city=New York unit=f"),
    "nothing": ({}, "now"),
    "names": ({"in": "a", "ünit": "b"}, "move-Files_2 to-dir= in=a state= ünit=b _unit="),
    "nullable": ({"size": 3}, "page size=3"),
    "types": ({"near": -1.25, "all": True}, "find near=-1.25 all=true"),
    "nested": ({"rows": [{"a": [1, None]}], "at": {}}, 'add rows=[{"a":[1,null]}] at={}'),
    "referred": ({"by": "b b", "rows": []}, "sort by=b b rows=[]"),
    "const": ({"level": 3}, "set level=3 kind="),
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_call_is_a_text_and_the_text_is_the_call(name: str) -> None:
    script = script_of(actions_of([GIVEN[name]]))
    arguments, text = CALLS[name]
    call = Call(GIVEN[name]["name"], arguments)
    assert text_of(script, call) == text
    assert match_in(script, text) is not None
    assert call_of(script, text) == call


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"unit": "c"}, "get_weather city={city} unit=c"),
        ({"city": "Rome", "unit": "k"}, "get_weather city=Rome unit=k"),
    ],
)
def test_a_call_with_wrong_arguments_is_a_mistake_and_stays_the_same_call(arguments: dict[str, Any], text: str) -> None:
    script = script_of(actions_of([GIVEN["weather"]]))
    assert text_of(script, Call("get_weather", arguments)) == text
    assert match_in(script, text) is None
    assert call_of(script, text) == Call("get_weather", arguments)


def test_null_and_a_missing_argument_are_the_same_where_it_is_optional() -> None:
    script = script_of(actions_of([GIVEN["nullable"]]))
    assert text_of(script, Call("page", {"size": None})) == text_of(script, Call("page", {})) == "page size="
    assert call_of(script, "page size=") == Call("page", {})


def test_the_text_null_is_a_value_of_an_optional_argument() -> None:
    script = script_of(actions_of([function("search", {"q": TEXT})]))
    call = Call("search", {"q": "null"})
    assert text_of(script, call) == "search q=null"
    assert call_of(script, "search q=null") == call
    assert text_of(script, Call("search", {"q": None})) == "search q="


VALUES = st.text("abc ä{}\"'[]:;.\n", max_size=8).map(str.strip)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(VALUES, inner, max_size=3),
    max_leaves=6,
)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "string": VALUES.filter(bool),
    "integer": st.integers(-(2**63), 2**63 - 1),
    "number": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53),
    "boolean": st.booleans(),
    "array": st.lists(JSON, max_size=3),
    "object": st.dictionaries(VALUES, JSON, max_size=3),
}


@given(st.data(), st.lists(st.sampled_from(sorted(KINDS)), max_size=5))
def test_every_call_goes_to_text_and_back(data: st.DataObject, kinds: list[str]) -> None:
    names = [f"arg{at}" for at in range(len(kinds))]
    required = data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    properties = {name: {"type": kind} for name, kind in zip(names, kinds, strict=True)}
    script = script_of(actions_of([function("do", properties, tuple(required))]))
    left_out = data.draw(st.sets(st.sampled_from(names))) - set(required) if names else set[str]()
    arguments = {name: data.draw(KINDS[kind]) for name, kind in zip(names, kinds, strict=True) if name not in left_out}
    assume(all(value != f"{{{name}}}" for name, value in arguments.items()))
    text = text_of(script, Call("do", arguments))
    assert call_of(script, text) == Call("do", arguments)
    assert text_of(script, call_of(script, text)) == text
    assert match_in(script, text) is not None


@pytest.mark.parametrize(
    ("kind", "value", "limit"),
    [
        ("integer", 2**63, "a whole number, of at most 64 bits with its sign"),
        ("integer", 1e300, "a whole number, of at most 64 bits with its sign"),
        ("number", 2**53 + 1, "a number, exact in double precision"),
        ("number", 2**64 + 1, "a number, exact in double precision"),
        ("integer", 2.5, "a whole number"),
    ],
)
def test_a_number_that_cannot_be_kept_is_refused_with_the_limit(kind: str, value: float, limit: str) -> None:
    script = script_of(actions_of([function("do", {"x": {"type": kind}}, ("x",))]))
    text = text_of(script, Call("do", {"x": value}))
    assert match_in(script, text) is None
    assert f"{limit}." in refusal(script.actions, text)
    assert f"{limit}." in explain_mismatch(script.actions, text).message
    with pytest.raises(ValueError, match=f"is not {limit}"):
        actions_of([function("do", {"x": {"type": kind, "enum": [value]}}, ("x",))])


def test_numbers_in_pythons_syntax_are_exact() -> None:
    properties = {"id": {"type": "integer"}, "part": {"type": "number"}}
    script = script_of(actions_of([function("do", properties, ("id", "part"))]))
    call = Call("do", {"id": 2**63 - 1, "part": 1e-300})
    assert python_call(script, "do(id=9223372036854775807, part=1e-300)") == (0, call)
    assert call_of(script, text_of(script, call)) == call
    assert python_call(script, "do(id=1, part=1e999)") is None


def test_the_players_text_says_what_may_be_empty_and_is_read_back() -> None:
    actions = actions_of([GIVEN["nullable"], GIVEN["nested"], GIVEN["weather"]])
    task = read_task(render_task(script_of(actions)))
    assert task is not None
    assert [one.types for one in task.script.actions] == [
        {name: kind for name, kind in one.types.items() if not one.parameters[name]} for one in actions
    ]
    assert ParameterType(type="json", optional=True).to_words() == "a list or object in JSON, or empty"


REFUSED: dict[str, tuple[Any, str]] = {
    "no list": (3, "expected a list of functions"),
    "no object": (["now"], "expected a name of its own"),
    "twice": ([function("a", {}), function("a", {})], '"a": expected a name of its own'),
    "union": ([function("a", {"x": {"type": ["string", "integer"]}})], '"x" is a union of "integer", "string"; expected one of'),
    "mixed": ([function("a", {"x": {"enum": [1, "b"]}})], "is a union of"),
    "untyped": ([function("a", {"x": {}})], '"x" has no type'),
    "circle": ([function("a", {"x": {"$ref": "#/properties/x"}})], "has no type"),
    "many": ([function("a", {"x": {"anyOf": [{"anyOf": [{"$ref": "#/properties/x"}] * 15}] * 15}})], "has no type"),
    "bounds": ([function("a", {"x": {"type": "integer", "minimum": 2, "maximum": 1}})], "minimum is larger than maximum"),
    "argument": ([function("a", {"x y": TEXT})], "has spaces, braces or `=`"),
    "schema": ([{"name": "a", "parameters": {"type": "array"}}], "are no JSON schema of an object"),
    "long": ([function("a", {"x": {**TEXT, "description": "x" * MAX_BYTES}})], "longer than 20,000 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_an_action_is_refused_in_words(name: str) -> None:
    given, words = REFUSED[name]
    with pytest.raises(ValueError, match=re.escape(words)):
        actions_of(given)


def test_only_the_allowed_tools_are_read() -> None:
    union = function("union", {"x": {"type": ["string", "integer"]}})
    assert [one.name for one in actions_of([union, GIVEN["nothing"]], allowed=["now"])] == ["now"]
    with pytest.raises(ValueError, match='there is no tool "nope"; there are "now", "union"'):
        actions_of([union, GIVEN["nothing"]], allowed=["nope"])


WORDS = st.sampled_from((
    "type", "enum", "const", "default", "minimum", "maximum", "anyOf", "oneOf", "allOf", "$ref", "properties", "required",
    "name", "parameters", "function", "tools", "object", "string", "integer", "number", "array", "boolean", "null",
    "#/properties/x", "x", "a",
))  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=25,
)


@given(ANYTHING, st.dictionaries(st.text(min_size=1, max_size=3) | WORDS, ANYTHING, max_size=3))
def test_whatever_is_given_is_an_action_or_refused(anything: Any, properties: dict[str, Any]) -> None:
    for tools in (anything, [anything], [{"name": "a", "parameters": anything}], [function("a", properties)]):
        try:
            (*_, action) = actions_of(tools)
        except ValueError:
            continue
        script = script_of((action,))
        assert Script.from_json(script.to_json()) == script
        assert tools_of(script)[0].definition()["function"]["name"] == action.name.partition(" ")[0]
        text = text_of(script, Call(action.name.partition(" ")[0], {}))
        assert text_of(script, call_of(script, text)) == text


def test_a_function_without_required_arguments_can_be_called() -> None:
    bare: dict[str, Any] = {"name": "ping", "parameters": {"type": "object", "properties": {}}}
    nothing: dict[str, Any] = {"name": "pong", "parameters": {"type": "object", "properties": {}, "required": None}}
    tags = function("tag", {"tags": {"type": "array"}, "n": {"type": "integer"}}, ("tags",))
    script = script_of(actions_of([bare, nothing, tags]))
    assert python_call(script, "ping()") == (0, Call("ping", {}))
    assert python_call(script, 'tag(tags=["a", {"b": 1}], n=2)') == (0, Call("tag", {"tags": ["a", {"b": 1}], "n": 2}))
    assert python_call(script, 'tag(tags=["a"], n=[2])') is None


@pytest.mark.parametrize("name", ["get-weather", "2-fold", "class", "get_weather"])
def test_a_function_is_called_by_any_name_that_it_may_have(name: str) -> None:
    script = script_of(actions_of([function(name, {"city": {"type": "string"}}, ("city",))]))
    assert python_call(script, f'Action: {name}(city="Rome")') == (0, Call(name, {"city": "Rome"}))
    assert python_call(script, f'Action: {name}(city="Rome")(1)') is None


def test_a_call_that_is_only_considered_is_none() -> None:
    script = script_of(actions_of([function("open", {"door": {"type": "string"}}, ("door",))]))
    assert python_call(script, 'I could call\nopen(door="red")\nbut it is locked.') is None
    assert python_call(script, 'I call\n```python\nopen(door="red")\n```\n') is not None


def test_a_definition_that_leads_round_in_circles_is_refused_at_once() -> None:
    circle: dict[str, Any] = {"type": [], "anyOf": [{"$ref": "#/$defs/X"}] * 60}
    parameters = {"type": "object", "properties": {"a": {"$ref": "#/$defs/X"}}, "$defs": {"X": circle}}
    with pytest.raises(ValueError, match="leads to more than 1,000 schemas"):
        actions_of([{"name": "f", "parameters": parameters}])
