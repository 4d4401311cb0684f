"""Repair of tool calls that a server's tool parser distorted: names in a namespace or doubled, arguments encoded twice
or in an envelope, calls left in the text.

Only calls with a single meaning among the tools of the request are repaired.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import NamedTuple, cast

import orjson

from refinesynth.text.json_reader import read_json

Call = tuple[str, str, str | None]
"""Tool name, arguments as JSON text, call id."""
Tools = Mapping[str, Collection[str]]
"""Tool name to the names of its parameters."""

LEFT_IN_TEXT = "calls left in the text"
"""Artefact of a call read from the text of a completion."""

_MAX_CALLS = 20
"""Maximum calls in one text, and parameters of one call, that are examined."""
_MAX_LAYERS = 4
_NAMES = ("name", "tool_name", "tool", "function_name", "function")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "kwargs")
_ENVELOPE = frozenset({*_NAMES, *_ARGUMENTS, "type", "id"})
_NOT_IN_NAMES = re.compile(r"[^\w-]|^$")
"""Characters that no function name has, but that parsers leave in names."""
_INDEX = re.compile(r"(?:[:#]\d+|\(\s*\)?)$")
_MARK = (
    r"<(?:\w{1,20}:)?tool_call>|<function[= ](?:name=)?|<invoke name=|\[TOOL_CALLS\]|<\|tool_call_begin\|>"
    r"|<\uff5ctool\u2581call\u2581begin\uff5c>(?:function<\uff5ctool\u2581sep\uff5c>)?"
    r"|(?:<\|start\|>assistant\s*)?(?:<\|channel\|>\s*\w{1,20}\s+)?\bto=(?=functions?\.)"
)
_CALL_IN_TEXT = re.compile(
    rf"(?:(?:{_MARK})\s*+){{1,4}}+[\"']?(?P<name>[\w.:/-]{{1,150}})[\"']?"
    # Marks between a name and its arguments.
    r"(?:[\s>\"']|\[[A-Z_]{1,20}\]|<[|\uff5c][^<>\s]{1,40}[|\uff5c]>|```|(?:json|commentary|code)\b)*+"
    rf"|(?P<object>\{{\s*\"(?:{'|'.join((*_NAMES, *_ARGUMENTS, 'type', 'id', 'tool_call_id'))})\"\s*:)"
)
_PARAMETER = re.compile(
    r"\s*(?:<parameter[= ](?:name=)?[\"']?(?P<name>[\w-]{1,100})[\"']?\s*>"
    r"|<arg_key>\s*(?P<key>[\w-]{1,100})\s*</arg_key>\s*<arg_value>)(?P<value>[^<]{0,10000})</(?:parameter|arg_value)>"
)
_LEFTOVER_MARKS = re.compile(r"(?:\s|<[|\uff5c]?[\w:\u2581]{1,40}[|\uff5c]?>|\[TOOL_CALLS\]|```\w{0,20}|\[)+\Z")
_NEARBY = 200


class RepairedCalls(NamedTuple):
    """Repaired calls of a completion."""

    calls: tuple[Call, ...]
    text: str
    """Text before the first call in it; the whole text without one."""
    artefact: str | None
    """Distortion by the server's parser, worded for a message; None without a distortion."""
    is_clear: bool = True
    """False if a call cannot be identified, which makes the completion unusable."""


def repair_calls(calls: tuple[Call, ...], text: str, tools: Tools, *, unknown: bool = False) -> RepairedCalls:
    """Return the calls that the model made of these tools; with `unknown`, also marked calls of other functions in the
    text. An exact tool name never changes, and a name that the model may have invented stays.
    """
    repaired: list[Call] = []
    artefact: str | None = None
    for name, arguments, call_id in calls:
        tool = _find_tool(name, tools)
        if tool is None and (_NOT_IN_NAMES.search(name) or name[: len(name) // 2] * 2 == name):
            return RepairedCalls(calls, text, f"the name {name[:_NEARBY]!r}", is_clear=False)
        unwrapped = arguments if tool is None else _unwrapped(arguments, tools[tool])
        if tool not in {None, name}:
            artefact = f"the name {name[:_NEARBY]!r}"
        elif unwrapped != arguments:
            artefact = artefact or "arguments encoded twice or in an envelope"
        repaired.append((tool or name, unwrapped, call_id))
    text_calls = [*_calls_in_text(text, tools, unknown=unknown)]
    if not text_calls:
        return RepairedCalls((*repaired,), text, artefact)
    readable: list[Call] = [(name, arguments, None) for _, name, arguments in text_calls if name is not None]
    are_known = all(any(call[:2] == known_call[:2] for known_call in repaired) for call in readable)
    is_clear = len(readable) == len(text_calls) and (not repaired or are_known)
    start = text_calls[0][0]
    before = text[:start]
    before = before[:-_NEARBY] + _LEFTOVER_MARKS.sub("", before[-_NEARBY:])
    return RepairedCalls((*(repaired or readable),), before, LEFT_IN_TEXT, is_clear=is_clear)


def _find_tool(name: str, tools: Tools) -> str | None:
    if name in tools:
        return name
    plain = _INDEX.sub("", name.partition("<|")[0].strip(" \t\r\n`'\""))
    forms = {
        plain,
        re.split(r"[.:/=]", plain)[-1],
        re.sub(r"\W+", "_", plain),
        re.sub(r"^(?:functions?|tools?)_+", "", plain),
    }
    matches = [tool for tool in tools if any(form and form == tool * max(1, len(form) // len(tool)) for form in forms)]
    return matches[0] if len(matches) == 1 else None


def _unwrapped(arguments: str, parameters: Collection[str]) -> str:
    """Return the arguments without the layers of strings and envelopes around them; the same text without layers."""
    value: object = arguments
    for layer in range(_MAX_LAYERS):
        value = _load(value) if isinstance(value, str) else value
        if value is None:
            return "{}"
        if isinstance(value, dict):
            envelope = cast("dict[str, object]", value)
            key = next((name for name in _ARGUMENTS if name in envelope), None)
            if (
                key is None
                or key in parameters
                or not _ENVELOPE.issuperset(envelope)
                or not isinstance(envelope[key], dict | str)
            ):
                return orjson.dumps(envelope).decode() if layer else arguments
            value = envelope[key]
        elif not isinstance(value, str):
            break
    return arguments


def _load(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        with suppress(ValueError):
            return read_json(text)
    return False


def _calls_in_text(text: str, tools: Tools, *, unknown: bool) -> Iterator[tuple[int, str | None, str]]:
    """Yield start, tool and arguments of each call in a text; the tool is None for an unreadable call."""
    offset = 0
    for match in islice(_CALL_IN_TEXT.finditer(text), _MAX_CALLS):
        if match.start() < offset:
            continue
        if match["object"] is None:
            arguments, offset = _arguments(text, match.end())
            tool = _find_tool(match["name"], tools) or (match["name"] if unknown else None)
            if arguments is None and tool is not None and not tools.get(tool):
                arguments = "{}"
            yield match.start(), tool if arguments is not None else None, arguments or ""
            continue
        value, offset = _object(text, match.start())
        inner = value.get("function")
        call = cast("dict[str, object]", inner) if isinstance(inner, dict) else value
        name = next((candidate for key in _NAMES if isinstance(candidate := call.get(key), str)), "")
        key = next((key for key in _ARGUMENTS if key in call), None)
        marked = re.search(rf"(?:{_MARK})\W*\Z", text[max(0, match.start() - _NEARBY) : match.start()]) is not None
        # An unmarked object with an unknown function may be any data.
        tool = (_find_tool(name, tools) or (name if unknown and key and marked else None)) if name else None
        if tool is not None:
            arguments = _unwrapped(orjson.dumps(call[key] if key else {}).decode(), tools.get(tool, ()))
            yield match.start(), tool, arguments
        elif marked:
            yield match.start(), None, ""


def _arguments(text: str, offset: int) -> tuple[str | None, int]:
    if text.startswith("{", offset):
        value, end = _object(text, offset)
        return (None if end == offset else orjson.dumps(value).decode()), end
    pairs: dict[str, str] = {}
    while len(pairs) < _MAX_CALLS and (pair := _PARAMETER.match(text, offset)) is not None:
        pairs[pair["name"] or pair["key"]] = pair["value"].strip()
        offset = pair.end()
    return (orjson.dumps(pairs).decode() if pairs else None), offset


def _object(text: str, offset: int) -> tuple[dict[str, object], int]:
    """Return the JSON object that begins at `offset`, and its end; without an object, an empty dict and `offset`."""
    try:
        value, end = json.JSONDecoder().raw_decode(text, offset)
        orjson.dumps(value)
    except (ValueError, TypeError, RecursionError):
        return {}, offset
    return value, end
