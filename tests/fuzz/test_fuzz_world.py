"""No rulebook, state or text makes the executor raise, hang or exceed its bounds: only compiling refuses, in words."""

import re
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
from fuzzing import TEXTS, damaged, only, thoroughly
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue, ValidationError
from samples import SHED_GROUNDED, with_rulebook

from refinesynth.prompts import Prompts
from refinesynth.testing import texts
from refinesynth.trajectory import Knowledge, Script
from refinesynth.world import RulebookError, World, check_solvability, ground_actions, plan, replay
from refinesynth.world.compiled_action import MAX_CHANGES
from refinesynth.world.explore import MAX_FAULTS
from refinesynth.world.expression import MAX_STATE_BYTES
from refinesynth.world.visibility import MAX_VISIBLE

_DOCUMENT = (Path(__file__).parents[2] / "docs" / "puzzles.md").read_text(encoding="utf-8")
SCRIPTS = (
    *(Script.from_json(code) for code in re.findall(r"\.json <<'END'\n(.*?)\nEND", _DOCUMENT, re.DOTALL)),
    with_rulebook(SHED_GROUNDED, knows=Knowledge(path="/player/holding", texts=("saw", "key"))),
    *Prompts().examples.grounded[:1],
)
"""With all that the language has, also what is rarely used."""

_pieces = st.sampled_from(
    (
        *TEXTS,
        "state", "state.you", "state.n", "visible", "each", "{visible}", "{each}", "{state:/you}", "{state:/{state:/n}}", "/", "/-", "/0", "&& true",
        "|| false", "!(", ")", "in", "==", ".exists(a, a.exists(b, true))", "[0]", "1 / 0", "9223372036854775807 + 1", "add", "set", "remove", "move",
        "before", "before.n", "else", "{any}", "/{any}/{each}", ".sum(x, 1)", "state.prices.sum(p, state.prices[p])", "cel", "/rooms", "/knows",
        "null", "[]", "{}", "true", "0", '"value": null', ".+", "()", "(?P<p>x)", "{p}",
    )
)  # fmt: skip
_right = st.sampled_from([orjson.dumps(one.model_dump(mode="json")).decode() for one in SCRIPTS])


@st.composite
def _spliced(draw: st.DrawFn) -> str:
    """The script with some of its words replaced by others of them, or by pieces that somebody stumbles over."""
    script = draw(_right)
    words = script.split('"')
    for at in draw(st.lists(st.integers(0, len(words) - 1), max_size=5)):
        # Quotes stand before what has an odd index.
        words[at | 1 if at + 1 < len(words) else at] = draw(
            st.sampled_from(words[1::2]) | _pieces.filter(lambda piece: '"' not in piece and "\\" not in piece)
        )
    return '"'.join(words)


def _read(text: str) -> Script | None:
    try:
        return Script.from_llm(orjson.loads(text.encode(errors="surrogatepass")))
    except (ValidationError, orjson.JSONDecodeError):
        return None


def _actions(world: World) -> st.SearchStrategy[list[str]]:
    some = [*islice(ground_actions(world), 200), "say "]
    return st.lists(st.sampled_from(some) | texts() | st.text(st.characters(), max_size=9), max_size=8)


@thoroughly
@given(_spliced() | damaged(_right), st.data(), st.sets(st.integers(0, 9)))
def test_any_script_is_refused_in_words_or_played_within_bounds(
    text: str, data: st.DataObject, transient: set[int]
) -> None:
    script = _read(text)
    if script is None:
        return
    assert len(script.digest) == 16
    found: Any = only(RulebookError)(lambda: World(script))
    solvability = check_solvability(script)
    assert len(solvability.faults) <= MAX_FAULTS
    if found is None:
        assert solvability.problem
        return
    world: World = found
    for ruling in replay(world, data.draw(_actions(world)), transient):
        encoded = orjson.dumps(ruling.state)
        assert len(encoded) <= MAX_STATE_BYTES
        assert ruling.text.strip() or ruling.text == ""
        assert len(ruling.visible) <= MAX_VISIBLE
        assert len(ruling.changed) <= MAX_CHANGES
        assert set(ruling.appeared) <= set(ruling.visible)
        assert (ruling.problem is None) or ruling.kind is not None
    if solvability.shortest:
        rulings = replay(world, solvability.shortest)
        assert rulings[-1].done
        assert not any(ruling.kind for ruling in rulings)


_keys = st.sampled_from(sorted({key for one in SCRIPTS for key in re.findall(r'"(\w+)":', str(one.to_json()))}))
_states: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts() | _keys,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_keys | texts(), inner, max_size=5),
    max_leaves=15,
)


@thoroughly
@given(st.sampled_from(SCRIPTS), _states, st.data())
def test_any_state_is_played_in(script: Script, state: JsonValue, data: st.DataObject) -> None:
    world = World(script)
    has_costs = any(need.effects for action in script.actions for need in action.requires)
    for action in data.draw(_actions(world)):
        ruling = world.step(state, action)
        assert isinstance(world.visible(state), tuple)
        assert ruling.kind is None or ruling.state is state or has_costs
        assert ruling.problem is None or ruling.state is state
        state = ruling.state
    found = plan(world, state, most=3)
    assert found is None or isinstance(found, tuple)
