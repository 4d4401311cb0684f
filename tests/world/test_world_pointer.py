"""Pointers and templates: what they read, what they refuse, and that changes copy only what they touch."""

import copy

import jsonpointer
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from refinesynth.errors import Inapplicable
from refinesynth.world import RulebookError
from refinesynth.world.json_pointer import change, drop, json_equal, pointer_text, put, resolve
from refinesynth.world.text_template import (
    MAX_VALUE_CHARACTERS,
    VisibleNames,
    parse_pointer,
    parse_template,
    value_as_words,
)

keys = st.sampled_from(["a", "b", "0", "1", "~", "/", "", "a/b", "~1"])
leaves = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "x"])
states: st.SearchStrategy[JsonValue] = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=12
)
routes = st.lists(keys, max_size=4).map(tuple)


def _resolved(state: JsonValue, route: tuple[str, ...]) -> list[JsonValue]:
    """What the reference library finds, in a list; an empty one if nothing."""
    try:
        return [jsonpointer.JsonPointer.from_parts(list(route)).resolve(copy.deepcopy(state))]
    except (jsonpointer.JsonPointerException, TypeError):
        return []


@given(states, routes)
def test_looking_agrees_with_the_reference_library(state: JsonValue, route: tuple[str, ...]) -> None:
    expected = _resolved(state, route)
    # The library indexes into texts; here a text is one value.
    if any(isinstance(found, str) for at in range(len(route)) for found in _resolved(state, route[:at])):
        expected = []
    try:
        found = [resolve(state, route)]
    except Inapplicable:
        found = []
    assert len(found) == len(expected)
    assert all(map(json_equal, found, expected))


@given(states, routes, leaves)
def test_what_is_put_is_found_and_nothing_else_changes(
    state: JsonValue, route: tuple[str, ...], value: JsonValue
) -> None:
    before = copy.deepcopy(state)
    try:
        new = put(state, route, value)
    except Inapplicable:
        assert json_equal(state, before)
        return
    assert json_equal(state, before)
    assert json_equal(resolve(new, route), value)
    if _resolved(state, route):
        assert json_equal(put(new, route, resolve(state, route)), before)
    else:
        assert json_equal(drop(new, route), before)


@given(states, routes)
def test_putting_what_is_there_gives_the_very_same_state(state: JsonValue, route: tuple[str, ...]) -> None:
    try:
        value = resolve(state, route)
    except Inapplicable:
        return
    assert change(state, route, lambda old: old) is state
    if route:
        assert put(state, route, copy.deepcopy(value)) is state


@given(states, states)
def test_same_is_equality_of_json(one: JsonValue, other: JsonValue) -> None:
    assert json_equal(one, copy.deepcopy(one))
    assert json_equal(one, other) == (repr(one) == repr(other)) or isinstance(one, dict | list)
    assert json_equal(one, other) == json_equal(other, one)


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (0, False), (1, 1.0), ("1", 1), ([], {}), ([1], [True]), ({"a": 0}, {"a": None})]
)
def test_values_of_different_kinds_are_not_the_same(one: JsonValue, other: JsonValue) -> None:
    assert not json_equal(one, other)


@given(states)
def test_the_root_cannot_be_dropped(state: JsonValue) -> None:
    with pytest.raises(Inapplicable, match="whole state"):
        drop(state, ())
    assert put(state, (), 1) == 1


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(Inapplicable, match=r"there is nothing at /a~1b/~0$"):
        resolve({"a/b": {}}, ("a/b", "~", "c"))
    assert pointer_text(()) == "the state's root"


STATE: JsonValue = {
    "at": "hall",
    "n": 2,
    "rooms": {"hall": {"things": ["cup", "pen", "key"]}, "a/b": {"things": ["box"]}},
    "flags": {"on": True, "off": False, "none": None},
    "list": [[1, 2], {"name": "a lamp"}, {"x": 1}],
    "empty": [],
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("", ""),
        ("the {item}", "the cup"),
        ("{{item}} {item}}}", "{item} cup}"),
        ("{state:/at}", "hall"),
        ("{state:/n} of {state:/rooms}", "2 of hall and a/b"),
        ("{state:/rooms/{state:/at}/things}.", "cup, pen and key."),
        ("{state:/rooms/{place}/things}", "box"),
        ("{state:/rooms/a~1b/things}", "box"),
        ("{state:/list}", "2 things, a lamp and something"),
        ("{state:/list/0/1}", "2"),
        ("{state:/empty} {state:/flags/none} {state:/missing} {state:/at/x}", "nothing nothing nothing nothing"),
        ("{state:/flags/on}, {state:/flags/off}", "yes, no"),
        ("{absent}", "nothing"),
        ("{state:/{state:/flags}}", "nothing"),
    ],
)
def test_texts_are_filled(text: str, expected: str) -> None:
    template = parse_template(text, {"item", "place", "absent"})
    assert template.text(STATE, {"item": "cup", "place": "a/b"}) == expected


def test_a_lone_lookup_keeps_its_kind_and_others_become_words() -> None:
    def value(text: str) -> JsonValue:
        return parse_template(text, {"item"}).value(STATE, {"item": "cup"})

    assert value("{state:/rooms/hall/things}") == ["cup", "pen", "key"]
    assert value("{state:/n}") == 2
    assert value("{state:/n}!") == "2!"
    assert value("{item}") == "cup"
    with pytest.raises(Inapplicable, match="there is nothing at /missing"):
        value("{state:/missing}")


def test_worlds_with_the_same_text_see_each_their_own() -> None:
    for name in ("lamp", "key"):
        template = parse_template("There is {visible}.", set(), lambda _, name=name: VisibleNames((name,)))
        assert template.text({}, {}) == f"There is {name}."


def test_words_have_a_bound() -> None:
    assert len(value_as_words("x" * 100_000)) == MAX_VALUE_CHARACTERS
    many: list[JsonValue] = ["x" * 1_000] * 1_000
    assert len(value_as_words(many)) == MAX_VALUE_CHARACTERS
    assert len(value_as_words([{"name": "x" * 100_000}])) == MAX_VALUE_CHARACTERS


def test_a_value_never_begins_a_new_step() -> None:
    pointer = parse_pointer("/rooms/{place}/things/{n}", {"place", "n"})
    assert pointer.keys(STATE, {"place": "a/b", "n": "0"}) == ("rooms", "a/b", "things", "0")
    assert pointer.keys(STATE, {"place": "~1/../", "n": ""}) == ("rooms", "~1/../", "things", "")
    assert parse_pointer("/x{place}y/~0~1", {"place"}).keys(STATE, {"place": "-"}) == ("x-y", "~/")
    assert parse_pointer("/{state:/n}", set()).keys(STATE, {}) == ("2",)


@pytest.mark.parametrize("text", ["/{state:/flags/on}", "/{state:/empty}", "/{state:/missing}", "/{item}"])
def test_a_step_that_names_nothing_is_inapplicable(text: str) -> None:
    with pytest.raises(Inapplicable):
        parse_pointer(text, {"item"}).keys(STATE, {})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "without its closing one"),
        ("a {item", "without its closing one"),
        ("a } b", "without an opening one"),
        ("{thing}", "uses {thing}, which is no parameter of the action (there are: {item})"),
        ("{}", "which is no parameter"),
        ("{state.at}", "no lookup such as {state:/player/place}"),
        ("{state:}", "begins with a slash"),
        ("{state:at}", "begins with a slash"),
        ("{state:/at", "without its closing one"),
        ("{state:/a~2}", "must be written ~0"),
        ("{state:" + "/a" * 33 + "}", "1 to 32 steps"),
        ("{state:/" * 6 + "a" + "}" * 6, "nested deeper than 4"),
        ("{item}" * 33, "more than 32 parts"),
        ("\ud800", "half of a surrogate pair"),
    ],
)
def test_a_bad_template_says_what_to_mend(text: str, problem: str) -> None:
    with pytest.raises(RulebookError) as caught:
        parse_template(text, {"item"})
    assert problem in str(caught.value)


@pytest.mark.parametrize("text", ["", "a", "a/b", "/a}", "/{", "/{thing}", "/~", "/a" * 33, "/\ud800", "{item}"])
def test_a_bad_pointer_is_refused(text: str) -> None:
    with pytest.raises(RulebookError):
        parse_pointer(text, {"item"})


@given(st.text(alphabet="{}state:/~ai", max_size=30))
def test_any_template_is_refused_or_fills(text: str) -> None:
    try:
        template = parse_template(text, {"a"})
    except RulebookError:
        return
    assert isinstance(template.text(STATE, {"a": "at"}), str)
