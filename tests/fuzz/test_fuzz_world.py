"""No rulebook, state or text makes the executor raise, hang or exceed its bounds: only compiling refuses, in words."""

from typing import Any

import orjson
from fuzzing import TEXTS, damaged, only, thoroughly
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue, ValidationError

from refinesynth.testing import texts
from refinesynth.trajectory import Script
from refinesynth.world import RulebookError, World, check_solvability, plan, replay
from refinesynth.world.explore import MAX_FAULTS
from refinesynth.world.expression import MAX_STATE_BYTES
from refinesynth.world.ruling import MAX_CHANGES
from refinesynth.world.visibility import MAX_VISIBLE

_RIGHT: Any = {
    "environment": {
        "you": {"at": "hall", "bag": []},
        "rooms": {"hall": {"things": ["key"], "open": True}, "den": {"things": ["lamp", "cup"], "open": False}},
        "n": 0,
    },
    "goal": "Bring the lamp into the hall.",
    "completion_conditions": ["The lamp is in the hall.", "It was counted."],
    "actions": [
        {
            "name": "go to {room}",
            "pattern": "go to (.+)",
            "parameters": {"room": ["hall", "den"]},
            "requires": [
                {"condition": "state.you.at != room", "hint": "You are in {state:/you/at}."},
                {"condition": "state.rooms[room].open || 'key' in state.you.bag", "kind": "place"},
            ],
            "effects": [
                {"op": "set", "path": "/you/at", "value": "{room}"},
                {"op": "add", "path": "/n", "value": 1, "when": "state.n < 99"},
            ],
            "reveals": "You are in the {room} with {state:/rooms/{state:/you/at}/things}; {visible}.",
        },
        {
            "name": "take {thing}",
            "pattern": "(?i)take (?P<thing>.+)",
            "parameters": {"thing": ["key", "lamp", "cup"]},
            "requires": [{"condition": "thing in visible && size(state.you.bag) < 2"}],
            "effects": [
                {"op": "move", "from_path": "/rooms/{state:/you/at}/things", "path": "/you/bag", "value": "{thing}"}
            ],
        },
        {
            "name": "drop {thing}",
            "pattern": "drop (.+)",
            "parameters": {"thing": ["key", "lamp", "cup"]},
            "requires": [{"condition": "state.you.bag.exists(t, t == thing)"}],
            "effects": [
                {"op": "remove", "path": "/you/bag", "value": "{thing}"},
                {"op": "add", "path": "/rooms/{state:/you/at}/things", "value": "{thing}"},
            ],
        },
        {
            "name": "say {words}",
            "pattern": "say (.*)",
            "effects": [{"op": "set", "path": "/said", "value": ["{words}", "{state:/n}"]}],
        },
    ],
    "rulebook": {
        "goal": ["'lamp' in state.rooms.hall.things", "state.n > 1"],
        "sights": [
            {"path": "/rooms/{state:/you/at}/things"},
            {"path": "/rooms/{each}/things", "each": "/rooms", "when": "state.rooms[each].open"},
            {"path": "/you/bag"},
        ],
        "invariants": [{"condition": "size(state.you.bag) <= 3", "sentence": "Two hands."}],
        "solution": ["take key", "go to den", "take lamp", "go to hall", "drop lamp"],
    },
}

_RICH: Any = {
    **_RIGHT,
    "environment": {**_RIGHT["environment"], "prices": {"lamp": 2, "cup": 3}, "knows": ["key"], "row": [1, 2]},
    "introduction": "You stand in the hall with a key.",
    "actions": [
        *_RIGHT["actions"],
        {
            "name": "sell {thing}",
            "pattern": "sell (.+)",
            "parameters": {"thing": ["lamp", "cup"]},
            "requires": [
                {
                    "condition": "thing in state.knows && state.n >= 0",
                    "kind": "place",
                    "hint": "You know of no {thing}.",
                    "effects": [
                        {"op": "add", "path": "/prices/{each}", "value": {"cel": "-1"}, "each": "/prices"},
                        {"op": "set", "path": "/fined", "value": {"cel": "before.n"}, "when": "state.n > before.n"},
                    ],
                }
            ],
            "effects": [
                {
                    "op": "move",
                    "from_path": "/rooms/{any}/things",
                    "path": "/you/bag",
                    "value": "{thing}",
                    "when": "before.n < 2",
                },
                {"op": "add", "path": "/n", "value": {"cel": "state.prices.sum(p, state.prices[p])"}, "when": "else"},
                {"op": "remove", "path": "/rooms/{any}/things", "value": "{thing}", "when": "else"},
                {
                    "op": "set",
                    "path": "/row/{each}",
                    "value": {"cel": "before.row[int(each)] + state.row[0]"},
                    "each": "/row",
                },
            ],
            "reveals": [
                {"when": "before.n != state.n || thing in visible", "text": "Sold: {thing}, key, {state:/n}."},
                {"text": "{visible}, {state:/knows}"},
            ],
        },
    ],
    "rulebook": {
        **_RIGHT["rulebook"],
        "sights": [
            *_RIGHT["rulebook"]["sights"],
            {"path": "cup", "when": "state.n > 0"},
            {"path": "{each}", "each": "/knows"},
        ],
        "each_step": [
            {"op": "add", "path": "/n", "value": 1, "when": "state.n < 5"},
            {"op": "set", "path": "/n", "value": 0, "when": "else"},
        ],
        "knows": {"path": "/knows", "texts": ["cup", "lamp", "key"]},
    },
}
"""The same with all that is rarely used."""

_pieces = st.sampled_from(
    (
        *TEXTS,
        "state", "state.you", "state.n", "visible", "each", "{visible}", "{each}", "{state:/you}", "{state:/{state:/n}}", "/", "/-", "/0", "&& true",
        "|| false", "!(", ")", "in", "==", ".exists(a, a.exists(b, true))", "[0]", "1 / 0", "9223372036854775807 + 1", "add", "set", "remove", "move",
        "before", "before.n", "else", "{any}", "/{any}/{each}", ".sum(x, 1)", "state.prices.sum(p, state.prices[p])", "cel", "/rooms", "/knows",
        "null", "[]", "{}", "true", "0", '"value": null', ".+", "()", "(?P<p>x)", "{p}",
    )
)  # fmt: skip
_right = st.sampled_from([orjson.dumps(one).decode() for one in (_RIGHT, _RICH)])


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


_actions = st.lists(
    st.sampled_from(
        (
            "take key",
            "go to den",
            "GO TO HALL",
            "take lamp",
            "drop lamp",
            "say x",
            "say ",
            "drop",
            "go to moon",
            "sell cup",
            "sell lamp",
        )
    )
    | texts()
    | st.text(st.characters(), max_size=9),
    max_size=8,
)


@thoroughly
@given(_spliced() | damaged(_right), _actions, st.sets(st.integers(0, 9)))
def test_any_script_is_refused_in_words_or_played_within_bounds(
    text: str, actions: list[str], transient: set[int]
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
    for ruling in replay(world, actions, transient):
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


@thoroughly
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | texts() | st.sampled_from(("hall", "den", "key")),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    ("you", "rooms", "at", "bag", "hall", "den", "things", "open", "n", "prices", "knows", "row")
                )
                | texts(),
                inner,
                max_size=5,
            )
        ),
        max_leaves=15,
    ),
    _actions,
)
def test_any_state_is_played_in(state: JsonValue, actions: list[str]) -> None:
    for one in (_RIGHT, _RICH):
        _play_in(World(Script.model_validate(one)), state, actions)


def _play_in(world: World, state: JsonValue, actions: list[str]) -> None:
    for action in actions:
        ruling = world.step(state, action)
        assert isinstance(world.visible(state), tuple)
        assert (ruling.kind is None) or ruling.state is state or ruling.action == "sell {thing}"
        assert ruling.problem is None or ruling.state is state
        state = ruling.state
    found = plan(world, state, most=3)
    assert found is None or isinstance(found, tuple)
