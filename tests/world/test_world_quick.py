"""Plain conditions are answered without the CEL library exactly as the library answers them, or left to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from refinesynth.world.expression import compile_expression
from refinesynth.world.visible_names import VisibleNames

keys = st.sampled_from(["a", "b", "c"])
scalars: st.SearchStrategy[JsonValue] = (
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["a", "b", "", "x"]) | st.just(1.0)
)
json_values: st.SearchStrategy[JsonValue] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)
states = st.dictionaries(keys, json_values, max_size=3)

fields = st.recursive(
    st.just("state"),
    lambda inner: (
        st.builds("{}.{}".format, inner, keys)
        | st.builds("{}['{}']".format, inner, keys)
        | st.builds("{}[{}]".format, inner, st.sampled_from(["p", "0"]) | inner)
    ),
    max_leaves=3,
).filter(lambda field: field != "state")
operands = (
    fields
    | st.sampled_from(["p", "'a'", '"b"', "true", "false", "null", "1", "0", "visible", "['a', 'x']", "[]", "[1]"])
    | fields.map("size({})".format)
    | fields.map("{}.size()".format)
)
atoms = (
    st.builds("{} {} {}".format, operands, st.sampled_from(["==", "!=", "in", "<", "<=", ">", ">="]), operands)
    | fields
    | st.builds("has({}.{})".format, fields, keys)
    | st.just("state.a.exists(k, k == p)")
)
conditions = st.recursive(
    atoms,
    lambda inner: (
        inner.map("!({})".format)
        | inner.map("({})".format)
        | st.builds("{} {} {}".format, inner, st.sampled_from(["&&", "||"]), inner)
    ),
    max_leaves=5,
)


def _seen(_state: JsonValue) -> VisibleNames:
    return VisibleNames(("a", "c"))


@given(conditions, states, st.sampled_from(["a", "b", "x", ""]))
def test_a_quick_answer_is_the_librarys(source: str, state: JsonValue, value: str) -> None:
    expression = compile_expression(source, {"p"}, visible=_seen)
    if expression.quick is None:
        return
    answer = expression.quick(state, {"p": value})
    if answer is not None:
        slow = compile_expression(source, {"p"}, visible=_seen)
        object.__setattr__(slow, "quick", None)
        assert slow.answer(state, {"p": value}) is answer


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("state.at == p", True),
        ("state['at'] != 'hall'", True),
        ("state.rooms[state.at].open && p in state.rooms[p].things", True),
        ("!(p in state.bag) && size(state.bag) < state.most", True),
        ("state.bag.size() >= 2", False),
        ("has(state.rooms.den) || 'lamp' in state.bag", True),
        ("p in ['den', 'hall']", True),
        ("p in visible", False),
        ("state.hand == null", True),
    ],
)
def test_what_is_plain_needs_no_library(source: str, answer: bool) -> None:
    state: JsonValue = {
        "at": "den",
        "rooms": {"den": {"open": True, "things": ["den"]}},
        "bag": ["lamp"],
        "most": 2,
        "hand": None,
    }
    expression = compile_expression(source, {"p"}, visible=_seen)
    assert expression.quick is not None
    assert expression.quick(state, {"p": "den"}) is answer


@pytest.mark.parametrize(
    "source", ["state.missing", "state.bag[0] == 'x'", "state.n == 1.0", "state.at", "state.n < 'a'"]
)
def test_what_is_doubtful_is_left_to_the_library(source: str) -> None:
    expression = compile_expression(source, frozenset())
    assert expression.quick is None or expression.quick({"bag": ["x"], "n": 1.5, "at": "den"}, {}) is None
