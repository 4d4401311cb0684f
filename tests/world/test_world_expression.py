"""Conditions from strangers: what is refused, what has no answer, and that only sizes and not tricks decide what
runs."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from refinesynth.world import RulebookError
from refinesynth.world.expression import compile_expression, json_bytes
from refinesynth.world.text_template import VisibleNames


def _answer(source: str, state: JsonValue = None, **values: str) -> bool | str:
    return compile_expression(source, values.keys()).answer(state, values)


@pytest.mark.parametrize(
    ("source", "instead"),
    [
        ("", "does not parse"),
        ("state.", "does not parse"),
        ("state.a = 1", "write &&, || and =="),
        ("{'a': 1}.a == 1", "objects cannot be written out"),
        ("state.a == 'open", "a text ends with the quote"),
        ("state.a == open", "'open' is not a variable here (there are: state, p); a text needs quotes"),
        ("state.a.map(x, x)[0] == 1", "write exists, all, filter or sum instead of map"),
        ("p.matches('(a*)*b')", "write ==, in, contains"),
        ("timestamp(p) > timestamp(p)", "available are:"),
        ("all(state.a, x, true)", "available are:"),
        ("state.a.exists(x)", "is written x.exists(name, condition with name)"),
        ("state.a.exists(p, p == 1)", "'p' is a variable already"),
        ("_in_order(state.a) == 1", "available are:"),
        ("state.a == '''b'''", "plain quoted text"),
        ("state.a == 'a' 'b'", "two texts follow one another"),
        ("1u == 1", "plain numbers"),
        ("state.a == .5", "does not parse at line:character 1:12:"),
        (".state.a == 1", "does not parse"),
        ("state.a // comment", "'// comment' is not understood"),
        ("state.?a == 1", "does not parse at line:character 1:"),
        ("(state.a == 1", "bracket is missing"),
        ("state.a == 1)", "does not belong there"),
        ("(" * 30 + "true" + ")" * 30, "brackets are nested deeper than 24"),
        ("false ? true : " * 80 + "true", "split it"),
        ("true" + " && true" * 200, "split it"),
        ("l.all(a, l.all(b, l.all(c, l.all(d, a == b))))".replace("l.", "state."), "nested deeper than 3"),
        ("state.a == 99999999999999999999", "does not parse"),
        ("state.a == '\\ud800'", "does not parse"),
        ("state.a == '\ud800'", ""),
        ("state\x00.a", "is not understood"),
    ],
)
def test_what_cannot_be_used_is_refused_with_what_to_write_instead(source: str, instead: str) -> None:
    with pytest.raises(RulebookError) as caught:
        compile_expression(source, {"p"})
    assert instead in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_parameter_that_the_action_did_not_give_leaves_no_answer() -> None:
    assert isinstance(compile_expression("p == 'x'", {"p"}).answer({}, {}), str)
    assert isinstance(compile_expression("state[p] == 'x'", {"p"}).answer({"": "x"}, {}), str)


@pytest.mark.parametrize("source", ["p in visible", "state.a == 'x' && p in visible", "visible.exists(n, n == p)"])
def test_worlds_with_the_same_condition_see_each_their_own(source: str) -> None:
    one, other = (
        compile_expression(source, {"p"}, visible=lambda _, name=name: VisibleNames((name,)))
        for name in ("lamp", "key")
    )
    state: JsonValue = {"a": "x"}
    assert [it.answer(state, {"p": "lamp"}) for it in (one, other)] == [True, False]
    assert [it.answer(state, {"p": "key"}) for it in (one, other)] == [False, True]
    with pytest.raises(RulebookError, match="'visible' is not a variable"):
        compile_expression(source, {"p"})


def test_walking_over_an_object_goes_in_the_order_of_its_keys() -> None:
    # The library walks in hash order, another one each time; which of two conditions of a walk fails first would be
    # chance.
    items: dict[str, JsonValue] = {f"k{n:02}": {"on": n == 20} for n in range(40)}
    items["k30"] = {}
    found = {_answer("state.items.exists(i, state.items[i].on)", {"items": items}) for _ in range(20)}
    assert found == {True}
    items["k10"] = {}
    missed = {_answer("state.items.exists(i, state.items[i].on)", {"items": items}) for _ in range(20)}
    assert missed == {"there is no key 'on'"}


@pytest.mark.parametrize(
    "source",
    [
        "state.l.all(a, state.l.all(b, state.l.all(c, a != 'x')))",
        "[state.l, state.l, state.l].all(a, [a, a, a, a].all(b, b.all(c, c != 'x')))",
        "state.l.all(a, " + "a + " * 60 + "a != 'x')",
        "state.o.all(a, state.o.all(b, state.o[a] != state.o[b] || a == b))",
    ],
)
def test_what_would_take_too_long_is_not_begun(source: str) -> None:
    words: list[JsonValue] = ["word"] * 3_000
    state: JsonValue = {"l": words, "o": {f"k{n}": {"n": n, "text": "t" * 20} for n in range(500)}}
    assert _answer(source, state) == "this takes too long on a state of this size"


def test_the_same_walks_are_fine_on_a_small_state() -> None:
    state: JsonValue = {"o": {f"k{n}": {"n": n} for n in range(20)}}
    assert _answer("state.o.all(a, state.o.all(b, a == b || state.o[a] != state.o[b]))", state) is True


@given(st.text(max_size=40) | st.text(alphabet="state.abp[]()'\" 01+-!&|=<>?:,exiln", max_size=60))
def test_any_text_is_refused_or_answers(source: str) -> None:
    try:
        expression = compile_expression(source, {"p"})
    except RulebookError:
        return
    answer = expression.answer({"a": {"b": [1]}}, {"p": "a"})
    assert isinstance(answer, bool | str)


def test_deep_states_and_long_conditions_fit_a_small_stack() -> None:
    deep: JsonValue = 1
    for _ in range(240):
        deep = [deep]
    results: list[bool | str] = []

    def work() -> None:
        results.append(_answer("state.x != state.x", {"x": deep}))
        results.append(_answer("1" + " + 1" * 140 + " == 141"))
        results.append(_answer("state" + ".a" * 140 + " == 1"))
        results.append(_answer("!" * 298 + "true"))
        results.append(_answer("[" * 23 + "state" + "]" * 23 + " == 1"))

    before = threading.stack_size(512 * 1024)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert results[:2] == [False, True]
    assert results[3:] == [True, False]


def test_states_deeper_than_json_goes_have_no_answer() -> None:
    deep: JsonValue = 1
    for _ in range(5_000):
        deep = [deep]
    assert isinstance(_answer("state.x == state.x", {"x": deep}), str)
    assert isinstance(_answer("state.x.all(x, true)", {"x": deep}), str)
    assert json_bytes(deep) is None


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("int(state.x) == 1", "9" * 5_000),
        ("int(state.x) == 1", "-" + "9" * 5_000),
        ("string(state.x) == '1'", 10**5_000),
        ("double(state.x) == 1.0", 10**400),
        ("state.x < 1.5", 10**400),
        ("-state.x < 0", -(2**63)),
    ],
    ids=["text", "negative text", "to text", "to real", "compared", "negated"],
)
def test_numbers_beyond_the_bounds_have_no_answer(source: str, value: JsonValue) -> None:
    assert isinstance(_answer(source, {"x": value}), str)


def test_leading_zeros_are_none_of_a_number() -> None:
    assert _answer("int(state.x) == -7", {"x": "-" + "0" * 5_000 + "7"}) is True
