"""Conditions have the answers of the CEL library, and none where it has none."""

import json
from random import Random
from typing import Any, cast

import cel
import pytest
from pydantic import JsonValue
from test_shipped_rulebooks import NAMES, world

from refinesynth.rehearsal.scene import draw_scene, random_label
from refinesynth.world import World, ground_actions, replay
from refinesynth.world.expression import Expression, compile_expression
from refinesynth.world.text_template import VisibleNames

VISIBLE = VisibleNames(("a", "c"))
NUMBERS = [
    *("0", "1", "2", "-1", "-3", "1.0", "1.5", "-0.5", "1e3", "0x1F", "01", "9223372036854775807"),
    "-9223372036854775808",
]
TEXTS = [
    *(r"'a'", r'"b"', r"'c'", r"''", r"'é'", r"'1'", r"'-2'", r"'1e2'", r"'.5'", r"'\n'", r'"\x41"', r"'it\'s'"),
    *(r'"\u00e9"', r"'\101'"),
]
STEPS = (".a", ".b", ".c", "['a']", '["b"]', "[p]", "[0]", "[1]", ".if")
INTEGERS = (0, 1, 2, 3, -1, -2, 7, 2**63 - 1, -(2**63), 2**53 + 1)
FLOATS = (0.0, 1.0, 1.5, -2.5, 1e300, 1e21, -0.0, float(2**53), 1e-7)
Pair = tuple[str, str]
"""An expression, and the same for the library, which walks over objects in an order of chance."""


def value(rng: Random, deep: int) -> Any:
    kind = rng.randrange(10 if deep else 7)
    if kind < 7:
        return rng.choice(
            (None, rng.random() < 0.5, rng.choice(INTEGERS), rng.choice(FLOATS), *("a", "b", "", "é", "1"))
        )
    items = [value(rng, deep - 1) for _ in range(rng.randrange(4))]
    return items if kind == 7 else {rng.choice("abc"): item for item in items}


class Expressions:
    """Expressions of the whole language, most of which mix types that do not fit."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._bound: list[str] = []

    def one(self, deep: int) -> Pair:
        rng = self._rng
        if deep <= 0 or rng.random() < 0.2:
            return self._leaf()
        if rng.random() < 0.1 and len(self._bound) < 3:
            return self._walk(deep)
        form = rng.choice(
            (
                "{} && {}", "{} || {}", "{} && {} || {} && {}", "{} && {} && {} && {} && {}", "{} || {} || {}", "({})",
                f"{{}} {rng.choice(['==', '!=', '<', '<=', '>', '>=', 'in'])} {{}}", "{} in {}", "{} == {}", "({}).a",
                f"{{}} {rng.choice(['==', '<', 'in'])} {{}} {rng.choice(['!=', 'in'])} {{}}", "({} ? {} : {})",
                f"{{}} {rng.choice('-*/%')} {{}}", f"{{}} {rng.choice('-*')} {{}} {rng.choice('-/%')} {{}}",
                # Not an object after a list, whose keys the library adds in an order of chance.
                "{} + [{}]", "{} + 1", "{} + 'a'", "1.5 + {}", "2 + {}", "'a' + {}", "true + {}", "{} - 1 + 2",
                # Not two signs or a minus before any value: the library negates what has no negative, CEL does not.
                "(!({}))", "(-(({}) - 1))", "(!!(({}) == ({})))", "(!!!(({}) in ({})))", "(--(({}) * ({})))",
                "[{}, {}, {}]", "[{}]", "({})[{}]", "state[{}]",
                f"{rng.choice(['size', 'int', 'double', 'string'])}({{}})", "({}).size()", "has(({}).b)",
                f"({{}}).{rng.choice(['contains', 'startsWith', 'endsWith'])}({{}})",
            )
        )  # fmt: skip
        parts = [self.one(deep - 1 - rng.randrange(2)) for _ in range(form.count("{}"))]
        # The library counts the bytes of a text, CEL its characters.
        its = form.replace("({}).size()", "length({})").replace("size(", "length(")
        return form.format(*(ours for ours, _ in parts)), its.format(*(theirs for _, theirs in parts))

    def _leaf(self) -> Pair:
        rng = self._rng
        place = "state" + "".join(rng.choice(STEPS) for _ in range(rng.randrange(1, 4)))
        known = ("true", "false", "null", "p", "p", "gone", "visible", "!true", "- 1", *self._bound, *self._bound)
        text = rng.choice((place, place, rng.choice(known), rng.choice(NUMBERS), rng.choice(TEXTS), "has(state.a.b)"))
        return text, text

    def _walk(self, deep: int) -> Pair:
        ours, theirs = self.one(deep - 1)
        name, variable = self._rng.choice(("all", "exists", "exists_one", "filter")), self._rng.choice("xyz")
        self._bound.append(variable)
        mine, its = self.one(deep - 1)
        self._bound.pop()
        return f"({ours}).{name}({variable}, {mine})", f"sorted_keys({theirs}).{name}({variable}, {its})"


def sorted_keys(items: Any) -> Any:
    return sorted(cast("dict[str, Any]", items)) if isinstance(items, dict) else items


def librarys(source: str, names: dict[str, Any]) -> bool | None:
    try:
        answer = cel.compile(source).execute(cel.Context(names, {"sorted_keys": sorted_keys, "length": len}))
    except (KeyError, IndexError, TypeError, ArithmeticError, RuntimeError):
        return None
    return answer if isinstance(answer, bool) else None


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_any_expression_has_the_librarys_answer_and_depends_on_what_it_reads_alone(count: int) -> None:
    rng = Random(count)
    for _ in range(count):
        ours, theirs = Expressions(rng).one(rng.randrange(1, 5))
        state: JsonValue = {name: value(rng, 3) for name in "abc"}
        values = {"p": rng.choice(["a", "b", "x", ""])}
        expression = compile_expression(ours, {"p", "gone"}, visible=lambda _: VISIBLE, max_cost=2**99)
        answer = expression.answer(state, values)
        names: dict[str, Any] = {"state": state, "visible": list(VISIBLE.names), **values}
        assert (None if isinstance(answer, str) else answer) is librarys(theirs, names), (ours, state, values)
        question = expression.inputs(state, values)
        assert question is not None
        assert expression.answer(json.loads(question)[0], values) == answer, (ours, state, values)


def walk(world: World, rng: Random, steps: int) -> None:
    actions = tuple(ground_actions(world))
    replay(world, [rng.choice(actions) for _ in range(steps)])
    if world.script.rulebook is not None:
        replay(world, world.script.rulebook.solution)


@pytest.mark.parametrize("name", [*NAMES, *(str(seed) for seed in range(12))])
def test_every_condition_of_a_rulebook_has_the_librarys_answer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, asked = Expression.answer, set[str]()

    def compared(self: Expression, state: JsonValue, values: Any) -> bool | str:
        found = answer(self, state, values)
        names = {"state": state, **values} | ({"visible": list(self.visible(state).names)} if self.visible else {})
        assert (None if isinstance(found, str) else found) is librarys(self.cel, names), (self.cel, state, values)
        asked.add(self.cel)
        return found

    script = world(name).script if name in NAMES else draw_scene(random_label(Random(name))).grounded
    monkeypatch.setattr(Expression, "answer", compared)
    walk(World(script), Random(name), 60)
    assert len(asked) > 3
