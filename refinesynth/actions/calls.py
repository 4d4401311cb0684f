"""Actions as function calls, besides text the other form of training and serving agents.

Each action of a script is a function with its placeholders as typed properties; listed values are an `enum`. Text and
call are equivalent: `text_of(call_of(text))` is the text if it is a filled template or no action. If a pattern is wider
than its template (`the milk` for `milk`), the result is the same action with the same values in the template's words.
"""

import ast
import re
import unicodedata
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, count
from math import isfinite
from typing import Any, NamedTuple, cast

from pydantic import JsonValue

from refinesynth.actions.matching import action_key, match_in, match_pattern
from refinesynth.text.formatting import scrub
from refinesynth.text.json_reader import write_json
from refinesynth.trajectory import ActionSpec, Script
from refinesynth.trajectory.parameter import json_value
from refinesynth.trajectory.value import weakly_cached

TEXT = "action"
"""Name of the only argument, the whole text, in a call for a text that is no action."""

_MAX_NAME_LENGTH = 60
"""Longest name, in characters: providers accept 64, and a number may be appended."""
_MAX_SEARCHED = 20_000
"""Maximum length of the searched beginning of a text for a call in Python's syntax, in characters."""
_MAX_BITS = 64
"""Maximum length of a whole number in a call in Python's syntax, in bits."""
_MAX_EXACT_BITS = 10_000
"""Maximum length of a whole number that is written with all digits, in bits; Python writes up to 4,300 digits."""
_CALL_LINE = re.compile(
    r"^(?:[ \t]*action:[ \t]*\n)?(?:[ \t]*```\w*[ \t]*\n)?[ \t>]*(?:action:[ \t]*)?`*(?P<call>[a-z0-9_][\w-]{0,63}\([^\n]{0,1000}\))`*[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
"""A line that may be a call in Python's syntax, perhaps after a label and a fence."""
_ARGUMENT = re.compile(r"(\S+)=\{")
"""Argument of a given function in its action's template."""
_NON_WORD = re.compile(r"[^A-Za-z0-9]+")


class Call(NamedTuple):
    """Function name, and arguments by property."""

    name: str
    arguments: Mapping[str, JsonValue]


@dataclass(frozen=True)
class Tool:
    """An action as a function."""

    name: str
    """ASCII letters, digits and `_`, at most 64 characters, unique within a script. A user's function keeps its own
    name, which may contain `-`.
    """
    action: ActionSpec
    properties: Mapping[str, str]
    """Placeholder to property name, derived like a function's name; for a user's function, its own argument name."""

    def canonical(self, placeholder: str, value: str | None) -> str:
        """Return the canonical spelling of `value` in an action's text, or `value` itself if it has none.

        A missing value becomes the default; without a default, an empty text if it is optional, else the placeholder.
        """
        kind = self.action.type_of(placeholder)
        if value is None:
            omitted = "" if kind.optional else f"{{{placeholder}}}"
            return omitted if kind.default is None else kind.default
        return (kind.canonical(value) if kind.type != "string" else None) or value

    def definition(self) -> dict[str, Any]:
        """Return the function in the form of a chat completion's `tools`."""
        action = self.action
        if action.function is not None:
            return {"type": "function", "function": action.function}
        described = {
            name: action.type_of(placeholder).json_schema(action.parameters.get(placeholder, ()))
            for placeholder, name in self.properties.items()
        }
        description = self.action.name + (f": {self.action.description}" if self.action.description else "")
        parameters = {
            "type": "object",
            "properties": described,
            "required": [name for name, schema in described.items() if "default" not in schema],
        }
        return {
            "type": "function",
            "function": {"name": self.name, "description": description, "parameters": parameters},
        }


def tools_of(script: Script) -> tuple[Tool, ...]:
    """Return the functions of a script, one per action, in order."""
    return tuple(_tools(script).values())


def call_of(script: Script, text: str) -> Call:
    """Return the call for an action's text.

    A text that is no action becomes a typical wrong call: a value outside its list, or an unknown function with the
    whole text as argument.
    """
    match = match_in(script, text)
    for tool in tools_of(script):
        if match is not None:
            values = match.values if match.action is tool.action else None
        else:
            captured = match_pattern(tool.action, text) or {}
            values = {name: value for name, value in captured.items() if value is not None}
        call = None if values is None else _call_with(tool, values)
        rendered = text if call is None else text_of(script, call)
        is_same = text == rendered or (match is not None and action_key(script, text) == action_key(script, rendered))
        if call is not None and is_same:
            return call
    return Call(_unique(_identifier(text.partition(" ")[0]) or "act", _tools(script)), {TEXT: text})


def text_of(script: Script, call: Call) -> str:
    """Return the action's text for a call: its filled template.

    A missing argument becomes its default; without a default, it is empty if it is optional, else the placeholder stays
    in braces. Unknown arguments are omitted. For an unknown function, return the only argument if it is named `action`,
    else the function's words and the values of its arguments. Never raises.
    """
    tool = _tools(script).get(call.name)
    if tool is not None:
        values = {name: call.arguments[key] for name, key in tool.properties.items() if key in call.arguments}
        # Null omits an optional argument; the text "null" is a value.
        texts = {
            name: _text(v) for name, v in values.items() if v is not None or not tool.action.type_of(name).optional
        }
        return tool.action.fill({name: tool.canonical(name, texts.get(name)) for name in tool.properties})
    if set(call.arguments) == {TEXT}:
        return _text(call.arguments[TEXT])
    return " ".join((*call.name.replace("_", " ").split(), *map(_text, call.arguments.values())))


def python_call(script: Script, text: str) -> tuple[int, Call] | None:
    """Return the only call in Python's syntax in a text, such as `open(door="red")`, and its position; None for no call
    or several different ones.

    The call is on the last line, alone, in a fence or after `Action:`. It has the name of a function of the script, or the
    first words of the name of a single suitable function. The arguments are literals of at most 1,000 characters in all;
    none is unknown, and no required one is missing.
    """
    matches = [*_CALL_LINE.finditer(text[:_MAX_SEARCHED])]
    if not matches or text[matches[-1].end() :].strip("` \t\r\n"):
        return None  # text after the call may revoke it
    positions = {match["call"]: match.start() for match in reversed(matches)}
    (line, position), *others = positions.items() or [("", 0)]
    call = None if others else _parse_call(script, line)
    return call and (position, call)


def _parse_call(script: Script, line: str) -> Call | None:
    name, _, rest = line.partition("(")
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes such as \d
            # A function's name may contain `-` or be a keyword; Python could not parse it.
            tree = ast.parse(f"call({rest}", mode="eval").body
        if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
            return None
        positional = [ast.literal_eval(node) for node in tree.args]
        keywords = {node.arg or "": ast.literal_eval(node.value) for node in tree.keywords}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    calls: list[Call] = []
    for tool in tools_of(script):
        names = [*tool.properties.values()]
        arguments = dict(zip(names, positional, strict=False)) | keywords
        # A user's function may lack the key.
        required: list[str] = tool.definition()["function"]["parameters"].get("required") or []
        once = len(arguments) == len(positional) + len(tree.keywords)
        fits = once and set(required) <= arguments.keys() <= set(names)
        # Only a JSON parameter accepts lists and objects.
        nested = {key for key, value in arguments.items() if isinstance(value, list | dict)}
        fits &= nested <= {key for name, key in tool.properties.items() if tool.action.type_of(name).type == "json"}
        if fits and f"{tool.name}_".startswith(f"{name}_") and all(map(_is_plain, arguments.values())):
            calls.append(Call(tool.name, arguments))
    calls = [call for call in calls if call.name == name] or calls
    return calls[0] if len(calls) == 1 else None


def _is_plain(value: object) -> bool:
    """Return whether a value consists of valid texts, numbers of reasonable size, and lists and objects of them."""
    if isinstance(value, dict):
        entries = cast("dict[object, object]", value)
        return all(isinstance(key, str) and _is_plain(item) for key, item in entries.items())
    if isinstance(value, list):
        return all(map(_is_plain, cast("list[object]", value)))
    if isinstance(value, str):
        return value.isascii() or scrub(value) == value
    return value.bit_length() <= _MAX_BITS if isinstance(value, int) else isinstance(value, float) and isfinite(value)


@weakly_cached
def _tools(script: Script) -> dict[str, Tool]:
    tools: dict[str, Tool] = {}
    for action in script.actions:
        if action.function is not None:
            name, _, rest = action.name.partition(" ")
            arguments = dict(zip(action.placeholders, _ARGUMENT.findall(rest), strict=False))
            tools[name] = Tool(name, action, arguments)
            continue
        words = " ".join(re.split(r"\{[^{}]*\}", action.name))
        name = _unique(_identifier(words) or "act", tools)
        properties: dict[str, str] = {}
        for placeholder in dict.fromkeys(action.placeholders):
            properties[placeholder] = _unique(_identifier(placeholder) or "value", properties.values())
        tools[name] = Tool(name, action, properties)
    return tools


def _call_with(tool: Tool, values: Mapping[str, str]) -> Call | None:
    """Return the call with the action's values; None if one is missing. Empty optional values are omitted."""
    if values.keys() != tool.properties.keys():
        return None
    arguments: dict[str, JsonValue] = {}
    for name, key in tool.properties.items():
        kind, value = tool.action.type_of(name), values[name]
        omitted = (kind.optional and not value) or (tool.action.function is not None and value == f"{{{name}}}")
        if not omitted:
            arguments[key] = json_value(kind, value)
    return Call(tool.name, arguments)


def _identifier(words: str) -> str:
    plain = unicodedata.normalize("NFKD", words[: 4 * _MAX_NAME_LENGTH]).encode("ascii", "ignore").decode()
    return _NON_WORD.sub("_", plain)[:_MAX_NAME_LENGTH].strip("_")


def _unique(name: str, taken: Iterable[str]) -> str:
    """Return the name, with a number appended if it is taken."""
    used = {*taken}
    return next(option for option in chain([name], (f"{name}_{number}" for number in count(2))) if option not in used)


def _text(value: JsonValue) -> str:
    exact = isinstance(value, int) and value.bit_length() <= _MAX_EXACT_BITS
    return value if isinstance(value, str) else write_json(value, exact=exact).decode()
