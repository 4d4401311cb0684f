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

Called = tuple[str, str, str | None]
"""Tool name, arguments as JSON text, call id."""
Tools = Mapping[str, Collection[str]]
"""Tool name to the names of its parameters."""

LEFT_IN_TEXT = "calls left in the text"
"""Artefact of a call read from the text of a completion."""

_MOST = 20
"""Maximum calls in one text, and parameters of one call, that are examined."""
_LAYERS = 4
_NAMES = ("name", "tool_name", "tool", "function_name", "function")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "kwargs")
_ENVELOPE = frozenset({*_NAMES, *_ARGUMENTS, "type", "id"})
_NO_NAME = re.compile(r"[^\w-]|^$")
"""Characters that no function name has, but that parsers leave in names."""
_INDEX = re.compile(r"(?:[:#]\d+|\(\s*\)?)$")
_MARK = (
    r"<(?:\w{1,20}:)?tool_call>|<function[= ](?:name=)?|<invoke name=|\[TOOL_CALLS\]|<\|tool_call_begin\|>"
    r"|<\uff5ctool\u2581call\u2581begin\uff5c>(?:function<\uff5ctool\u2581sep\uff5c>)?"
    r"|(?:<\|start\|>assistant\s*)?(?:<\|channel\|>\s*\w{1,20}\s+)?\bto=(?=functions?\.)"
)
_WRITTEN = re.compile(
    rf"(?:(?:{_MARK})\s*+){{1,4}}+[\"']?(?P<name>[\w.:/-]{{1,150}})[\"']?"
    # Marks between a name and its arguments.
    r"(?:[\s>\"']|\[[A-Z_]{1,20}\]|<[|\uff5c][^<>\s]{1,40}[|\uff5c]>|```|(?:json|commentary|code)\b)*+"
    rf"|(?P<object>\{{\s*\"(?:{'|'.join((*_NAMES, *_ARGUMENTS, 'type', 'id', 'tool_call_id'))})\"\s*:)"
)
_PARAMETER = re.compile(
    r"\s*(?:<parameter[= ](?:name=)?[\"']?(?P<name>[\w-]{1,100})[\"']?\s*>"
    r"|<arg_key>\s*(?P<key>[\w-]{1,100})\s*</arg_key>\s*<arg_value>)(?P<value>[^<]{0,10000})</(?:parameter|arg_value)>"
)
_LEFT = re.compile(r"(?:\s|<[|\uff5c]?[\w:\u2581]{1,40}[|\uff5c]?>|\[TOOL_CALLS\]|```\w{0,20}|\[)+\Z")
_NEAR = 200


class RepairedCalls(NamedTuple):
    """Repaired calls of a completion."""

    calls: tuple[Called, ...]
    text: str
    """Text before the first call in it; the whole text without one."""
    artefact: str | None
    """Distortion by the server's parser, worded for a message; None without a distortion."""
    clear: bool = True
    """False if a call cannot be identified, which makes the completion unusable."""


def settle(calls: tuple[Called, ...], text: str, tools: Tools, *, others: bool = False) -> RepairedCalls:
    """Return the calls that the model made of these tools; with `others`, also marked calls of other functions in the
    text. An exact tool name never changes, and a name that the model may have invented stays.
    """
    settled: list[Called] = []
    artefact: str | None = None
    for name, arguments, call_id in calls:
        known = _tool(name, tools)
        if known is None and (_NO_NAME.search(name) or name[: len(name) // 2] * 2 == name):
            return RepairedCalls(calls, text, f"the name {name[:_NEAR]!r}", clear=False)
        plain = arguments if known is None else _plain(arguments, tools[known])
        if known not in {None, name}:
            artefact = f"the name {name[:_NEAR]!r}"
        elif plain != arguments:
            artefact = artefact or "arguments encoded twice or in an envelope"
        settled.append((known or name, plain, call_id))
    written = [*_written(text, tools, others=others)]
    if not written:
        return RepairedCalls((*settled,), text, artefact)
    found: list[Called] = [(name, arguments, None) for _, name, arguments in written if name is not None]
    same = all(any(one[:2] == other[:2] for other in settled) for one in found)
    clear = len(found) == len(written) and (not settled or same)
    begin = written[0][0]
    before = text[:begin]
    before = before[:-_NEAR] + _LEFT.sub("", before[-_NEAR:])
    return RepairedCalls((*(settled or found),), before, LEFT_IN_TEXT, clear=clear)


def _tool(name: str, tools: Tools) -> str | None:
    if name in tools:
        return name
    plain = _INDEX.sub("", name.partition("<|")[0].strip(" \t\r\n`'\""))
    forms = {
        plain,
        re.split(r"[.:/=]", plain)[-1],
        re.sub(r"\W+", "_", plain),
        re.sub(r"^(?:functions?|tools?)_+", "", plain),
    }
    found = [tool for tool in tools if any(form and form == tool * max(1, len(form) // len(tool)) for form in forms)]
    return found[0] if len(found) == 1 else None


def _plain(arguments: str, parameters: Collection[str]) -> str:
    """Return the arguments without the layers of strings and envelopes around them; the same text without layers."""
    value: object = arguments
    for layer in range(_LAYERS):
        value = _loaded(value) if isinstance(value, str) else value
        if value is None:
            return "{}"
        if isinstance(value, dict):
            envelope = cast("dict[str, object]", value)
            key = next((one for one in _ARGUMENTS if one in envelope), None)
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


def _loaded(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        with suppress(ValueError):
            return read_json(text)
    return False


def _written(text: str, tools: Tools, *, others: bool) -> Iterator[tuple[int, str | None, str]]:
    """Yield start, tool and arguments of each call in a text; the tool is None for an unreadable call."""
    at = 0
    for match in islice(_WRITTEN.finditer(text), _MOST):
        if match.start() < at:
            continue
        if match["object"] is None:
            arguments, at = _arguments(text, match.end())
            known = _tool(match["name"], tools) or (match["name"] if others else None)
            if arguments is None and known is not None and not tools.get(known):
                arguments = "{}"
            yield match.start(), known if arguments is not None else None, arguments or ""
            continue
        value, at = _object(text, match.start())
        inner = value.get("function")
        call = cast("dict[str, object]", inner) if isinstance(inner, dict) else value
        name = next((one for key in _NAMES if isinstance(one := call.get(key), str)), "")
        key = next((key for key in _ARGUMENTS if key in call), None)
        marked = re.search(rf"(?:{_MARK})\W*\Z", text[max(0, match.start() - _NEAR) : match.start()]) is not None
        # An unmarked object with an unknown function may be any data.
        if (
            known := (_tool(name, tools) or (name if others and key and marked else None)) if name else None
        ) is not None:
            arguments = _plain(orjson.dumps(call[key] if key else {}).decode(), tools.get(known, ()))
            yield match.start(), known, arguments
        elif marked:
            yield match.start(), None, ""


def _arguments(text: str, at: int) -> tuple[str | None, int]:
    if text.startswith("{", at):
        value, end = _object(text, at)
        return (None if end == at else orjson.dumps(value).decode()), end
    pairs: dict[str, str] = {}
    while len(pairs) < _MOST and (pair := _PARAMETER.match(text, at)) is not None:
        pairs[pair["name"] or pair["key"]] = pair["value"].strip()
        at = pair.end()
    return (orjson.dumps(pairs).decode() if pairs else None), at


def _object(text: str, at: int) -> tuple[dict[str, object], int]:
    """Return the JSON object that begins at `at`, and its end; without an object, an empty dict and `at`."""
    try:
        value, end = json.JSONDecoder().raw_decode(text, at)
        orjson.dumps(value)
    except (ValueError, TypeError, RecursionError):
        return {}, at
    return value, end
