"""Reader of JSON in untrusted model text (fenced, in prose, slightly broken, or hostile), and writer of any JSON."""

import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, cast

import orjson
from pydantic import JsonValue

from refinesynth.text.formatting import scrub

MAX_CHARACTERS = 1_000_000
"""Maximum length of a text, in characters."""

MAX_DEPTH = 100
"""Maximum nesting, in levels."""

MAX_REPAIRED_CHARACTERS = 30_000
"""Maximum length of JSON to repair, in characters: `json-repair` takes quadratic time on some text and blocks the event
loop."""

_LOOP_RATIO = 25
"""Minimum compression ratio of text from a model that repeats itself; the repair of such text is slow and useless."""

_LOOP_CHARACTERS = 2_000
"""Maximum length of text that is repaired without this check, in characters."""

_BRACKET_OR_QUOTE = re.compile(r'\\.|["\[\]{}]', re.DOTALL)
_PAIRS = {"}": "{", "]": "["}
_FENCE = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)```", re.DOTALL)
_LINE_ENDS = tuple((end.encode(), f"\\u{ord(end):04x}".encode()) for end in "\x85\u2028\u2029")
_LONG_NUMBER = re.compile(rb"\d{19}")
"""Pattern for integers that may exceed 64 bits."""


class Truncated(ValueError):
    """The end of the JSON is missing; a closing bracket would invent content."""


def depth(value: JsonValue, *, limit: int = 10_000) -> int:
    """Return the nesting levels of a JSON value, 0 for a scalar; counting stops at `limit`.

    Iterative, so any depth is safe.
    """
    levels, level = 0, [value]
    while level and levels < limit:
        children: list[JsonValue] = []
        for item in level:
            if isinstance(item, dict):
                children.extend(item.values())
            elif isinstance(item, list):
                children.extend(item)
        if not any(isinstance(item, dict | list) for item in level):
            break
        levels += 1
        level = children
    return levels


def without_nulls(value: Any) -> Any:
    """Return a value without nulls in objects, with which a table fills missing columns."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {key: without_nulls(item) for key, item in fields.items() if item is not None}
    return [*map(without_nulls, cast("list[Any]", value))] if isinstance(value, list) else value


def read_json(text: str, *, close: bool = False) -> JsonValue:
    """Parse the JSON object or array in a model's answer.

    It tries strict JSON, then a fenced block, then `json-repair` from the first bracket on. Lone surrogates become
    U+FFFD. With `close`, truncated JSON is read up to its end.

    Raises:
        Truncated: A bracket or a string is never closed.
        ValueError: The text holds no object or array, is longer than `MAX_CHARACTERS` or nested deeper than
            `MAX_DEPTH`. The message can be sent back to the model.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"the answer has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read")
    text = scrub(text)
    value = _find_json(text)[0]
    if value is None:
        value = _repair(text, close=close)
    if not isinstance(value, dict | list):
        raise ValueError(f"the answer holds no JSON object or array; it begins {text[:80]!r}")
    if depth(value) > MAX_DEPTH:
        raise ValueError(f"the JSON is nested deeper than {MAX_DEPTH} levels")
    return value


def json_form(text: str) -> Literal["plain", "fenced", "repaired"]:
    """Return the form of a text that `read_json` accepts: all of it is JSON, a fenced block is JSON, or neither."""
    return _find_json(scrub(text))[1]


def _find_json(text: str) -> tuple[JsonValue, Literal["plain", "fenced", "repaired"]]:
    if (value := _parse_strict(text)) is not None:
        return value, "plain"
    if (fenced := _FENCE.search(text)) and (value := _parse_strict(fenced[1])) is not None:
        return value, "fenced"
    return None, "repaired"


def _parse_strict(text: str) -> JsonValue:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        # Unlike orjson, the standard library reads escaped lone surrogates, and NaN, which becomes null.
        return orjson.loads(write_json(json.loads(text)))
    except (ValueError, RecursionError):
        return None


def _repair(text: str, *, close: bool) -> JsonValue:
    start = min((index for index in (text.find("{"), text.find("[")) if index >= 0), default=None)
    if start is None or not _can_repair(text[start:]):
        return None
    if not close and _is_truncated(text[start:]):
        raise Truncated("the JSON breaks off: its end is missing; write all of it, and less of it if it is too long")
    # Imported here: most answers parse strictly and never need it.
    from json_repair import repair_json

    try:
        # The detour through text guarantees valid JSON: no NaN, no oversized integers, no surrogates.
        return orjson.loads(scrub(str(repair_json(text[start:], skip_json_loads=True, ensure_ascii=False))))
    except Exception:  # noqa: BLE001 - json-repair fails in ways of its own, with an AssertionError at '{“```json0```'
        return None


def _is_truncated(text: str) -> bool:
    marks = _BRACKET_OR_QUOTE.findall(text)
    in_string, outside = False, list[str]()
    for mark in marks:
        if mark == '"':
            in_string = not in_string
        elif not in_string:
            outside.append(mark)
    if not in_string:
        return _has_unclosed(outside)
    # Unescaped quotes within a string can make the number of quotes odd.
    return _has_unclosed(marks) or not text.rstrip().removesuffix("```").rstrip().endswith(("}", "]"))


def _has_unclosed(marks: Sequence[str]) -> bool:
    """Return True if a bracket is never closed. An open bracket inside a closed pair counts as forgotten, not truncated."""
    open_brackets: list[str] = []
    open_counts = Counter[str]()
    for mark in marks:
        if mark in "{[":
            open_brackets.append(mark)
            open_counts[mark] += 1
        elif open_counts[_PAIRS.get(mark, "")]:
            while (last := open_brackets.pop()) != _PAIRS[mark]:
                open_counts[last] -= 1
            open_counts[last] -= 1
    return bool(open_brackets)


def _can_repair(text: str) -> bool:
    if len(text) <= _LOOP_CHARACTERS:
        return True
    data = text.encode()
    return len(text) <= MAX_REPAIRED_CHARACTERS and len(zlib.compress(data, 1)) * _LOOP_RATIO >= len(data)


def load_json(text: str | bytes) -> Any:
    """Read strict JSON, with integers of up to some thousand digits. Raises ValueError: the text is not JSON."""
    value = orjson.loads(text)
    if _LONG_NUMBER.search(text.encode() if isinstance(text, str) else text) is None:
        return value
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # Python limits the digits of an integer
        return value


def write_json(
    value: object,
    *,
    default: Callable[[object], object] | None = None,
    option: int | None = None,
    exact: bool = False,
) -> bytes:
    """Return `value` as JSON on one line; `default` and `option` are orjson's.

    U+0085, U+2028, U+2029 and control characters are escaped, because some readers end a line there. Lone surrogates
    become U+FFFD. Integers beyond 64 bits become the nearest float, or null beyond the range of floats, like infinity.
    With `exact`, integers stay, for `load_json`.

    Raises:
        TypeError: `value` holds an object without a JSON form, and `default` does not convert it.
    """
    try:
        encoded = orjson.dumps(value, default=default, option=option)
    except orjson.JSONEncodeError:
        plain = _standard_value(value, exact=exact)
        encoded = scrub(json.dumps(plain, default=default, ensure_ascii=False, separators=(",", ":"))).encode()
        # orjson again, for one spelling of numbers; values nested too deep for orjson stay.
        with suppress(orjson.JSONEncodeError, orjson.JSONDecodeError):
            encoded = encoded if exact else orjson.dumps(orjson.loads(encoded), option=option)
    for character, escape in _LINE_ENDS:
        encoded = encoded.replace(character, escape)
    return encoded


def _standard_value(value: object, *, exact: bool) -> object:
    """Return `value` with infinity and NaN as null, and without `exact` also oversized integers as floats or null."""
    if isinstance(value, dict):
        return {key: _standard_value(item, exact=exact) for key, item in cast("dict[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_standard_value(item, exact=exact) for item in cast("Sequence[object]", value)]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and not exact and not -(2**63) <= value < 2**64:
        try:
            return float(value)
        except OverflowError:
            return None
    return value
