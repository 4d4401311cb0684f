r"""Reader of messages: roles, thoughts, loss flags and tool calls in the formats of other projects.

    {"tool_calls": [{"id", "type": "function", "function": {"name", "arguments"}}]}     chat completions
    {"function_call": {"name", "arguments"}}, then role `function` with a `name`        OpenAI's older format
    {"from": "function_call", "value": "{\"name\", \"arguments\"}"}, then `observation`  LLaMA-Factory, APIGen-MT
    <tool_call>{"name", "arguments"}</tool_call>, then <tool_response>...</tool_response>   Hermes, in the text

Arguments are an object or its JSON text. Functions may be wrapped in {"type": "function"}.
"""

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, cast

from refinesynth.chat import action_label, thinking_in
from refinesynth.errors import InputError
from refinesynth.text.json_reader import MAX_DEPTH, depth, load_json, write_json
from refinesynth.train.labelled_conversation import THOUGHTS, FlaggedMessage, ToolCall

_CALLS = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_ANSWERS = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)
_ARGUMENTS = ("arguments", "parameters", "args")
_MAY_BE_NULL = frozenset({"default", "const", "enum", "example", "examples"})
"""JSON schema keys for which null is a value."""


class _Object(dict[str, Any]):
    """Arguments that a record holds as an object, not as JSON text. In table rows, absent arguments are null."""


def read_tools(record: Mapping[str, Any], where: str, *, table: bool) -> tuple[list[dict[str, Any]], bool]:
    """Read a record's functions as a chat completion's `tools`; also return True if the record is or was a table row.

    In a table row, absent keys are filled with null. Raises `InputError` for invalid `tools`.
    """
    try:
        tools = [_tool(tool) for tool in _listed(record.get("tools") or record.get("functions") or [])]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise InputError(
            f'{where}: `tools` is not a list of {{"type": "function", "function": {{"name", "description", "parameters"}}}}, with or '
            "without the outer object; expected what a chat completion's `tools` are"
        ) from error
    table = table or _holds_padding(tools)
    return ([_without_nulls(tool) for tool in tools] if table else tools), table


def _tool(definition: Mapping[str, Any]) -> dict[str, Any]:
    inner: Any = definition.get("function")
    flat: dict[str, Any] = {
        key: value for key, value in definition.items() if key != "type" and not (key == "function" and value is None)
    }
    function = cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else flat
    if not isinstance(function["name"], str) or depth(dict(function)) > MAX_DEPTH:
        raise TypeError("a function without a name, or nested too deeply")
    return dict(definition) if isinstance(inner, Mapping) else {"type": "function", "function": function}


def _read_calls(value: object, what: str) -> tuple[ToolCall, ...]:
    """Read a list of calls or one call, as objects or JSON text. Raises `InputError` that begins with `what`."""
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
    value: Any = next((function[key] for key in _ARGUMENTS if function.get(key) is not None), None)
    arguments: Any = value
    for _ in range(2):  # Some records encode the arguments as JSON twice.
        arguments = (load_json(arguments) if arguments.strip() else {}) if isinstance(arguments, str) else arguments
    if not isinstance(name, str) or not name or not isinstance(arguments, Mapping | None):
        raise ValueError(f"a call of {name!r} with arguments of {type(arguments).__name__}")
    known = cast("dict[str, Any]", arguments or {})
    if depth(known) > MAX_DEPTH:
        raise ValueError(f"the arguments of {name!r} are nested too deeply")
    return ToolCall(str(item.get("id") or ""), name, dict(known) if isinstance(value, str) else _Object(known))


def _calls_in_text(text: str) -> tuple[str, tuple[ToolCall, ...]] | None:
    """Split a text that ends with calls into the text before the calls and the calls; None if none can be read."""
    answer, found, calls = text.partition("<tool_call>")
    written = _CALLS.findall(found + calls)
    if not written or _CALLS.sub("", found + calls).strip() or action_label(text) is not None:
        return None
    try:
        return answer.strip(), tuple(call for one in written for call in _read_calls(_literal(one), ""))
    except InputError:
        return None


def _literal(text: str) -> Any:
    """Parse JSON or a Python literal; None if both fail."""
    for read in (load_json, ast.literal_eval):
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return read(text)
    return None


def _with_answers(
    found: Sequence[FlaggedMessage], tools: Sequence[Mapping[str, Any]], where: str, *, table: bool
) -> Iterator[FlaggedMessage]:
    """Give every call an id and every answer its call's id. Raises `InputError` if a joint answer cannot be split."""
    numbers = count()
    at = 0
    unpadded = _unpadded(found, tools, table=table)
    while at < len(found):
        message = found[at]
        stop = next((k for k in range(at + 1, len(found)) if not _answers(found[k])), len(found))
        in_text = _calls_in_text(message.content) if message.role == "assistant" and not message.calls else None
        if in_text is not None and (stop > at + 1 or stop == len(found)):
            message = message._replace(content=in_text[0], calls=in_text[1])
        if not message.calls:
            yield message
            at += 1
            continue
        named = [call._replace(id=call.id or f"call{next(numbers):05d}") for call in message.calls]
        yield message._replace(calls=tuple(map(unpadded, named)))
        yield from _answered(found[at + 1 : stop], message.calls, named, f"{where}: message {at + 2}")
        at = stop


def _answers(message: FlaggedMessage) -> bool:
    """Return True for a tool message, or a user message with nothing but <tool_response> blocks."""
    if message.role == "user":
        return "<tool_response>" in message.content and not _ANSWERS.sub("", message.content).strip()
    return message.role == "tool"


def _answered(
    answers: Sequence[FlaggedMessage], calls: Sequence[ToolCall], named: Sequence[ToolCall], at: str
) -> Iterator[FlaggedMessage]:
    """Yield each answer with a call id: its own, else that of the next open call of its function, else of any."""
    waiting = list(named)
    anonymous = all(not call.id for call in calls)
    for answer in answers:
        texts = _ANSWERS.findall(answer.content)
        if not texts or _ANSWERS.sub("", answer.content).strip():
            texts = [answer.content]
        if len(texts) == 1 < len(waiting) and len(answers) == 1 and (anonymous or not answer.answers):
            texts = _each(answer.content, len(waiting), at)
        for text in texts:
            call = next((one for one in waiting if one.id == answer.answers), None)
            if call is None and (anonymous or not answer.answers):
                call = next((one for one in waiting if one.name == answer.name), waiting[0] if waiting else None)
            waiting = [one for one in waiting if one is not call]
            known = answer.answers if call is None else call.id
            yield answer._replace(role="tool", content=text, answers=known)


def _each(content: str, number: int, at: str) -> list[str]:
    """Split a JSON list of answers to several calls (LLaMA-Factory)."""
    answers: Any = _literal(content)
    if not isinstance(answers, list) or len(cast("list[Any]", answers)) != number:
        raise InputError(
            f"{at} answers {number} calls at once; expected a message for each, a JSON list of as many answers, or as many "
            "<tool_response>. Write one message for each call"
        )
    return [one if isinstance(one, str) else write_json(one).decode() for one in cast("list[Any]", answers)]


def _unpadded(
    found: Sequence[FlaggedMessage], tools: Sequence[Mapping[str, Any]], *, table: bool
) -> Callable[[ToolCall], ToolCall]:
    """Make a function that removes the nulls with which a table fills its columns.

    Nulls in arguments given as JSON text stay: a model wrote them. Nulls of optional parameters in an object are
    padding if the record is a `table` row, or if any call has null for a parameter that its function does not define.
    """
    schemas = {tool["function"]["name"]: tool["function"].get("parameters") for tool in tools}
    objects = [call for one in found for call in one.calls if isinstance(call.arguments, _Object)]
    table = table or any(
        value is None and call.name in schemas and key not in _keys(schemas[call.name], "properties")
        for call in objects
        for key, value in call.arguments.items()
    )

    def unpadded(call: ToolCall) -> ToolCall:
        if not table or not isinstance(call.arguments, _Object):
            return call._replace(arguments=dict(call.arguments))
        required = _keys(schemas.get(call.name), "required")
        arguments = call.arguments.items()
        return call._replace(arguments={k: _without_nulls(v) for k, v in arguments if v is not None or k in required})

    return unpadded


def _keys(schema: object, key: str) -> set[str]:
    found: object = cast("Mapping[str, object]", schema).get(key) if isinstance(schema, Mapping) else None
    every = cast("Sequence[object]", found) if isinstance(found, Mapping | list) else ()
    return {one for one in every if isinstance(one, str)}


def _holds_padding(value: object) -> bool:
    """Return True if a schema has null where null is not a value."""
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
    """The items of a list, or a single object as a list; the list and each item may be JSON text."""
    parsed: Any = load_json(value) if isinstance(value, str) else value
    items: list[Any] = [parsed] if isinstance(parsed, Mapping) else list(parsed)
    return [load_json(one) if isinstance(one, str) else one for one in items]


FLAGS = ("loss", "loss_weight", "training", "weight", "trainable", "step_loss_mask")
"""Message keys that hold a loss flag."""

_ROLES = {
    **dict.fromkeys(("human", "user", "prompter"), "user"),
    **dict.fromkeys(("gpt", "assistant", "model", "chatgpt", "bot", "chatbot"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function", "observation", "ipython", "tool_response", "tool_result"), "tool"),
    **dict.fromkeys(("function_call", "tool_call"), "call"),
}
"""Roles by their names in other formats. A `call` is an assistant message whose content is the call."""
_THINKING = (*THOUGHTS, "thought", "thoughts")
"""Message keys and content part types that hold thoughts."""


def read_messages(
    value: object, key: str, where: str, *, tools: Sequence[Mapping[str, Any]] = (), table: bool = False
) -> list[FlaggedMessage]:
    """Read the messages of a record; `table`: the record is a table row. Raises `InputError` for an invalid message."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = load_json(value)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InputError(
            f"{where}: `{key}` is {type(value).__name__}; expected a list of messages with role and content"
        )
    read = [_message(item, number, where) for number, item in enumerate(cast("Sequence[object]", value), start=1)]
    return [*_with_answers(read, tools, where, table=table)]


def _message(item: object, number: int, where: str) -> FlaggedMessage:
    at = f"message {number}"
    if not isinstance(item, Mapping):
        raise InputError(f"{where}: {at} is {type(item).__name__}; expected an object with role and content")
    message = {key: value for key, value in cast("Mapping[str, Any]", item).items() if value is not None}
    author = message.get("role", message.get("from"))
    role = _ROLES.get(author.strip().casefold().replace("-", "_"), author) if isinstance(author, str) else None
    calls = _calls(message, role, at, where)
    # A message with calls may have no content.
    content = message.get("content", message.get("value", "" if calls else None))
    texts = [""] if role == "call" else _texts(content, ("text", "output_text", "input_text"), "value", "text")
    if role is None or texts is None:
        raise InputError(
            f"{where}: {at} has the keys {sorted(map(str, message))}{_unread(content)}; expected a role and text content"
        )
    flags = {_flag(message[key], key, number, where) for key in FLAGS if key in message}
    if len(flags) > 1:
        raise InputError(f"{where}: {at} says both that it is trained on and that it is not. Keep one flag")
    flag = flags.pop() if flags else None
    if role == "assistant" and flag is not False:
        _refuse_halves(message.get("content"), number, where)
    answers = str(message.get("tool_call_id", "")) if role == "tool" else ""
    text, thinking = "".join(texts), ""
    if role in {"assistant", "call"}:
        text, thinking = _thinking(message, content, text, f"{where}: {at}")
    if role == "call" and isinstance(content, str):
        thinking = "\n\n".join(filter(None, dict.fromkeys((thinking, thinking_in(content).thinking))))
    spoken = "assistant" if role == "call" else role
    return FlaggedMessage(spoken, text, flag, calls, answers, thinking, str(message.get("name", "")))


def _calls(message: Mapping[str, Any], role: str | None, at: str, where: str) -> tuple[ToolCall, ...]:
    if role == "call":
        value = message.get("content", message.get("value"))
        return _read_calls(thinking_in(value).text if isinstance(value, str) else value, f"{where}: the call in {at}")
    key = "tool_calls" if message.get("tool_calls") else "function_call"
    called = role == "assistant" and message.get(key)
    return _read_calls(message[key], f"{where}: `{key}` of {at}") if called else ()


def _thinking(message: Mapping[str, Any], content: object, text: str, at: str) -> tuple[str, str]:
    """Split a message into text and thoughts, without duplicates. Thoughts that are only in the text stay there."""
    found: list[str] = []
    for key in _THINKING:
        if key in message:
            texts = _texts(message[key], None, "text", "value")
            if texts is None:
                raise InputError(
                    f"{at} has a `{key}` of {type(message[key]).__name__}; expected the text that was thought"
                )
            found.append("".join(texts).strip())
    found += [
        "".join(_texts(part, None, *_THINKING, "text", "value", "summary") or ()).strip()
        for part in _parts(content)
        if part.get("type") in _THINKING
    ]
    thoughts = [*dict.fromkeys(filter(None, found))]
    within = thinking_in(text)
    if not thoughts or within.form is None:
        return text, "\n\n".join(thoughts)
    if within.thinking not in thoughts:
        thoughts.append(within.thinking)
    return within.text, "\n\n".join(filter(None, thoughts))


def _texts(value: Any, types: Collection[str] | None, *keys: str) -> list[str] | None:
    """The texts of a content: a string, or parts with text under one of `keys`; None for other content.

    `types` are the accepted types of text parts; thinking parts are then skipped.
    """
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        part = cast("Mapping[str, object]", value)
        if types is not None and part.get("type") not in types:
            return [] if part.get("type") in _THINKING else None
        return next((_texts(part[key], None, *keys) for key in keys if part.get(key) is not None), None)
    if not isinstance(value, list | tuple):
        return None
    every = [
        _texts(part, types, *keys) if types is None or isinstance(part, Mapping) else None
        for part in cast("Sequence[object]", value)
    ]
    return None if None in every else [text for part in every for text in part or ()]


def _parts(content: object) -> Iterator[Mapping[str, object]]:
    for part in cast("Sequence[object]", content) if isinstance(content, list | tuple) else ():
        if isinstance(part, Mapping):
            yield cast("Mapping[str, object]", part)


def _unread(content: object) -> str:
    kinds = sorted({str(part.get("type")) for part in _parts(content)} - {"text", *_THINKING})
    return f" and content of the type {' and '.join(map(repr, kinds))}, which is not read" if kinds else ""


def _refuse_halves(content: object, number: int, where: str) -> None:
    """Refuse content parts marked as untrained (Axolotl), because loss flags apply to whole turns."""
    for part in _parts(content):
        if part.get("train", part.get("weight", 1)) == 0:
            raise InputError(
                f"{where}: a part of message {number} is not to be trained on (`train` or `weight`), and here a turn is trained "
                "on whole. Train on the run's own folder, or on an export in another format"
            )


def _flag(value: object, key: str, number: int, where: str) -> bool:
    if isinstance(value, bool | int | float) and value in {0, 1}:
        return bool(value)
    raise InputError(f"{where}: `{key}` of message {number} is {value!r}; expected true or false (1 or 0)")
