"""What is read once and shared: never what belongs to one world, never an error."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import JsonValue

from refinesynth.world import RulebookError
from refinesynth.world.expression import compile_expression
from refinesynth.world.text_template import Visible, VisibleNames, parse_pointer, parse_template

NONE: frozenset[str] = frozenset()


def sees(*names: str) -> Visible:
    def visible(state: JsonValue) -> VisibleNames:
        del state
        return VisibleNames(names)

    return visible


@pytest.mark.parametrize("source", ["p in visible", "state.a == 'x' && p in visible", "visible.exists(n, n == p)"])
def test_worlds_with_the_same_condition_see_each_their_own(source: str) -> None:
    one, other = (compile_expression(source, {"p"}, visible=sees(name)) for name in ("lamp", "key"))
    state: JsonValue = {"a": "x"}
    assert [it.answer(state, {"p": "lamp"}) for it in (one, other)] == [True, False]
    assert [it.answer(state, {"p": "key"}) for it in (one, other)] == [False, True]


def test_worlds_with_the_same_text_see_each_their_own() -> None:
    one, other = (parse_template("There is {visible}.", NONE, sees(name)) for name in ("lamp", "key"))
    assert [it.text({}, {}) for it in (one, other)] == ["There is lamp.", "There is key."]


def test_the_same_text_with_other_parameters_is_another() -> None:
    assert compile_expression("state.a == p", {"p"}).answer({"a": "x"}, {"p": "x"}) is True
    with pytest.raises(RulebookError):
        compile_expression("state.a == p", {"q"})
    with pytest.raises(RulebookError):
        compile_expression("p in visible", {"p"})
    with pytest.raises(RulebookError):
        parse_template("Here: {p}.", {"q"})


@pytest.mark.parametrize(
    "read",
    [lambda: compile_expression("a b", NONE), lambda: parse_template("{", NONE), lambda: parse_pointer("a", NONE)],
)
def test_what_cannot_be_read_is_refused_each_time(read: Callable[[], Any]) -> None:
    said: list[str] = []
    for _ in range(3):
        with pytest.raises(RulebookError) as refused:
            read()
        said.append(str(refused.value))
    assert len(set(said)) == 1
