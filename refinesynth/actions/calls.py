"""An action as a call of a function: what agents are trained and served on beside text.

Each action of a script is a function, its placeholders are properties of their types, and the values that are listed an
`enum`. An action's text and its call say the same: `text_of(call_of(text))` is the text wherever it is the template
filled, or is no action at all; where a pattern is wider than its template (`the milk` for `milk`), it is the same action
with the same values, in the template's words.
"""

import ast
import re
import unicodedata
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from pydantic import JsonValue

from refinesynth.actions.matching import match_in, match_pattern, meaning
from refinesynth.text.json_reader import scrub, write_json
from refinesynth.trajectory import ActionSpec, Script
from refinesynth.trajectory.parameter import json_value
from refinesynth.trajectory.weak_cache import weakly_cached

TEXT = "action"
"""The one argument of a call that stands for a text which is no action: the whole text."""

_LONGEST = 60
"""Characters of a name: providers take 64, and a number may follow."""
_LONGEST_TEXT = 20_000
"""Characters of a text in which a call in Python's syntax is looked for; a call has at most 1,000."""
_ABSURD = 1e15
_LINE = re.compile(
    r"^(?:[ \t]*action:[ \t]*\n)?(?:[ \t]*```\w*[ \t]*\n)?[ \t>]*(?:action:[ \t]*)?`*(?P<call>[a-z_]\w*\([^\n]{0,1000}\))`*[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
"""A line that may be a call in Python's syntax, with a label and a fence before it."""
_GIVEN = re.compile(r"(\S+)=\{")
"""Argument of a given function in its action's template."""
_OTHER = re.compile(r"[^A-Za-z0-9]+")


class Call(NamedTuple):
    """A function's name, and its arguments by property."""

    name: str
    arguments: Mapping[str, JsonValue]


@dataclass(frozen=True)
class Tool:
    """An action as a function."""

    name: str
    """Of ASCII letters, digits and `_`, 64 characters at most; no two of a script are the same."""
    action: ActionSpec
    properties: Mapping[str, str]
    """Placeholder to property; a property's name is made as a function's is."""

    def spelled(self, placeholder: str, given: str | None) -> str:
        """Return a value as the action's text has it: the default where none is given, else the placeholder."""
        kind = self.action.type_of(placeholder)
        if given is None:
            left_out = "" if kind.optional else f"{{{placeholder}}}"
            return left_out if kind.default is None else kind.default
        return (kind.spelled(given) if kind.type != "string" else None) or given

    def definition(self) -> dict[str, Any]:
        """As a chat completion's `tools` have it."""
        action = self.action
        if action.function is not None:
            return {"type": "function", "function": action.function}
        described = {
            name: action.type_of(placeholder).json_schema(action.parameters.get(placeholder, ()))
            for placeholder, name in self.properties.items()
        }
        said = self.action.name + (f": {self.action.description}" if self.action.description else "")
        parameters = {
            "type": "object",
            "properties": described,
            "required": [name for name, schema in described.items() if "default" not in schema],
        }
        return {"type": "function", "function": {"name": self.name, "description": said, "parameters": parameters}}


def tools_of(script: Script) -> tuple[Tool, ...]:
    """One for each action, in their order."""
    return tuple(_tools(script).values())


def call_of(script: Script, text: str) -> Call:
    """The call that says this text.

    What is no action is called as a model would that gets it wrong: a value outside its list, or a function that there
    is not, with the whole text as its argument.
    """
    found = match_in(script, text)
    for tool in tools_of(script):
        if found is not None:
            values = found.values if found.action is tool.action else None
        else:
            captured = match_pattern(tool.action, text) or {}
            values = {name: value for name, value in captured.items() if value is not None}
        call = None if values is None else _said(tool, values)
        if call is not None and _same(script, text, text_of(script, call), exactly=found is None):
            return call
    return Call(_new_name(script, text), {TEXT: text})


def text_of(script: Script, call: Call) -> str:
    """The action's text that a call says: its template filled; a placeholder without an argument stays in braces.

    Of a function that the script does not have: the text that its only argument is, see `call_of`, else the function's
    words and what its arguments hold. Arguments that a function does not have are left out. Never raises.
    """
    tool = _tools(script).get(call.name)
    if tool is not None:
        said = {name: call.arguments[at] for name, at in tool.properties.items() if at in call.arguments}
        # Null leaves an optional argument out; the text "null" is a value.
        given = {name: _text(v) for name, v in said.items() if v is not None or not tool.action.type_of(name).optional}
        return tool.action.fill({name: tool.spelled(name, given.get(name)) for name in tool.properties})
    if set(call.arguments) == {TEXT}:
        return _text(call.arguments[TEXT])
    return " ".join((*call.name.replace("_", " ").split(), *map(_text, call.arguments.values())))


def python_call(script: Script, text: str) -> tuple[int, Call] | None:
    """The call in Python's syntax that is a line of a text, such as `open(door="red")`, alone, in a fence or after
    `Action:`, and where that begins: of one function of the script, with literal arguments, at the end of the text. None
    for no call, or several different ones.
    """
    matches = [*_LINE.finditer(text[:_LONGEST_TEXT])]
    if not matches or text[matches[-1].end() :].strip("` \t\r\n"):
        return None  # words behind a call may say that it is not taken
    found = {match["call"]: match.start() for match in reversed(matches)}
    (line, at), *others = found.items() or [("", 0)]
    call = None if others else _of_python(script, line)
    return call and (at, call)


def _of_python(script: Script, line: str) -> Call | None:
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes such as \d
            tree = ast.parse(line, mode="eval").body
        if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
            return None
        given = [ast.literal_eval(each) for each in tree.args]
        named = {each.arg or "": ast.literal_eval(each.value) for each in tree.keywords}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    calls: list[Call] = []
    for tool in tools_of(script):
        names = [*tool.properties.values()]
        arguments = dict(zip(names, given, strict=False)) | named
        # Of a user's function it may be missing.
        needed: list[str] = tool.definition()["function"]["parameters"].get("required") or []
        whole = set(needed) <= arguments.keys() <= set(names) and len(arguments) == len(given) + len(named)
        # Only a parameter of JSON takes lists and objects.
        nested = {at for at, value in arguments.items() if isinstance(value, list | dict)}
        whole &= nested <= {at for name, at in tool.properties.items() if tool.action.type_of(name).type == "json"}
        if whole and f"{tool.name}_".startswith(f"{tree.func.id}_") and all(map(_is_plain, arguments.values())):
            calls.append(Call(tool.name, arguments))
    calls = [call for call in calls if call.name == tree.func.id] or calls
    return calls[0] if len(calls) == 1 else None


def _is_plain(value: object) -> bool:
    """Return True for texts without halves of characters, numbers of no absurd size, and lists and objects of them."""
    if isinstance(value, dict):
        found = cast("dict[object, object]", value)
        return all(isinstance(key, str) and _is_plain(each) for key, each in found.items())
    if isinstance(value, list):
        return all(map(_is_plain, cast("list[object]", value)))
    if isinstance(value, str):
        return value.isascii() or scrub(value) == value
    return isinstance(value, int | float) and abs(value) < _ABSURD


@weakly_cached
def _tools(script: Script) -> dict[str, Tool]:
    tools: dict[str, Tool] = {}
    for action in script.actions:
        if action.function is not None:
            name, _, rest = action.name.partition(" ")
            own = dict(zip(action.placeholders, _GIVEN.findall(rest), strict=False))
            tools[name] = Tool(name, action, own)
            continue
        words = " ".join(re.split(r"\{[^{}]*\}", action.name))
        name = _unique(_named(words) or "act", tools)
        properties: dict[str, str] = {}
        for placeholder in dict.fromkeys(action.placeholders):
            properties[placeholder] = _unique(_named(placeholder) or "value", properties.values())
        tools[name] = Tool(name, action, properties)
    return tools


def _said(tool: Tool, values: Mapping[str, str]) -> Call | None:
    """With all of the action's values; None if one is missing."""
    if values.keys() != tool.properties.keys():
        return None
    arguments: dict[str, JsonValue] = {}
    for name, at in tool.properties.items():
        kind, value = tool.action.type_of(name), values[name]
        left_out = (kind.optional and not value) or (tool.action.function is not None and value == f"{{{name}}}")
        if not left_out:
            arguments[at] = json_value(kind, value)
    return Call(tool.name, arguments)


def _same(script: Script, text: str, again: str, *, exactly: bool) -> bool:
    return text == again or (not exactly and meaning(script, text) == meaning(script, again))


def _new_name(script: Script, text: str) -> str:
    """The text's first word, as a function that the script does not have."""
    return _unique(_named(text.partition(" ")[0]) or "act", _tools(script))


def _named(words: str) -> str:
    plain = unicodedata.normalize("NFKD", words[: 4 * _LONGEST]).encode("ascii", "ignore").decode()
    return _OTHER.sub("_", plain)[:_LONGEST].strip("_")


def _unique(name: str, taken: Iterable[str]) -> str:
    """The name, or with the first number that nothing has."""
    every = set(taken)
    number = 2
    wanted = name
    while wanted in every:
        wanted, number = f"{name}_{number}", number + 1
    return wanted


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else write_json(value).decode()
