"""An action as a call of a function: what agents are trained and served on beside text.

Each action of a script is a function, its placeholders are properties of their types, and the values that are listed an
`enum`. An action's text and its call say the same: `text_of(call_of(text))` is the text wherever it is the template
filled, or is no action at all; where a pattern is wider than its template (`the milk` for `milk`), it is the same action
with the same values, in the template's words.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import JsonValue

from refinesynth.actions.matching import match_in, match_pattern, meaning
from refinesynth.text.json_reader import write_json
from refinesynth.trajectory import ActionSpec, Script
from refinesynth.trajectory.parameter import json_value
from refinesynth.trajectory.weak_cache import weakly_cached

TEXT = "action"
"""The one argument of a call that stands for a text which is no action: the whole text."""

_LONGEST = 60
"""Characters of a name: providers take 64, and a number may follow."""
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
            return f"{{{placeholder}}}" if kind.default is None else kind.default
        return (kind.spelled(given) if kind.type != "string" else None) or given

    def definition(self) -> dict[str, Any]:
        """As a chat completion's `tools` have it."""
        action = self.action
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
        given = {name: _text(call.arguments[at]) for name, at in tool.properties.items() if at in call.arguments}
        return tool.action.fill({name: tool.spelled(name, given.get(name)) for name in tool.properties})
    if set(call.arguments) == {TEXT}:
        return _text(call.arguments[TEXT])
    return " ".join((*call.name.replace("_", " ").split(), *map(_text, call.arguments.values())))


@weakly_cached
def _tools(script: Script) -> dict[str, Tool]:
    tools: dict[str, Tool] = {}
    for action in script.actions:
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
    types = tool.action.type_of
    return Call(tool.name, {at: json_value(types(name), values[name]) for name, at in tool.properties.items()})


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
