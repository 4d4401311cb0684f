"""Ruling on an action, with the changes of the state."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from pydantic import JsonValue

from refinesynth.trajectory import MistakeKind
from refinesynth.world.expression import json_bytes
from refinesynth.world.json_pointer import json_equal, pointer_text
from refinesynth.world.text_template import enumerated

MAX_CHANGES = 32
"""Maximum number of changes in a ruling."""

MAX_CHANGE_BYTES = 1_000
"""Largest value that a change shows, in bytes of JSON; a larger one is described by its size."""

MAX_LISTED_NAMES = 40
"""Maximum number of names in a sentence; the others are counted."""

MAX_SEARCHED = 20_000
"""Number of characters at the beginning of an observation that are searched for names."""

_MAX_COMPARED = 10 * MAX_SEARCHED
"""Maximum length of all examined occurrences of a name, in characters; reached only if they overlap."""


@dataclass(frozen=True, slots=True)
class Change:
    """A changed place of the state."""

    path: str
    """JSON Pointer."""
    before: JsonValue
    """Value before the action; null if there was none. A value that is too large is described in parentheses."""
    after: JsonValue
    """Value after the action, in the same form; null if there is none."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """Outcome of an action."""

    state: JsonValue
    """State after it; the given object if nothing changed."""
    kind: MistakeKind | None
    """Kind of the mistake; None for an accepted action."""
    text: str
    """Observation, hint of the unmet requirement, or message about a text that is no action. With sights, it ends with
    the names that appeared and that it does not mention; a refusal with effects can show names too."""
    action: str | None
    """Name template of the action; None for a text that is no action."""
    values: Mapping[str, str]
    """Its parameters in the script's spelling."""
    done: bool
    """True if the goal is reached."""
    progress: float
    """Share of the goal's conditions that hold, 0 to 1; 1 exactly if done."""
    problem: str | None = None
    """Fault of the rulebook or state, addressed to its author: a condition without an answer, an effect that cannot be
    applied, a broken invariant. Such an action counts as a logic mistake and changes nothing. Other mistakes change the
    state by the effects of the unmet requirement, if it has any."""
    visible: tuple[str, ...] = ()
    """Names that are visible after it."""
    appeared: tuple[str, ...] = ()
    """Names that are visible after it and were not before."""
    changed: tuple[Change, ...] = ()
    """Changes of the state, at most `MAX_CHANGES`."""


def state_changes(before: JsonValue, after: JsonValue) -> tuple[Change, ...]:
    """Return the differences between two states, in the order of the newer one's keys, at most `MAX_CHANGES`.

    Objects are compared by key. Lists of the same length that hold only objects and lists are compared by item.
    All other values are compared as a whole.
    """
    return tuple(islice(_changes((), before, after), MAX_CHANGES))


def with_appeared(text: str, appeared: tuple[str, ...]) -> str:
    """Return the observation with a sentence about appeared names that it does not mention."""
    unmentioned = [name for name in appeared if not mentions(text, name)]
    if len(unmentioned) > MAX_LISTED_NAMES:
        count = len(unmentioned) - MAX_LISTED_NAMES
        unmentioned = [*unmentioned[:MAX_LISTED_NAMES], f"{count} other things"]
    return f"{text} In sight: {enumerated(unmentioned)}." if unmentioned else text


def mentions(text: str, name: str) -> bool:
    """Return whether a name occurs in a text as whole words, without regard to case, within the first `MAX_SEARCHED`
    characters; an empty name never occurs.
    """
    # Not with a regular expression, which is slow for a long name that repeats itself.
    text, name = text[:MAX_SEARCHED].casefold(), name.casefold()
    start = text.find(name) if name else -1
    remaining = _MAX_COMPARED
    while start >= 0 and remaining > 0:
        end = start + len(name)
        starts_word = not (text[start - 1 : start].isalnum() and name[0].isalnum())
        ends_word = not (name[-1].isalnum() and text[end : end + 1].isalnum())
        if starts_word and ends_word:
            return True
        start, remaining = text.find(name, start + 1), remaining - len(name)
    return False


def _changes(keys: tuple[str, ...], before: JsonValue, after: JsonValue) -> Iterator[Change]:
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in (*after, *(removed for removed in before if removed not in after)):
            if key not in before or key not in after:
                yield Change(pointer_text((*keys, key)), _abbreviated(before.get(key)), _abbreviated(after.get(key)))
            else:
                yield from _changes((*keys, key), before[key], after[key])
    elif (
        isinstance(before, list)
        and isinstance(after, list)
        and len(before) == len(after)
        and all(isinstance(item, dict | list) for item in (*before, *after))
    ):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _changes((*keys, str(index)), old, new)
    elif not json_equal(before, after):
        yield Change(pointer_text(keys), _abbreviated(before), _abbreviated(after))


def _abbreviated(value: JsonValue) -> JsonValue:
    encoded = json_bytes(value)
    if encoded is not None and len(encoded) <= MAX_CHANGE_BYTES:
        return value
    if isinstance(value, dict | list):
        return f"({'an object' if isinstance(value, dict) else 'a list'} of {len(value):,})"
    return f"(a text of {len(str(value)):,} characters)"
