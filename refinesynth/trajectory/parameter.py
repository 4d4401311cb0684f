"""Types of an action's parameters: valid texts, and their JSON values."""

import re
from collections.abc import Mapping
from decimal import Decimal
from math import inf, isfinite
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field, JsonValue

from refinesynth.text.json_reader import depth, load_json, write_json
from refinesynth.trajectory.value import Value, is_empty

MAX_CHOICES = 100
"""Largest range of whole numbers that is enumerated, for example in a search for a plan."""

LIMIT = 10**15 - 1
"""Largest absolute bound; larger ones of a schema are not checked."""

_MIN_POSITIVE = 1e-15
"""Smallest number above 0 that is written without an exponent."""

_WHOLE_END = 2**63
"""Whole numbers are signed, of 64 bits."""

_EXACT = 2**53
"""Smallest number whose successor is no double."""

_MAX_DEPTH = 32
"""Deepest nesting of a list or object value."""

_WHOLE = re.compile(r"([+-]?[0-9]{1,4000})(?:\.0*)?")  # Python reads no whole number of more than 4,300 digits
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")
_LIMITS: Mapping[str, str] = {"integer": ", of at most 64 bits with its sign", "number": ", exact in double precision"}
_KINDS: Mapping[str, str] = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "json": "a list or object in JSON",
}
_BOUND = r"-?[0-9.e+-]+"
_WORDS = re.compile(
    rf"(?P<kind>.+?)(?: from (?P<least>{_BOUND}))?(?:(?<=[0-9]) to (?P<most>{_BOUND}))?(?: up to (?P<only>{_BOUND}))?"
    r"(?P<optional>, or empty)?"
)


def _canonical(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, list | dict):
        return write_json(value).decode()
    return str(value).lower() if isinstance(value, bool) else _digits(value)


def _digits(number: float) -> str:
    if isinstance(number, int) or (number == number // 1 and abs(number) < _WHOLE_END):
        return str(int(number))
    # A decimal is written without an exponent.
    return f"{Decimal(repr(number)):f}" if _MIN_POSITIVE <= abs(number) < 1 else repr(number)


def _as_text(value: object) -> object:
    return _canonical(value) if isinstance(value, int | float) else value


class ParameterType(Value):
    """Type of a parameter. An action's text holds values in one canonical spelling; calls and conditions hold JSON."""

    type: Literal["string", "integer", "number", "boolean", "json"] = "string"
    """Kind of value; `json` is a list or an object, written as JSON in the action's text."""
    minimum: float | None = Field(default=None, ge=-LIMIT, le=LIMIT, exclude_if=lambda bound: bound is None)
    """Smallest number, inclusive."""
    maximum: float | None = Field(default=None, ge=-LIMIT, le=LIMIT, exclude_if=lambda bound: bound is None)
    """Largest number, inclusive."""
    default: Annotated[str | None, BeforeValidator(_as_text)] = Field(default=None, exclude_if=is_empty)
    """Value for a call without the argument; an action's text always has one. None for a required argument."""

    optional: bool = Field(default=False, exclude_if=is_empty)
    """True if the action's text may be empty here; a call omits the argument then."""

    def canonical(self, text: str) -> str | None:
        """Return the canonical spelling: `3` for `3`, `3.0` and `+3`; None for an invalid value."""
        value = self.value(text)
        return None if value is None else _canonical(value)

    def value(self, text: str) -> JsonValue:
        """Return the JSON value of a text; None if it is of another type or out of bounds."""
        value = self.parsed(text)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        low, high = self.minimum is not None and value < self.minimum, self.maximum is not None and value > self.maximum
        return None if low or high else value

    def parsed(self, text: str) -> JsonValue:
        """Return the JSON value of a text without a check of the bounds; None if it is of another type."""
        text = text.strip()
        if self.type == "string" or (self.optional and not text):
            return text
        if self.type == "json":
            try:
                value: JsonValue = load_json(text)
            except ValueError:
                return None
            return value if isinstance(value, list | dict) and depth(value) <= _MAX_DEPTH else None
        if self.type == "boolean":
            return {"true": True, "false": False}.get(text.casefold())
        match = _WHOLE.fullmatch(text)
        whole, number = int(match[1]) if match else None, float(text) if _NUMBER.fullmatch(text) else inf
        if self.type == "integer":
            exact = number if whole is None else whole
            return int(exact) if exact % 1 == 0 and -_WHOLE_END <= exact < _WHOLE_END else None
        return number if isfinite(number) and whole in {None, number} else None

    def choices(self) -> tuple[str, ...]:
        """Return all values if there are few: true and false, or at most `MAX_CHOICES` whole numbers; else none."""
        if self.type == "boolean":
            return ("true", "false")
        if self.type != "integer" or self.minimum is None or self.maximum is None:
            return ()
        numbers = range(-int(-self.minimum // 1), int(self.maximum // 1) + 1)
        return tuple(map(str, numbers)) if len(numbers) <= MAX_CHOICES else ()

    def samples(self) -> tuple[str, ...]:
        """Return some values in canonical spelling, all of them if there are few; none for text."""
        if self.type in {"string", "json"}:
            return () if self.type == "string" else ("[]", '{"key":[1,"two"]}')
        bounds = [bound for bound in (self.minimum, self.maximum) if bound is not None]
        defaults = (self.canonical(text) for text in ("3", "12.5"))
        return self.choices() or tuple(filter(None, map(self._nearest, bounds) if bounds else defaults))

    def _nearest(self, bound: float) -> str | None:
        """Return a valid number at a bound or beside it: 0.5 bounds whole numbers, and 1e-20 has no text."""
        candidates = (bound, bound + _MIN_POSITIVE, bound - _MIN_POSITIVE, bound // 1, bound // 1 + 1)
        return next(filter(None, (self.canonical(f"{number:.15f}") for number in candidates)), None)

    def to_words(self) -> str:
        """Return the type in words: `a whole number from 1 to 20`."""
        least, most = (bound if bound is None else _digits(bound) for bound in (self.minimum, self.maximum))
        bounds = f" from {least}" if least is not None else ""
        if most is not None:
            bounds += f" to {most}" if bounds else f" up to {most}"
        empty = ", or empty" if self.optional else ""
        return _KINDS[self.type] + (bounds if self.type in {"integer", "number"} else "") + empty

    def expected(self, text: str) -> str:
        """Return the type in words for the refusal of `text`, with the limit of its precision if the text is beyond."""
        is_number = self.type in _LIMITS and _NUMBER.fullmatch(text.strip()) is not None
        beyond = is_number and self.parsed(text) is None and abs(float(text)) >= _EXACT
        return self.to_words() + (_LIMITS[self.type] if beyond else "")

    @classmethod
    def from_words(cls, words: str) -> "ParameterType | None":
        """Return the type for words written by `to_words`; None for other words and for required text."""
        if (match := _WORDS.fullmatch(words)) is None:
            return None
        kind = next((kind for kind, spelling in _KINDS.items() if spelling == match["kind"]), "string")
        if kind == "string" and words != "text, or empty":
            return None
        bounds = {"minimum": match["least"], "maximum": match["most"] or match["only"]}
        return cls.model_validate({"type": kind, "optional": bool(match["optional"]), **bounds})

    def json_schema(self, values: tuple[str, ...]) -> dict[str, Any]:
        """Return the JSON schema of a value; with `values`, an enumeration."""
        schema: dict[str, Any] = {} if self.type == "json" else {"type": self.type}
        for name, bound in (("minimum", self.minimum), ("maximum", self.maximum)):
            if bound is not None:
                schema[name] = int(bound) if self.type == "integer" and bound == bound // 1 else bound
        if values:
            # Not by the values: lists and objects are not hashable.
            schema["enum"] = list({self.canonical(text) or text: self.value(text) for text in values}.values())
        if self.default is not None:
            schema["default"] = self.value(self.default)
        return schema

    @classmethod
    def from_schema(cls, schema: Mapping[str, Any]) -> "tuple[ParameterType, tuple[str, ...]]":
        """Return the type and the `enum` texts of a JSON schema, as far as it is supported."""
        bounds: dict[str, Any] = {name: schema.get(name) for name in ("minimum", "maximum")}
        numbers = {name: bound for name, bound in bounds.items() if type(bound) in {int, float} and abs(bound) <= LIMIT}
        kind = schema.get("type")
        kind = kind if isinstance(kind, str) and kind in _KINDS else "string"
        bounded = numbers if kind in {"integer", "number"} else {}
        parameter_type = cls.model_validate({"type": kind, "default": _text(schema.get("default")), **bounded})
        enum = schema.get("enum")
        texts = [_text(value) for value in cast("list[object]", enum)] if isinstance(enum, list) else []
        return parameter_type, () if None in texts else tuple(filter(None, texts))

    def problems(self, values: tuple[str, ...]) -> list[str]:
        """Return the faults of the type and of the listed `values`, as messages to their author."""
        faults = [f"the value {value!r} is not {self.expected(value)}" for value in values if self.value(value) is None]
        if self.type not in {"integer", "number"} and (self.minimum, self.maximum) != (None, None):
            faults.append(f"bounds are for numbers, not for type {self.type}")
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            faults.append("minimum is larger than maximum")
        if self.default is not None:
            default = self.canonical(self.default)
            if default is None or (values and default not in map(self.canonical, values)):
                faults.append(f"the default {self.default!r} is none of its values")
        return faults


def _text(value: object) -> str | None:
    return _canonical(value) if isinstance(value, str | int | float) else None


TEXT = ParameterType()
"""Default type of a parameter."""


def json_value(kind: ParameterType, text: str, *, any_spelling: bool = False) -> JsonValue:
    """Return the JSON value of a text; the text itself if it is not of the type, or not in canonical spelling unless
    `any_spelling`.
    """
    value = text if kind.type == "string" else kind.parsed(text)
    return text if value is None or not (any_spelling or _canonical(value) == text) else value
