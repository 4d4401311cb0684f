"""Texts and pointers with parameters and looked-up state in them.

`{item}` stands for a parameter's value, `{state:/places/{place}/items}` for what the state holds there, `{visible}` in
a text for the names that can be seen, `{{` and `}}` for braces. In a text, looked-up values become words: a list is `a,
b and c`, an empty one `nothing`, an object the list of its keys, null and missing `nothing`, true and false `yes` and
`no`. In a pointer a step may hold both; a slash in a value never begins a new step.
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
"""Texts of each kind of which it is remembered how they are read: many worlds say the same, and each is compiled more
than once."""

MAX_POINTER_STEPS = 32
"""Most steps of one pointer."""

MAX_NESTING = 4
"""Deepest lookup inside a lookup."""

MAX_FILLED = 32
"""Most parameters and lookups in one text."""

MAX_VALUE_CHARACTERS = 4_000
"""Longest text that a value becomes, in characters; the rest is cut off."""

VISIBLE = "visible"
"""Name of the list of visible names in conditions and texts."""

_LOOKUP = "state:"


@dataclass(frozen=True, slots=True)
class VisibleNames:
    """Names that the player can see."""

    names: tuple[str, ...]
    """Each once, in the order of the sights; keys of an object in the alphabet's order."""
    problem: str | None = None
    """Sights without an answer here, or left out because there is too much of them; in words to their
    author."""
    known: frozenset[str] = field(init=False, repr=False)
    """The same names, to ask for one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", frozenset(self.names))


Visible = Callable[[JsonValue], VisibleNames]
"""The visible names of a state."""

Values = Mapping[str, JsonValue]
"""By their names, the values of parameters, which are texts, and what else can be named where they can."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A parameter by name."""

    name: str

    def read(self, state: JsonValue, values: Values) -> JsonValue:
        """Its value as text; `Inapplicable` if the action gave none."""
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
        """The keys that it names now; `Inapplicable` if a lookup in it finds no text and no whole number."""
        return tuple([step.key(state, values) for step in self.steps])

    def read(self, state: JsonValue, values: Values) -> JsonValue:
        """Return what the state holds there; `Inapplicable` if nothing."""
        return resolve(state, self.keys(state, values))


@dataclass(frozen=True, slots=True)
class VisibleLookup:
    """The names that can be seen."""

    visible: Visible

    def read(self, state: JsonValue, values: Values) -> JsonValue:
        """All of them."""
        del values
        return list(self.visible(state).names)


Part = str | Slot | Pointer | VisibleLookup
"""Parts of a template; a text is literal."""


@dataclass(frozen=True, slots=True)
class Template:
    """Literal text, slots and lookups in order."""

    parts: tuple[Part, ...]

    @property
    def constant(self) -> str | None:
        """The text, if nothing is to be filled in."""
        if not self.parts:
            return ""
        return self.parts[0] if len(self.parts) == 1 and isinstance(self.parts[0], str) else None

    def text(self, state: JsonValue, values: Values) -> str:
        """The text in words; what is missing reads `nothing`."""
        return "".join(part if isinstance(part, str) else _words_of(part, state, values) for part in self.parts)

    def value(self, state: JsonValue, values: Values) -> JsonValue:
        """A lone lookup's JSON value, else the text; `Inapplicable` if something that is looked up is missing."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Pointer):
            return self.parts[0].read(state, values)
        return "".join(
            part if isinstance(part, str) else value_as_words(part.read(state, values)) for part in self.parts
        )

    def key(self, state: JsonValue, values: Values) -> str:
        """The text as one step of a pointer."""
        if len(self.parts) == 1:
            # As nearly all steps are: a constant, a parameter or a lookup alone.
            part = self.parts[0]
            return part if isinstance(part, str) else _as_key(part.read(state, values))
        return "".join(part if isinstance(part, str) else _as_key(part.read(state, values)) for part in self.parts)


def value_as_words(value: JsonValue) -> str:
    """A JSON value as words, at most `MAX_VALUE_CHARACTERS` characters."""
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
    """Read a template that may use the parameters `names` and, if it is given, what is visible.

    Raises:
        RulebookError: An unknown name, a brace without its other half, a bad pointer.
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
    """Read a JSON Pointer whose steps may use the parameters `names`.

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
    """Refuse what no UTF-8 file can hold.

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
    """Parts from `at` on, up to one of the characters in `stop`, an unmatched closing brace or the end."""
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
    """Return what stands in the braces that open at `at`, and where they end."""
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
