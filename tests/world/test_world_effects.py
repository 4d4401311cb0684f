"""Each effect: what it makes of a state, and where it has no meaning."""

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from world_scripts import documented

from refinesynth.errors import Inapplicable
from refinesynth.trajectory import Effect
from refinesynth.world import RulebookError
from refinesynth.world.effects import compile_effect

STATE: JsonValue = {
    "at": "hall",
    "bag": ["cup", 1, True],
    "rooms": {"hall": {"things": ["pen"]}, "attic": {"things": []}},
    "n": 3,
    "f": 0.5,
    "text": "ab",
    "flag": True,
    "none": None,
}
EMPTY_ROOMS: JsonValue = {"hall": {"things": []}, "attic": {"things": []}}


def _effect(**fields: object) -> Effect:
    return Effect.model_validate(fields)


def _applied(effect: Effect, state: JsonValue = STATE, **values: str) -> JsonValue:
    before = copy.deepcopy(state)
    try:
        return compile_effect(effect, frozenset({"p", "q"})).apply(state, values)
    finally:
        assert repr(state) == repr(before)


def _changed(**changes: JsonValue) -> JsonValue:
    assert isinstance(STATE, dict)
    return {**STATE, **changes}


@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        (_effect(op="set", path="/at", value="{p}"), _changed(at="cup")),
        (_effect(op="set", path="/new", value=[1, {"{p}": "{p}"}]), _changed(new=[1, {"{p}": "cup"}])),
        (_effect(op="set", path="/{p}", value="{state:/rooms/hall}"), _changed(cup={"things": ["pen"]})),
        (_effect(op="set", path="/bag/0", value=None), _changed(bag=[None, 1, True])),
        (_effect(op="set", path="/at", value="{{p}}"), _changed(at="{p}")),
        (_effect(op="add", path="/bag", value="{p}"), _changed(bag=["cup", 1, True, "cup"])),
        (_effect(op="add", path="/n", value=-2), _changed(n=1)),
        (_effect(op="add", path="/n", value=0.5), _changed(n=3.5)),
        (_effect(op="add", path="/n", value="{state:/n}"), _changed(n=6)),
        (_effect(op="add", path="/text", value="{p}!"), _changed(text="abcup!")),
        (_effect(op="remove", path="/bag", value="{p}"), _changed(bag=[1, True])),
        (_effect(op="remove", path="/bag", value=True), _changed(bag=["cup", 1])),
        (_effect(op="remove", path="/bag/1"), _changed(bag=["cup", True])),
        (_effect(op="remove", path="/rooms/attic"), _changed(rooms={"hall": {"things": ["pen"]}})),
        (
            _effect(op="move", from_path="/bag", path="/rooms/{state:/at}/things", value="{p}"),
            _changed(bag=[1, True], rooms={"hall": {"things": ["pen", "cup"]}, "attic": {"things": []}}),
        ),
        (_effect(op="move", from_path="/bag", path="/bag", value="{p}"), _changed(bag=[1, True, "cup"])),
        (
            _effect(op="move", from_path="/rooms/attic", path="/none"),
            _changed(rooms={"hall": {"things": ["pen"]}}, none={"things": []}),
        ),
        (_effect(op="move", from_path="/n", path="/rooms/attic/things", value=None, when="false"), STATE),
        (_effect(op="set", path="/at", value=1, when="state.n == 3 && p == 'cup'"), _changed(at=1)),
        (_effect(op="set", path="/n", value={"cel": "state.n * 2 - size(state.bag)"}), _changed(n=3)),
        (_effect(op="add", path="/n", value={"cel": "-state.n"}), _changed(n=0)),
        (_effect(op="set", path="/flag", value={"cel": "!state.flag"}), _changed(flag=False)),
        (_effect(op="set", path="/at", value={"cel": "state.n > 2 ? p : 'hall'"}), _changed(at="cup")),
        (_effect(op="set", path="/new", value=[{"cel": "state.f + 0.25"}, "{p}"]), _changed(new=[0.75, "cup"])),
        (_effect(op="set", path="/new", value={"cel": 1}), _changed(new={"cel": 1})),
        (_effect(op="set", path="/new", value={"cel": "{p}", "more": 1}), _changed(new={"cel": "cup", "more": 1})),
        (_effect(op="remove", path="/rooms/{any}/things", value="pen"), _changed(rooms=EMPTY_ROOMS)),
        (
            _effect(op="move", from_path="/rooms/{any}/things", path="/bag", value="pen"),
            _changed(rooms=EMPTY_ROOMS, bag=["cup", 1, True, "pen"]),
        ),
        (_effect(op="remove", path="/{any}", value="{p}"), _changed(bag=[1, True])),
    ],
)
def test_an_effect_makes_a_new_state(effect: Effect, expected: JsonValue) -> None:
    assert repr(_applied(effect, p="cup")) == repr(expected)


@pytest.mark.parametrize(
    "effect",
    [
        _effect(op="set", path="/at", value="hall"),
        _effect(op="set", path="/rooms/hall", value={"things": ["pen"]}),
        _effect(op="add", path="/n", value=0),
        _effect(op="add", path="/text", value=""),
        _effect(op="move", from_path="/n", path="/n"),
        _effect(op="set", path="/at", value=1, when="state.missing"),
        _effect(op="remove", path="/missing", when="p == ''"),
        _effect(op="set", path="/n", value={"cel": "state.n"}),
        _effect(op="remove", path="/rooms/{any}/things", value="{p}"),
        _effect(op="remove", path="/bag/{any}/things", value="{p}"),
        _effect(op="remove", path="/at/{any}", value="{p}"),
    ],
)
def test_an_effect_that_changes_nothing_gives_the_very_same_state(effect: Effect) -> None:
    assert _applied(effect, p="cup") is STATE


@pytest.mark.parametrize(
    "effect",
    [
        _effect(op="set", path="/missing/x", value=1),
        _effect(op="set", path="/bag/3", value=1),
        _effect(op="set", path="/bag/-", value=1),
        _effect(op="set", path="/at/x", value=1),
        _effect(op="set", path="/{q}", value=1),
        _effect(op="set", path="/at", value="{q}"),
        _effect(op="set", path="/at", value=["{state:/missing}"]),
        _effect(op="set", path="/{state:/bag}", value=1),
        _effect(op="add", path="/missing", value=1),
        _effect(op="add", path="/n", value="1"),
        _effect(op="add", path="/n", value=True),
        _effect(op="add", path="/text", value=1),
        _effect(op="add", path="/n", value=2**60),
        _effect(op="add", path="/f", value=1e308),
        _effect(op="remove", path="/missing"),
        _effect(op="remove", path="/bag", value=False),
        _effect(op="remove", path="/rooms", value="hall"),
        _effect(op="move", from_path="/missing", path="/none"),
        _effect(op="move", from_path="/rooms", path="/rooms/hall/x"),
        _effect(op="move", from_path="/bag", path="/none", value="cup"),
        _effect(op="move", from_path="/bag", path="/rooms/attic/things", value="{q}"),
        _effect(op="move", from_path="/rooms/{any}/things", path="/bag", value="{p}"),
        _effect(op="set", path="/n", value={"cel": "state.missing"}),
        _effect(op="set", path="/n", value={"cel": "1 / (state.n - 3)"}),
        _effect(op="set", path="/n", value={"cel": "9007199254740993 + 0"}),
        _effect(op="set", path="/f", value={"cel": "double('nan')"}),
        _effect(op="set", path="/f", value={"cel": "[1, [9007199254740991 + 2]]"}),
    ],
)
def test_an_effect_without_a_meaning_is_inapplicable(effect: Effect) -> None:
    with pytest.raises(Inapplicable):
        _applied(effect, p="cup")


DEEP = orjson.loads("[" * 20 + "]" * 20)


@pytest.mark.parametrize(
    ("effect", "problem"),
    [
        (_effect(op="move", path="/a"), "from_path belongs to move, which needs it"),
        (_effect(op="set", path="/a", from_path="/b"), "from_path belongs to move"),
        (_effect(op="add", path="/a"), "add needs a value"),
        (_effect(op="set", path="a"), "begins with a slash"),
        (_effect(op="set", path="/a", value=["{x}"]), "uses {x}"),
        (_effect(op="set", path="/a", value={"k": {"l": "{"}}), "without its closing one"),
        (_effect(op="set", path="/a", value=1, when="p ="), "write &&, || and =="),
        (_effect(op="move", path="/a", from_path="b"), "begins with a slash"),
        (_effect(op="set", path="/a", value=DEEP), "nested deeper than 16"),
        (_effect(op="set", path="/a", value=["x"] * 40), "holds 40 texts"),
        (_effect(op="set", path="/a", value=list(range(9_000))), "larger than"),
        (_effect(op="set", path="/a", value=2**70), "no JSON"),
        (_effect(op="set", path="/a", value=[float("inf")]), "finite"),
        (_effect(op="set", path="/a", value={"cel": "x + 1"}), "'x' is not a variable here"),
        (_effect(op="set", path="/a", value={"cel": "["}), "["),
        (_effect(op="set", path="/a", value=[{"cel": "1"}] * 5), "holds 5 calculations"),
        (_effect(op="set", path="/a/{any}", value=1), "uses {any}"),
        (_effect(op="remove", path="/a/{any}"), "uses {any}"),
        (_effect(op="remove", path="/{any}/{any}", value="c"), "one whole step"),
        (_effect(op="remove", path="/a/x{any}", value="c"), "one whole step"),
    ],
)
def test_an_effect_that_cannot_work_is_refused(effect: Effect, problem: str) -> None:
    with pytest.raises(RulebookError) as caught:
        compile_effect(effect, frozenset({"p"}))
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        (_effect(op="set", path="/at", value=1, when="false"), _changed(at=1)),
        (_effect(op="remove", path="/missing"), STATE),
        (
            _effect(op="move", from_path="/rooms/attic/things", path="/bag", value="box"),
            _changed(bag=["cup", 1, True, "box"]),
        ),
        (_effect(op="move", from_path="/bag", path="/rooms/attic/things", value="{q}"), STATE),
        (_effect(op="move", from_path="/missing", path="/none2"), _changed(none2=None)),
    ],
)
def test_relaxed_effects_take_what_they_need_for_granted(effect: Effect, expected: JsonValue) -> None:
    assert compile_effect(effect, frozenset({"p", "q"})).apply(STATE, {"p": "cup"}, relaxed=True) == expected


def test_a_parameter_may_be_called_any() -> None:
    effect = _effect(op="remove", path="/rooms/{any}/things", value="pen")
    compiled = compile_effect(effect, frozenset({"any"}))
    assert compiled.apply(STATE, {"any": "hall"}) == _changed(rooms=EMPTY_ROOMS)
    with pytest.raises(Inapplicable):
        compiled.apply(STATE, {"any": "attic"})


@given(
    st.dictionaries(st.sampled_from("abc"), st.lists(st.sampled_from("xyz"), max_size=3), max_size=3),
    st.sampled_from("xyz"),
)
def test_any_is_one_effect_for_each_key(lists: dict[str, list[str]], thing: str) -> None:
    state: Any = {"in": {**lists}, "hand": []}
    one_by_one = state
    for key in lists:
        when = f"'{thing}' in state.in.{key}".replace("state.in", 'state["in"]')
        one_by_one = _applied(_effect(op="remove", path=f"/in/{key}", value=thing, when=when), one_by_one)
    assert _applied(_effect(op="remove", path="/in/{any}", value=thing), state) == one_by_one
    holding = next((key for key in sorted(lists) if thing in lists[key]), None)
    move = _effect(op="move", from_path="/in/{any}", path="/hand", value=thing)
    if holding is None:
        with pytest.raises(Inapplicable, match="in none of the lists"):
            _applied(move, state)
    else:
        assert _applied(move, state) == _applied(move.model_copy(update={"from_path": f"/in/{holding}"}), state)


def test_the_documented_effects_pour_switch_and_fetch() -> None:
    state: JsonValue = {
        "poured": 0,
        "jugs": {"large": 4, "small": 1},
        "free": {"large": 1, "small": 2},
        "tap": {"open": True},
        "rooms": {"yard": {"things": []}, "shed": {"things": ["large"]}},
        "you": {"holding": []},
    }
    for effect in documented('"/jugs/')["effects"]:
        compiled = compile_effect(_effect(**effect), frozenset({"jug", "into"}))
        state = compiled.apply(state, {"jug": "large", "into": "small"})
    assert state == {
        "poured": 2,
        "jugs": {"large": 2, "small": 3},
        "free": {"large": 3, "small": 0},
        "tap": {"open": False},
        "rooms": {"yard": {"things": []}, "shed": {"things": []}},
        "you": {"holding": ["large"]},
    }


def test_what_a_calculation_comes_to_is_bounded() -> None:
    longer = _effect(op="set", path="/text", value={"cel": "state.text + state.text"})
    assert _applied(longer, {"text": "x" * 8_000}) == {"text": "x" * 16_000}
    with pytest.raises(Inapplicable, match="comes to more than"):
        _applied(longer, {"text": "x" * 9_000})
