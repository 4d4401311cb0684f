"""Matching of a player's text with a script's actions, and the captured parameter values.

A text is an action if all of it, trimmed, matches the action's pattern, and every captured group holds an allowed value
of its parameter. There are as many groups as placeholders. Either all groups are named like the template's
placeholders, or all are unnamed, in the placeholders' order. Case counts, because the text is trained on as written:
fixed words follow the pattern and its flags; values, trimmed, follow the script's spelling. A parameter without allowed
values accepts any value of its type. A group that took no part in the match has no value, so the action does not match.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product, zip_longest

from refinesynth.actions.patterns import Pattern, PatternError, compile_pattern, to_utf8
from refinesynth.text.formatting import listed, quoted
from refinesynth.trajectory import ActionSpec, Script
from refinesynth.trajectory.value import weakly_cached

MAX_ACTION_CHARACTERS = 10_000
"""Longest matched action text, in characters; a longer one matches nothing."""
_COMPARED_CHARACTERS = 200
"""Characters of a text that are compared with action wordings; the comparison is quadratic."""
_COMPARED_ACTIONS = 100
"""Maximum number of actions in the search for the nearest one."""
_COMPARED_WORDINGS = 400
"""Maximum number of wordings in the search for the nearest action."""
_CUTOFF = 0.7
"""Minimum similarity of a suggested wording, from 0 to 1."""
_MAX_QUOTED = 80
"""Characters of a text that are quoted to the player."""
_CASE = "capital and small letters count"
_MAX_CACHED = 256
"""Maximum number of cached results of `match_in` per script: role, rules and the DungeonMaster's request match the same
text in succession."""


@dataclass(frozen=True, slots=True)
class Match:
    """An action text with its action and values."""

    action: ActionSpec
    values: dict[str, str]
    """Placeholder to value: in the script's spelling if it lists values, else in the type's spelling, trimmed."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Reason why a text matches no action."""

    code: str
    """`empty_action`, `action_too_long`, `value_not_allowed` or `unknown_action`."""
    message: str
    """The reason and the nearest valid text, as feedback to an LLM."""


@dataclass(frozen=True, slots=True)
class ActionForm:
    """An action's template and pattern, prepared for matching."""

    pattern: Pattern | None
    """None if RE2 refuses the pattern."""
    names: tuple[str, ...]
    """Placeholder of each group, in order; empty if groups and placeholders do not correspond."""
    problem: str | None
    """Reason why no text can match, for the LLM that wrote the action; None if groups and placeholders correspond."""


def action_form(action: ActionSpec) -> ActionForm:
    """Return the form of `action`, cached by template and pattern."""
    return _form(action.name, action.pattern)


@lru_cache(maxsize=4_096)
def _form(template: str, source: str) -> ActionForm:
    try:
        pattern = compile_pattern(source)
    except PatternError as error:
        return ActionForm(pattern=None, names=(), problem=str(error))
    return ActionForm(pattern, *_assign(pattern, ActionSpec(name=template, pattern=source).placeholders))


def _assign(pattern: Pattern, placeholders: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    """Return the placeholder of each group, or none and the reason."""
    if len(set(placeholders)) < len(placeholders):
        return (), f"the template names a placeholder twice: {listed(placeholders)}"
    if pattern.groups != len(placeholders):
        return (), (
            f"the pattern captures {pattern.groups} groups, but the template has {len(placeholders)} placeholders; "
            "capture each placeholder once, and write (?:...) for any other group"
        )
    if not pattern.names:
        return placeholders, None
    if set(pattern.names) != set(placeholders):
        return (), (
            f"the pattern's named groups are {listed(sorted(pattern.names))}, but the template's placeholders are "
            f"{listed(placeholders)}; name every group after its placeholder, or name none"
        )
    return tuple(sorted(pattern.names, key=lambda name: pattern.names[name])), None


_GROUP = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<open>\()(?!\?)", re.DOTALL)
"""An escaped character, a character class, or the beginning of an unnamed group."""


def other_patterns(action: ActionSpec) -> tuple[str, str]:
    """Return replacements for a pattern that does not fit its action: the same with named groups only, and one derived
    from the template and the allowed values.
    """
    literals = [re.escape(text) for text in re.split(r"\{[^{}]*\}", action.name)]
    allowed = (action.choices(name) for name in action.placeholders)
    groups = [f"({'|'.join(map(re.escape, values)) or '.+?'})" for values in allowed]
    derived = "".join(map("".join, zip_longest(literals, groups, fillvalue="")))
    return _GROUP.sub(lambda match: "(?:" if match["open"] else match[0], action.pattern), derived


def match_action(actions: Sequence[ActionSpec], text: str) -> Match | None:
    """Return the first of `actions` whose pattern and allowed values fit `text`, or None. Never raises.

    Actions whose template begins with the text's first word are tried first; usually one of them matches, and most
    patterns are never compiled.
    """
    if len(text) > MAX_ACTION_CHARACTERS or not (trimmed := text.strip()):
        return None
    encoded = to_utf8(trimmed)
    for action in _likely_first(actions, trimmed):
        if match := _match(action, encoded):
            return match
    return None


def match_in(script: Script, text: str) -> Match | None:
    """Return the match among a script's actions. Recent results are cached as long as the script exists."""
    if len(text) > MAX_ACTION_CHARACTERS:
        return None
    cache = _match_cache(script)
    if text not in cache:
        if len(cache) >= _MAX_CACHED:
            cache.clear()
        cache[text] = match_action(script.actions, text)
    return cache[text]


@weakly_cached
def _match_cache(_script: Script) -> dict[str, Match | None]:
    return {}


_ARTICLE = re.compile(r"\b(?:the|an?)\s+", re.IGNORECASE)


def lenient_action(script: Script, text: str) -> str:
    """Return the text if it is an action; else the only action that differs from it in surrounding quotes, final full
    stops or exclamation marks, articles and the case of its first letter; else the text.
    """
    if match_in(script, text) is not None:
        return text
    bare = text.strip(" \t\n\"'`“”‘’").rstrip(".!").rstrip()  # noqa: RUF001 - quotes that models write
    bodies = (bare, _ARTICLE.sub("", bare))
    variants = [f"{case(body[:1])}{body[1:]}" for body in bodies for case in (str.lower, str.upper)]
    matches = {action_key(script, variant): variant for variant in variants if match_in(script, variant) is not None}
    return matches.popitem()[1] if len(matches) == 1 else text


def nearest_action(script: Script, text: str) -> str | None:
    """Return the action with the wording nearest to a text that is no action; None if none is similar. Actions with
    open values, and wordings after the first `_COMPARED_WORDINGS`, are not considered.
    """
    if not (target := text.strip()[:_COMPARED_CHARACTERS].casefold()):
        return None
    wordings = (
        action.fill(dict(zip(action.placeholders, values, strict=True)))
        for action in _likely_first(script.actions, text.strip())
        for values in product(*map(action.choices, action.placeholders))
    )
    by_text = {wording[:_COMPARED_CHARACTERS].casefold(): wording for wording in islice(wordings, _COMPARED_WORDINGS)}
    matches = (by_text[one] for one in difflib.get_close_matches(target, by_text, n=1, cutoff=_CUTOFF))
    return next((one for one in matches if match_in(script, one) is not None), None)


def action_key(script: Script, text: str) -> tuple[str, ...]:
    """Return a key for the effect of a text: equal for texts that are the same action with the same values, and for
    equal texts that are no action.

    The amount of white space is ignored; case counts if it matters to the pattern.
    """
    match = match_in(script, text)
    parts = (text,) if match is None else (match.action.name, *match.values.values())
    return tuple(" ".join(part.split()) for part in parts)


def match_pattern(action: ActionSpec, text: str) -> dict[str, str | None] | None:
    """Return the values that the pattern of `action` captures from `text`, by placeholder, allowed or not; None without
    a match.
    """
    return None if len(text) > MAX_ACTION_CHARACTERS else _captured(action, to_utf8(text.strip()))


def explain_mismatch(actions: Sequence[ActionSpec], text: str) -> Mismatch:
    """Return the reason why no action matches, and the nearest valid text, as feedback to the LLM that wrote the
    action.

    Never raises. The result has no meaning for a text that matches.
    """
    if len(text) > MAX_ACTION_CHARACTERS:
        message = f"The action has {len(text):,} characters; write one available action in one line."
        return Mismatch("action_too_long", message)
    if not text.strip():
        return Mismatch("empty_action", f"The action is empty. Available actions: {_names(actions)}.")
    for action in _likely_first(actions, text.strip()):
        captured = match_pattern(action, text)
        if captured is not None:
            return Mismatch("value_not_allowed", _explain_values(action, captured, text))
    return Mismatch("unknown_action", _explain_unknown(actions, text))


def refusal(actions: Sequence[ActionSpec], text: str) -> str:
    """Return the message of a world to a player whose text is no action: one plain sentence with a hint, without a list
    of actions.

    Never raises. The result has no meaning for a text that matches. `explain_mismatch` returns the full reason for an
    LLM that must fix its text.
    """
    if not text.strip():
        return "Nothing is done, so nothing happens."
    if len(text) > MAX_ACTION_CHARACTERS:
        return "That is far too much to do at once."
    if (unavailable := unavailable_value(actions, text)) is None:
        return f"{quoted(text.strip(), limit=_MAX_QUOTED)} cannot be done here."
    action, name, value = unavailable
    shown, parameter = quoted(value, limit=_MAX_QUOTED), " ".join(name.replace("_", " ").split())
    if (kind := action.type_of(name)).type != "string" and kind.canonical(value) is None:
        return f"{shown} cannot be: {parameter} is {kind.expected(value)}."
    return f"No {parameter} is {'called' if same_ignoring_case(action, name, value) is None else 'spelled'} {shown}."


def unavailable_value(actions: Sequence[ActionSpec], text: str) -> tuple[ActionSpec, str, str] | None:
    """Return the first value in a text that its action does not allow, with action and placeholder; None without one."""
    for action in actions:
        for name, value in (match_pattern(action, text) or {}).items():
            if value is not None and allowed_value(action, name, value) is None:
                return action, name, value.strip()
    return None


def _likely_first(actions: Sequence[ActionSpec], trimmed: str) -> list[ActionSpec]:
    word = trimmed.split(maxsplit=1)[0]
    return sorted(actions, key=lambda action: not action.name.startswith(word))


def _match(action: ActionSpec, trimmed: bytes) -> Match | None:
    captured = _captured(action, trimmed)
    if captured is None:
        return None
    values: dict[str, str] = {}
    for name, value in captured.items():
        allowed = allowed_value(action, name, value)
        if allowed is None:
            return None
        values[name] = allowed
    return Match(action, values)


def _captured(action: ActionSpec, trimmed: bytes) -> dict[str, str | None] | None:
    form = action_form(action)
    if form.pattern is None or form.problem is not None:
        return None
    groups = form.pattern.fullmatch(trimmed)
    return None if groups is None else dict(zip(form.names, groups, strict=True))


def allowed_value(action: ActionSpec, name: str, value: str | None) -> str | None:
    """Return the value in the script's spelling, or None if it is not allowed."""
    if value is None:
        return None
    kind = action.types.get(name)
    text = value.strip() if kind is None else kind.canonical(value)
    allowed = action.parameters.get(name, ())
    if action.function is not None and text == f"{{{name}}}":
        return None  # the placeholder stands for a required argument that a call lacks
    if not allowed or text is None or text in allowed or (kind is not None and kind.optional and not text):
        return text
    normalize = str.strip if kind is None else kind.canonical
    return next((choice for choice in allowed if normalize(choice) == text), None)


def same_ignoring_case(action: ActionSpec, name: str, value: str) -> str | None:
    """Return the allowed value that differs only in case, if any."""
    target = value.strip().casefold()
    return next((choice for choice in action.parameters.get(name, ()) if choice.strip().casefold() == target), None)


def _explain_values(action: ActionSpec, captured: dict[str, str | None], text: str) -> str:
    reasons: list[str] = []
    for name, value in captured.items():
        if value is None:
            reasons.append(f"{{{name}}} is missing")
        elif allowed_value(action, name, value) is None:
            similar = same_ignoring_case(action, name, value)
            allowed = action.parameters.get(name, ())
            choices = f"only one of: {listed(allowed)}" if allowed else f"only {action.type_of(name).expected(value)}"
            choices = choices if similar is None else f"only {quoted(similar)}: {_CASE}"
            reasons.append(f"{{{name}}} cannot be {quoted(value)}, {choices}")
    return f"{quoted(text)} has the form {quoted(action.name)}, but {'; '.join(reasons)}."


def _explain_unknown(actions: Sequence[ActionSpec], text: str) -> str:
    message = f"{quoted(text)} is no available action."
    if not actions:
        return f"{message} The script has none."
    target = text.strip()[:_COMPARED_CHARACTERS].casefold()
    templates = {action.name[:_COMPARED_CHARACTERS].casefold(): action.name for action in actions[:_COMPARED_ACTIONS]}
    nearest = templates[difflib.get_close_matches(target, templates, n=1, cutoff=0.0)[0]]
    forms = (action_form(action).pattern for action in actions if action.name == nearest)
    sources = (pattern.source for pattern in forms if pattern is not None)
    encoded = to_utf8(text.strip())
    hint = f": {_CASE}" if any(compile_pattern(source, ignore_case=True).matches(encoded) for source in sources) else ""
    return f"{message} The nearest is {quoted(nearest)}{hint}. Available actions: {_names(actions)}."


def _names(actions: Iterable[ActionSpec]) -> str:
    return listed(action.name for action in actions) or "none"
