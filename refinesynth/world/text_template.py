"""Templates of texts and pointers with parameters and lookups.

`{item}` is a parameter's value, `{state:/places/{place}/items}` a value of the state, `{visible}` in a text the visible
names, and `{{` and `}}` are braces. In a text, values are worded: a list is `a, b and c`, an empty one `nothing`, an
object the list of its keys, null and missing values `nothing`, true and false `yes` and `no`. A step of a pointer may
contain parameters and lookups; a slash in a value never begins a new step.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache

from pydantic import JsonValue

from refinesynth.errors import Inapplicable, RulebookError
from refinesynth.text.formatting import scrub
from refinesynth.world.json_pointer import resolve, unescape

MAX_CACHED = 4_096
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
    name_set: frozenset[str] = field(init=False, repr=False)
    """The same names as a set."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name_set", frozenset(self.names))


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
        texts = [part for part in self.parts if isinstance(part, str)]
        return "".join(texts) if len(texts) == len(self.parts) else None

    def text(self, state: JsonValue, values: Values) -> str:
        """Return the text in words; missing values are `nothing`."""
        words: list[str] = []
        for part in self.parts:
            try:
                words.append(part if isinstance(part, str) else value_as_words(part.read(state, values)))
            except Inapplicable:
                words.append("nothing")
        return "".join(words)

    def value(self, state: JsonValue, values: Values) -> JsonValue:
        """Return the JSON value if the template is one lookup, else the text; `Inapplicable` if a value is missing."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Pointer):
            return self.parts[0].read(state, values)
        return "".join(
            part if isinstance(part, str) else value_as_words(part.read(state, values)) for part in self.parts
        )

    def key(self, state: JsonValue, values: Values) -> str:
        """Return the text as a pointer's step."""
        if len(self.parts) == 1 and isinstance(part := self.parts[0], str):
            return part  # nearly all steps
        return "".join([part if isinstance(part, str) else _as_key(part.read(state, values)) for part in self.parts])


def value_as_words(value: JsonValue) -> str:
    """Return a JSON value as words, at most `MAX_VALUE_CHARACTERS` characters."""
    if isinstance(value, dict | list):
        return enumerated(map(_word, value))[:MAX_VALUE_CHARACTERS] or "nothing"
    return _word(value)


def enumerated(words: Iterable[str]) -> str:
    """Return the words as `a, b and c`."""
    *others, last = [*words] or [""]
    return f"{', '.join(others)} and {last}" if others else last


def _word(value: JsonValue) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return str(value.get("name", "something"))[:MAX_VALUE_CHARACTERS]
    return f"{len(value)} things" if isinstance(value, list) else str(value)[:MAX_VALUE_CHARACTERS]


def _as_key(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise Inapplicable("a step of a pointer must be a text or a whole number; what is looked up for it is neither")


def parse_template(text: str, names: AbstractSet[str], visible: Visible | None = None) -> Template:
    """Parse a template that may use the parameters `names` and, if `visible` is given, the visible names.

    Raises:
        RulebookError: An unknown name, an unbalanced brace, or a bad pointer.
    """
    return _template(text, frozenset(names)) if VISIBLE not in text else _Parser(text, names, visible).template()


def parse_pointer(text: str, names: AbstractSet[str]) -> Pointer:
    """Parse a JSON Pointer whose steps may use the parameters `names`.

    Raises:
        RulebookError: As for `parse_template`; also for a pointer that does not begin with a slash.
    """
    return _pointer(text, frozenset(names))


@lru_cache(maxsize=MAX_CACHED)
def _template(text: str, names: frozenset[str]) -> Template:
    return _Parser(text, names).template()


@lru_cache(maxsize=MAX_CACHED)
def _pointer(text: str, names: frozenset[str]) -> Pointer:
    parser = _Parser(text, names)
    pointer = parser.pointer(nesting=0)
    if parser.position != len(text):
        raise RulebookError(f"{text[:80]!r}: a closing brace without an opening one")
    return pointer


def require_text(text: str) -> None:
    """Refuse text with a lone surrogate, which has no UTF-8; raises RulebookError."""
    if scrub(text) != text:
        raise RulebookError(f"{text[:80]!r} holds half of a surrogate pair; write the whole character")


class _Parser:
    """Reads a text from left to right; `position` is that of the next character."""

    def __init__(self, text: str, names: AbstractSet[str], visible: Visible | None = None) -> None:
        require_text(text)
        self.position = 0
        self._text, self._names, self._visible = text, names, visible

    def template(self) -> Template:
        parts = self._parts(nesting=0, stop="")
        if self.position != len(self._text):
            raise self._error("a closing brace without an opening one; write '}}' for a brace in the text")
        if sum(not isinstance(part, str) for part in parts) > MAX_FILLED:
            raise RulebookError(f"{self._text[:80]!r} has more than {MAX_FILLED} parts to fill in")
        return Template(parts)

    def pointer(self, *, nesting: int) -> Pointer:
        steps: list[Template] = []
        while self._text.startswith("/", self.position):
            self.position += 1
            parts = self._parts(nesting=max(nesting, 1), stop="/")
            try:
                steps.append(Template(tuple(unescape(part) if isinstance(part, str) else part for part in parts)))
            except ValueError as error:
                raise self._error(str(error)) from None
        if not steps or len(steps) > MAX_POINTER_STEPS:
            raise self._error(
                f"a path into the state is a JSON Pointer of 1 to {MAX_POINTER_STEPS} steps and begins with a slash, "
                "such as /player/place"
            )
        return Pointer(tuple(steps))

    def _parts(self, *, nesting: int, stop: str) -> tuple[Part, ...]:
        """Read up to a character of `stop`, an unmatched `}` or the end. Only the outermost text has double braces."""
        parts: list[Part] = []
        while self.position < len(self._text) and (sign := self._text[self.position]) not in stop:
            doubled = sign in "{}" and not nesting and self._text.startswith(sign * 2, self.position)
            if sign == "{" and not doubled:
                parts.append(self._braced(nesting))
                continue
            if sign == "}" and not doubled:
                break
            self.position += 1 + doubled
            last = parts.pop() if parts and isinstance(parts[-1], str) else ""
            parts.append(f"{last}{sign}")
        return tuple(parts)

    def _braced(self, nesting: int) -> Slot | Pointer | VisibleLookup:
        if nesting >= MAX_NESTING:
            raise self._error(f"lookups are nested deeper than {MAX_NESTING}")
        self.position += 1
        if self._text.startswith(_LOOKUP, self.position):
            self.position += len(_LOOKUP)
            pointer = self.pointer(nesting=nesting + 1)
            if self.position >= len(self._text):
                raise self._error("an opening brace without its closing one")
            self.position += 1
            return pointer
        name, separator, _ = self._text[self.position :].partition("}")
        if not separator:
            raise self._error("an opening brace without its closing one; write '{{' for a brace in the text")
        self.position += len(name) + 1
        if name == VISIBLE and not nesting and self._visible is not None:
            return VisibleLookup(self._visible)
        if name not in self._names:
            known_name = ", ".join(f"{{{known_name}}}" for known_name in sorted(self._names)) or "none"
            raise RulebookError(
                f"{self._text[:80]!r} uses {{{name[:40]}}}, which is no parameter of the action (there are: {known_name}) "
                "and no lookup such as {state:/player/place}"
            )
        return Slot(name)

    def _error(self, message: str) -> RulebookError:
        return RulebookError(f"{self._text[:80]!r}: {message}")
