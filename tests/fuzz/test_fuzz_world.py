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
from refinesynth.world.visibility import MAX_SEEN

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

_pieces = st.sampled_from(
    (
        *TEXTS,
        "state", "state.you", "state.n", "visible", "each", "{visible}", "{each}", "{state:/you}", "{state:/{state:/n}}", "/", "/-", "/0", "&& true",
        "|| false", "!(", ")", "in", "==", ".exists(a, a.exists(b, true))", "[0]", "1 / 0", "9223372036854775807 + 1", "add", "set", "remove", "move",
        "null", "[]", "{}", "true", "0", '"value": null', ".+", "()", "(?P<p>x)", "{p}",
    )
)  # fmt: skip
_right = st.just(orjson.dumps(_RIGHT).decode())


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
        ("take key", "go to den", "GO TO HALL", "take lamp", "drop lamp", "say x", "say ", "drop", "go to moon")
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
        assert len(ruling.visible) <= MAX_SEEN
        assert len(ruling.changed) <= MAX_CHANGES
        assert set(ruling.appeared) <= set(ruling.visible)
        assert (ruling.problem is None) or ruling.kind is not None
    if solvability.shortest:
        assert replay(world, solvability.shortest)[-1].done


@thoroughly
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | texts() | st.sampled_from(("hall", "den", "key")),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(("you", "rooms", "at", "bag", "hall", "den", "things", "open", "n")) | texts(),
                inner,
                max_size=5,
            )
        ),
        max_leaves=15,
    ),
    _actions,
)
def test_any_state_is_played_in(state: JsonValue, actions: list[str]) -> None:
    world = World(Script.model_validate(_RIGHT))
    for action in actions:
        ruling = world.step(state, action)
        assert isinstance(world.visible(state), tuple)
        assert (ruling.kind is None) or ruling.state is state
        state = ruling.state
    found = plan(world, state, most=3)
    assert found is None or isinstance(found, tuple)
