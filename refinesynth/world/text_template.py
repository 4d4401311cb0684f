"""Templates of texts and pointers with parameters and lookups.

`{item}` is a parameter's value, `{state:/places/{place}/items}` a value of the state, `{visible}` in a text the visible
names, and `{{` and `}}` are braces. In a text, values are worded: a list is `a, b and c`, an empty one `nothing`, an
object the list of its keys, null and missing values `nothing`, true and false `yes` and `no`. A step of a pointer may
contain parameters and lookups; a slash in a value never begins a new step.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache

from pydantic import JsonValue

from refinesynth.text.json_reader import scrub
from refinesynth.world.json_pointer import resolve, unescape
from refinesynth.world.rulebook_errors import Inapplicable, RulebookError

REMEMBERED = 4_096
"""Maximum number of cached texts of each kind: templates, pointers and conditions. Worlds share many texts, and each
world is compiled several times."""

MAX_POINTER_STEPS = 32
"""Maximum number of steps in a pointer."""

MAX_NESTING = 4
"""Deepest nesting of lookups."""

MAX_FILLED = 32
"""Maximum number of parameters and lookups in a text."""

MAX_VALUE_CHARACTERS = 4_000
"""Longest worded value, in characters; the rest is cut off."""

VISIBLE = "visible"
"""Variable for the visible names in conditions and texts."""

_LOOKUP = "state:"


@dataclass(frozen=True, slots=True)
class VisibleNames:
    """Names that the player can see."""

    names: tuple[str, ...]
    """Names without duplicates, in the order of the sights; keys of an object are sorted."""
    problem: str | None = None
    """Message to the author about the first fault: a sight without an answer, too many evaluations or too many
    names; None without a fault."""
    known: frozenset[str] = field(init=False, repr=False)
    """The same names as a set."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", frozenset(self.names))


Visible = Callable[[JsonValue], VisibleNames]
"""Function from a state to its visible names."""

Values = Mapping[str, JsonValue]
"""Values of variables by name: parameters, which are texts, and others."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A parameter."""

    name: str

    def read(self, state: JsonValue, values: Values) -> JsonValue:
        """Return its value; `Inapplicable` if the action has none."""
        del state
        try:
            return values[self.name]
        except KeyError:
            raise Inapplicable(f"the action has no value for {{{self.name}}}") from None


@dataclass(frozen=True, slots=True)
class Pointer:
    """A JSON Pointer whose steps are templates."""

    steps: "tuple[Template, ...]"

    def keys(self, state: JsonValue, values: Values) -> tuple[str, ...]:
        """Return the current keys; `Inapplicable` if a lookup finds neither a text nor a whole number."""
        return tuple([step.key(state, values) for step in self.steps])

    def read(self, state: JsonValue, values: Values) -> JsonValue:
        """Return the state's value there; `Inapplicable` if there is none."""
        return resolve(state, self.keys(state, values))


@dataclass(frozen=True, slots=True)
class VisibleLookup:
    """The visible names."""

    visible: Visible

    def read(self, state: JsonValue, values: Values) -> JsonValue:
        """Return all visible names."""
        del values
        return list(self.visible(state).names)


Part = str | Slot | Pointer | VisibleLookup
"""Part of a template; a text is literal."""


@dataclass(frozen=True, slots=True)
class Template:
    """Literal text, parameters and lookups in order."""

    parts: tuple[Part, ...]

    @property
    def constant(self) -> str | None:
        """The text, if it has no parameters or lookups; else None."""
        if not self.parts:
            return ""
        return self.parts[0] if len(self.parts) == 1 and isinstance(self.parts[0], str) else None

    def text(self, state: JsonValue, values: Values) -> str:
        """Return the text in words; missing values are `nothing`."""
        return "".join(part if isinstance(part, str) else _words_of(part, state, values) for part in self.parts)

    def value(self, state: JsonValue, values: Values) -> JsonValue:
        """Return the JSON value if the template is one lookup, else the text; `Inapplicable` if a value is missing."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Pointer):
            return self.parts[0].read(state, values)
        return "".join(
            part if isinstance(part, str) else value_as_words(part.read(state, values)) for part in self.parts
        )

    def key(self, state: JsonValue, values: Values) -> str:
        """Return the text as a pointer's step."""
        if len(self.parts) == 1:
            # Nearly all steps consist of one part.
            part = self.parts[0]
            return part if isinstance(part, str) else _as_key(part.read(state, values))
        return "".join(part if isinstance(part, str) else _as_key(part.read(state, values)) for part in self.parts)


def value_as_words(value: JsonValue) -> str:
    """Return a JSON value as words, at most `MAX_VALUE_CHARACTERS` characters."""
    if isinstance(value, dict | list):
        items = [_word(item) for item in value]
        listed = f"{', '.join(items[:-1])} and {items[-1]}" if len(items) > 1 else "".join(items)
        return listed[:MAX_VALUE_CHARACTERS] or "nothing"
    return _word(value)


@dataclass(frozen=True, slots=True)
class _Scope:
    """Names that a text may use in braces."""

    names: AbstractSet[str]
    visible: Visible | None = None


def parse_template(text: str, names: AbstractSet[str], visible: Visible | None = None) -> Template:
    """Parse a template that may use the parameters `names` and, if `visible` is given, the visible names.

    Raises:
        RulebookError: An unknown name, an unbalanced brace, or a bad pointer.
    """
    return _template(text, frozenset(names)) if VISIBLE not in text else _read(text, _Scope(names, visible))


@lru_cache(maxsize=REMEMBERED)
def _template(text: str, names: frozenset[str]) -> Template:
    return _read(text, _Scope(names))


def _read(text: str, scope: "_Scope") -> Template:
    require_text(text)
    parts, end = _parts(text, 0, scope, nesting=0, stop="")
    if end != len(text):
        raise RulebookError(
            f"{text[:80]!r}: a closing brace without an opening one; write '}}}}' for a brace in the text"
        )
    if sum(not isinstance(part, str) for part in parts) > MAX_FILLED:
        raise RulebookError(f"{text[:80]!r} has more than {MAX_FILLED} parts to fill in")
    return Template(tuple(parts))


def parse_pointer(text: str, names: AbstractSet[str]) -> Pointer:
    """Parse a JSON Pointer whose steps may use the parameters `names`.

    Raises:
        RulebookError: As for `parse_template`; also for a pointer that does not begin with a slash.
    """
    return _whole_pointer(text, frozenset(names))


@lru_cache(maxsize=REMEMBERED)
def _whole_pointer(text: str, names: frozenset[str]) -> Pointer:
    require_text(text)
    pointer, end = _pointer(text, 0, _Scope(names), nesting=0)
    if end != len(text):
        raise RulebookError(f"{text[:80]!r}: a closing brace without an opening one")
    return pointer


def require_text(text: str) -> None:
    """Refuse text that cannot be encoded as UTF-8.

    Raises:
        RulebookError: There is a lone surrogate in the text.
    """
    if scrub(text) != text:
        raise RulebookError(f"{text[:80]!r} holds half of a surrogate pair; write the whole character")


def _word(value: JsonValue) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return str(value.get("name", "something"))[:MAX_VALUE_CHARACTERS]
    if isinstance(value, list):
        return f"{len(value)} things"
    return str(value)[:MAX_VALUE_CHARACTERS]


def _words_of(part: Slot | Pointer | VisibleLookup, state: JsonValue, values: Values) -> str:
    try:
        return value_as_words(part.read(state, values))
    except Inapplicable:
        return "nothing"


def _as_key(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise Inapplicable("a step of a pointer must be a text or a whole number; what is looked up for it is neither")


def _parts(text: str, at: int, scope: _Scope, *, nesting: int, stop: str) -> tuple[list[Part], int]:
    """Return the parts from `at` up to a character of `stop`, an unmatched `}` or the end, and that position."""
    parts: list[Part] = []
    literal = ""
    while at < len(text) and text[at] not in stop:
        if text[at : at + 2] in {"{{", "}}"} and not nesting:
            literal, at = literal + text[at], at + 2
        elif text[at] == "}":
            break
        elif text[at] == "{":
            if literal:
                parts.append(literal)
            literal = ""
            part, at = _braced(text, at, scope, nesting=nesting)
            parts.append(part)
        else:
            literal, at = literal + text[at], at + 1
    if literal:
        parts.append(literal)
    return parts, at


def _braced(text: str, at: int, scope: _Scope, *, nesting: int) -> tuple[Slot | Pointer | VisibleLookup, int]:
    """Return the content of the braces that open at `at`, and the position after them."""
    if nesting >= MAX_NESTING:
        raise RulebookError(f"{text[:80]!r}: lookups are nested deeper than {MAX_NESTING}")
    begin = at + 1
    if text.startswith(_LOOKUP, begin):
        pointer, end = _pointer(text, begin + len(_LOOKUP), _Scope(scope.names), nesting=nesting + 1)
        if end >= len(text):
            raise RulebookError(f"{text[:80]!r}: an opening brace without its closing one")
        return pointer, end + 1
    end = text.find("}", begin)
    if end < 0:
        raise RulebookError(
            f"{text[:80]!r}: an opening brace without its closing one; write '{{{{' for a brace in the text"
        )
    name = text[begin:end]
    if name == VISIBLE and scope.visible is not None:
        return VisibleLookup(scope.visible), end + 1
    if name not in scope.names:
        known = ", ".join(f"{{{known}}}" for known in sorted(scope.names)) or "none"
        raise RulebookError(
            f"{text[:80]!r} uses {{{name[:40]}}}, which is no parameter of the action (there are: {known}) "
            "and no lookup such as {state:/player/place}"
        )
    return Slot(name), end + 1


def _pointer(text: str, at: int, scope: _Scope, *, nesting: int) -> tuple[Pointer, int]:
    steps: list[Template] = []
    while at < len(text) and text[at] == "/":
        parts, at = _parts(text, at + 1, scope, nesting=max(nesting, 1), stop="/")
        try:
            steps.append(Template(tuple(unescape(part) if isinstance(part, str) else part for part in parts)))
        except ValueError as error:
            raise RulebookError(f"{text[:80]!r}: {error}") from None
    if not steps or len(steps) > MAX_POINTER_STEPS:
        raise RulebookError(
            f"{text[:80]!r}: a path into the state is a JSON Pointer of 1 to {MAX_POINTER_STEPS} steps and begins with a slash, "
            "such as /player/place"
        )
    return Pointer(tuple(steps)), at
