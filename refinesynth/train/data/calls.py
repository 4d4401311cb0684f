r"""Calls of functions, their answers and the functions themselves, in the forms that public data has, brought into one.

    {"tool_calls": [{"id", "type": "function", "function": {"name", "arguments"}}]}     chat completions
    {"function_call": {"name", "arguments"}}, then role `function` with a `name`        OpenAI's older form
    {"from": "function_call", "value": "{\"name\", \"arguments\"}"}, then `observation`  LLaMA-Factory, APIGen-MT
    <tool_call>{"name", "arguments"}</tool_call>, then <tool_response>...</tool_response>   Hermes, in the text

Arguments are an object or its JSON text. Functions are listed with or without {"type": "function"} around them.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, cast

from refinesynth.chat import action_label
from refinesynth.errors import InputError
from refinesynth.text.jsontext import MAX_DEPTH, depth, load_json, write_json
from refinesynth.train.conversation import ToolCall
from refinesynth.train.data.turn_labels import FlaggedMessage

_CALLS = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_ANSWERS = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)
_ARGUMENTS = ("arguments", "parameters", "args")
_MAY_BE_NULL = frozenset({"default", "const", "enum", "example", "examples"})
"""Keys of a JSON schema under which null is a value."""


class _Object(dict[str, Any]):
    """Arguments that a record has as an object: a table has a column for every key, and null where a call has none."""


class Read(NamedTuple):
    """A message of a record, before its calls and their answers are brought together."""

    message: FlaggedMessage
    flag: bool | None
    name: str
    """Of a tool's message: the function that answers, if it says so."""


def read_tools(given: Mapping[str, Any], where: str, *, table: bool) -> tuple[list[dict[str, Any]], bool]:
    """The functions that a record says may be called, as a chat completion's `tools`, from a list or its JSON text; and
    whether it is, or once was, the row of a `table`, whose columns are filled with null.

    Raises:
        InputError: They are neither.
    """
    try:
        tools = [_tool(tool) for tool in _listed(given.get("tools") or given.get("functions") or [])]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise InputError(
            f'{where}: `tools` is not a list of {{"type": "function", "function": {{"name", "description", "parameters"}}}}, with or '
            "without the outer object; expected what a chat completion's `tools` are"
        ) from error
    table = table or _holds_padding(tools)
    return ([_without_nulls(tool) for tool in tools] if table else tools), table


def _tool(given: Mapping[str, Any]) -> dict[str, Any]:
    inner: Any = given.get("function")
    flat: dict[str, Any] = {
        key: value for key, value in given.items() if key != "type" and not (key == "function" and value is None)
    }
    function = cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else flat
    if not isinstance(function["name"], str) or depth(dict(function)) > MAX_DEPTH:
        raise TypeError("a function without a name, or nested too deeply")
    return dict(given) if isinstance(inner, Mapping) else {"type": "function", "function": function}


def calls_of(message: Mapping[str, Any], where: str, at: str) -> tuple[ToolCall, ...]:
    """What a message calls under `tool_calls` or `function_call`.

    Raises:
        InputError: It cannot be read.
    """
    key = "tool_calls" if message.get("tool_calls") else "function_call"
    return read_calls(message[key], f"{where}: `{key}` of {at}") if message.get(key) else ()


def read_calls(value: object, what: str) -> tuple[ToolCall, ...]:
    """Calls of a list or a single one, as objects or as JSON text.

    Raises:
        InputError: They cannot be read; the message begins with `what`.
    """
    try:
        return tuple(map(_call, _listed(value)))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{what} cannot be read: {error}; expected a list of "
            '{"id", "type": "function", "function": {"name", "arguments"}}, the arguments an object or its JSON text'
        ) from error


def _call(item: Mapping[str, Any]) -> ToolCall:
    function: Any = item.get("function") if isinstance(item.get("function"), Mapping) else item
    name = function["name"]
    given: Any = next((function[key] for key in _ARGUMENTS if function.get(key) is not None), None)
    arguments: Any = given
    for _ in range(2):  # Some write the text of a text.
        arguments = (load_json(arguments) if arguments.strip() else {}) if isinstance(arguments, str) else arguments
    if not isinstance(name, str) or not name or not isinstance(arguments, Mapping | None):
        raise ValueError(f"a call of {name!r} with arguments of {type(arguments).__name__}")
    known = cast("dict[str, Any]", arguments or {})
    if depth(known) > MAX_DEPTH:
        raise ValueError(f"the arguments of {name!r} are nested too deeply")
    return ToolCall(str(item.get("id") or ""), name, dict(known) if isinstance(given, str) else _Object(known))


def _calls_in_text(text: str) -> tuple[str, tuple[ToolCall, ...]] | None:
    """What is said before calls that end a text, and the calls; None where there are none that can be read."""
    said, found, calls = text.partition("<tool_call>")
    written = _CALLS.findall(found + calls)
    if not written or _CALLS.sub("", found + calls).strip() or action_label(text) is not None:
        return None
    try:
        return said.strip(), tuple(call for one in written for call in read_calls(_literal(one), ""))
    except InputError:
        return None


def _literal(text: str) -> Any:
    """JSON, or what Python prints of it, as some of the data has it."""
    try:
        return load_json(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def with_answers(
    found: Sequence[Read], tools: Sequence[Mapping[str, Any]], where: str, *, table: bool
) -> Iterator[tuple[FlaggedMessage, bool | None]]:
    """The messages with every call named, and each answer saying which call it answers.

    Raises:
        InputError: One message answers several calls.
    """
    numbers = count()
    at = 0
    unpadded = _unpadded(found, tools, table=table)
    while at < len(found):
        message, flag, _ = found[at]
        stop = next((k for k in range(at + 1, len(found)) if not _answers(found[k].message)), len(found))
        in_text = _calls_in_text(message.content) if message.role == "assistant" and not message.calls else None
        if in_text is not None and (stop > at + 1 or stop == len(found)):
            message = message._replace(content=in_text[0], calls=in_text[1])
        if not message.calls:
            yield message, flag
            at += 1
            continue
        named = [call._replace(id=call.id or f"call{next(numbers):05d}") for call in message.calls]
        yield message._replace(calls=tuple(map(unpadded, named))), flag
        yield from _answered(found[at + 1 : stop], message.calls, named, f"{where}: message {at + 2}")
        at = stop


def _answers(message: FlaggedMessage) -> bool:
    """Whether a message is a tool's, or what a tool answers in a user's words."""
    if message.role == "user":
        return "<tool_response>" in message.content and not _ANSWERS.sub("", message.content).strip()
    return message.role == "tool"


def _answered(
    answers: Sequence[Read], calls: Sequence[ToolCall], named: Sequence[ToolCall], at: str
) -> Iterator[tuple[FlaggedMessage, bool | None]]:
    """Each answer with the id of its call: its own; else that of the next call, of its function where it names one."""
    waiting = list(named)
    anonymous = all(not call.id for call in calls)
    for answer, flag, name in answers:
        texts = _ANSWERS.findall(answer.content)
        if not texts or _ANSWERS.sub("", answer.content).strip():
            texts = [answer.content]
        if len(texts) == 1 < len(waiting) and len(answers) == 1 and (anonymous or not answer.answers):
            texts = _each(answer.content, len(waiting), at)
        for text in texts:
            call = next((one for one in waiting if one.id == answer.answers), None)
            if call is None and (anonymous or not answer.answers):
                call = next((one for one in waiting if one.name == name), waiting[0] if waiting else None)
            waiting = [one for one in waiting if one is not call]
            known = answer.answers if call is None else call.id
            yield answer._replace(role="tool", content=text, answers=known), flag


def _each(content: str, number: int, at: str) -> list[str]:
    """The answers to several calls in one message, as LLaMA-Factory has them: a list in JSON."""
    found: Any = _literal(content)
    if not isinstance(found, list) or len(cast("list[Any]", found)) != number:
        raise InputError(
            f"{at} answers {number} calls at once; expected a message for each, a JSON list of as many answers, or as many "
            "<tool_response>. Write one message for each call"
        )
    return [one if isinstance(one, str) else write_json(one).decode() for one in cast("list[Any]", found)]


def _unpadded(
    found: Sequence[Read], tools: Sequence[Mapping[str, Any]], *, table: bool
) -> Callable[[ToolCall], ToolCall]:
    """What takes the nulls out of arguments with which a table fills its columns, and leaves those that a model wrote.

    Arguments in JSON text are a model's. Of an object, null is padding where a record is out of a `table`, for every
    parameter that is not required; any record is, where a call has null for a parameter that its function does not have.
    """
    schemas = {tool["function"]["name"]: tool["function"].get("parameters") for tool in tools}
    objects = [call for one in found for call in one.message.calls if isinstance(call.arguments, _Object)]
    table = table or any(
        value is None and call.name in schemas and key not in _keys(schemas[call.name], "properties")
        for call in objects
        for key, value in call.arguments.items()
    )

    def unpadded(call: ToolCall) -> ToolCall:
        if not table or not isinstance(call.arguments, _Object):
            return call._replace(arguments=dict(call.arguments))
        required = _keys(schemas.get(call.name), "required")
        given = call.arguments.items()
        return call._replace(arguments={k: _without_nulls(v) for k, v in given if v is not None or k in required})

    return unpadded


def _keys(schema: object, key: str) -> set[str]:
    found: object = cast("Mapping[str, object]", schema).get(key) if isinstance(schema, Mapping) else None
    every = cast("Sequence[object]", found) if isinstance(found, Mapping | list) else ()
    return {one for one in every if isinstance(one, str)}


def _holds_padding(value: object) -> bool:
    """Whether null stands in a schema where it is no value."""
    if isinstance(value, Mapping):
        known = cast("Mapping[str, object]", value)
        return any(key not in _MAY_BE_NULL and (one is None or _holds_padding(one)) for key, one in known.items())
    return isinstance(value, list | tuple) and any(map(_holds_padding, cast("Sequence[object]", value)))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        known = cast("Mapping[str, Any]", value)
        return {key: _without_nulls(one) for key, one in known.items() if one is not None}
    return [*map(_without_nulls, cast("list[Any]", value))] if isinstance(value, list) else value


def _listed(value: Any) -> list[Any]:
    """Items of a list, or the only one, each as an object or its JSON text; and so may be the list."""
    found: Any = load_json(value) if isinstance(value, str) else value
    every: list[Any] = [found] if isinstance(found, Mapping) else list(found)
    return [load_json(one) if isinstance(one, str) else one for one in every]
