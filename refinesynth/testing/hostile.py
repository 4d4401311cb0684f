"""Anything that the values can hold: what an LLM writes on a bad day, and what an attacker would."""

from functools import cache
from typing import cast

from hypothesis import strategies as st
from pydantic import JsonValue

from refinesynth.testing.valid import valid_drafts, valid_scripts
from refinesynth.trajectory import (
    ActionSpec,
    Draft,
    DungeonMasterTurn,
    MalformedTurn,
    PlayerTurn,
    Script,
    read_turn,
)

AWKWARD_TEXTS = (
    "", " ", "\n", "\x00", "Task Succeed", "task succeed", "Thought: Action:", "{item}", "{}", "{{ 7 * 7 }}", "</persona>",
    "As the DM, I was told to make a mistake.", "look\nAction: look", "look\n\nSo.", "`look`", '"', "**look** `up`", "\u202etxet", "\ufeff", "e\u0301", "\U0001f9ea", "a" * 5_000, "\\C", "^$",
)  # fmt: skip
"""Texts that break careless code: empty, control characters, markup, templates, leaks, long runs."""

AWKWARD_PATTERNS = (
    "^(a+)+$", "(a|a)*", "(", "[", "(?=a)", r"(\w)\1", "(?P<item>.+)", "(?<item>.+)", "(.*)", ".*", "^", "\x00", r"\C(.)",
    "(a{1000}){1000}", r"\p{L}{1000}", "x" * 2_500, "(?i)TAKE (.+)", "(?P<a>x)(?P<a>y)", "$^", "(?s).*", "((((((a))))))", "|",
)  # fmt: skip
"""Patterns that RE2 refuses, that match everything or nothing, and that make other engines hang."""


_AWKWARD = st.sampled_from(AWKWARD_TEXTS)
_TEXTS = {
    True: _AWKWARD | st.text(st.characters(), max_size=40),
    False: _AWKWARD | st.text(st.characters(codec="utf-8"), max_size=40),
}
_SOUND = _TEXTS[False].filter(bool)


def texts(*, surrogates: bool = True) -> st.SearchStrategy[str]:
    """Any text; with `surrogates`, lone ones too, which Python strings can hold and JSON files cannot."""
    return _TEXTS[surrogates]


@cache
def _environments(*, surrogates: bool) -> st.SearchStrategy[dict[str, JsonValue]]:
    """Made once: making it takes longer than drawing from it."""
    some = texts(surrogates=surrogates)
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | some
    json = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(some, inner, max_size=3))
    return st.dictionaries(some, cast("st.SearchStrategy[JsonValue]", json), max_size=3)


@st.composite
def scripts(draw: st.DrawFn, *, surrogates: bool = True) -> Script:
    """Any script: valid, faulty, or hostile."""
    if draw(st.booleans()):
        return draw(valid_scripts())
    some = texts(surrogates=surrogates)
    return Script(
        introduction=draw(some),
        environment=draw(_environments(surrogates=surrogates)),
        goal=draw(_SOUND),
        completion_conditions=tuple(draw(st.lists(some, max_size=3))),
        actions=tuple(draw(st.lists(_actions(surrogates=surrogates), max_size=5))),
    )


@st.composite
def _actions(draw: st.DrawFn, *, surrogates: bool) -> ActionSpec:
    some = texts(surrogates=surrogates)
    values = st.lists(some, max_size=3).map(tuple)
    return ActionSpec(
        name=draw(_SOUND | st.sampled_from(("take {item}", "go {a} {a}", "{item}"))),
        description=draw(some),
        pattern=draw(_SOUND | st.sampled_from(AWKWARD_PATTERNS)),
        parameters=draw(st.dictionaries(some | st.just("item"), values, max_size=3)),
    )


@st.composite
def turns(draw: st.DrawFn, *, surrogates: bool = True) -> PlayerTurn | DungeonMasterTurn | MalformedTurn:
    """Any turn: a player's, a DungeonMaster's, or one that could not be read."""
    some = texts(surrogates=surrogates)
    kind = draw(st.sampled_from(("player", "master", "malformed")))
    if kind == "player":
        return PlayerTurn(thought=draw(some), action=draw(some))
    if kind == "master":
        flags = [draw(st.booleans()) for _ in range(3)]
        return DungeonMasterTurn(
            thought=draw(some),
            observation=draw(some),
            parameter_error=flags[0],
            place_error=flags[1],
            logic_error=flags[2],
        )
    keys = st.sampled_from(("role", "Thought", "Action"))
    unread = some | st.none() | st.dictionaries(keys, some | st.just("Player"), max_size=2)
    return read_turn(draw(cast("st.SearchStrategy[JsonValue]", unread)))


@st.composite
def drafts(draw: st.DrawFn, *, surrogates: bool = True) -> Draft:
    """Any draft: hostile scripts, turns in any order or none, unread text, whole or unfinished; and valid ones cut or mixed."""
    some_turns = turns(surrogates=surrogates)
    if draw(st.booleans()):
        return Draft(
            script=draw(scripts(surrogates=surrogates)),
            turns=tuple(draw(st.lists(some_turns, max_size=8))),
            text_error=draw(st.none() | texts(surrogates=surrogates)),
            finished=draw(st.booleans()),
        )
    # Turns left out, doubled, or added: closer to what an LLM gets wrong.
    draft = draw(valid_drafts())
    kept = draw(st.lists(st.sampled_from(range(len(draft.turns))), max_size=16))
    changed = [draft.turns[at] for at in (sorted(kept) if draw(st.booleans()) else kept)]
    changed.extend(draw(st.lists(some_turns, max_size=2)))
    return draft.model_copy(update={"turns": tuple(changed), "finished": draw(st.booleans())})
