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
from refinesynth.text.json_reader import MAX_DEPTH, depth, load_json, without_nulls, write_json
from refinesynth.train.labelled_conversation import THOUGHTS, FlaggedMessage, ToolCall

_CALL_BLOCK = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_RESPONSE_BLOCK = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)
_ARGUMENTS = ("arguments", "parameters", "args")
_NULLABLE_KEYS = frozenset({"default", "const", "enum", "example", "examples"})
"""JSON schema keys for which null is a value."""


class _Arguments(dict[str, Any]):
    """Arguments that a record holds as an object, not as JSON text. In table rows, absent arguments are null."""


def read_tools(record: Mapping[str, Any], location: str, *, table: bool) -> tuple[list[dict[str, Any]], bool]:
    """Read a record's functions as a chat completion's `tools`; also return True if the record is or was a table row.

    In a table row, absent keys are filled with null. Raises `InputError` for invalid `tools`.
    """
    try:
        tools = [_normalize_tool(tool) for tool in _as_items(record.get("tools") or record.get("functions") or [])]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise InputError(
            f'{location}: `tools` is not a list of {{"type": "function", "function": {{"name", "description", "parameters"}}}}, with or '
            "without the outer object; expected what a chat completion's `tools` are"
        ) from error
    table = table or _holds_padding(tools)
    return ([without_nulls(tool) for tool in tools] if table else tools), table


def _normalize_tool(definition: Mapping[str, Any]) -> dict[str, Any]:
    inner: Any = definition.get("function")
    flat: dict[str, Any] = {
        key: value for key, value in definition.items() if key != "type" and not (key == "function" and value is None)
    }
    function = cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else flat
    if not isinstance(function["name"], str) or depth(dict(function)) > MAX_DEPTH:
        raise TypeError("a function without a name, or nested too deeply")
    return dict(definition) if isinstance(inner, Mapping) else {"type": "function", "function": function}


def _read_calls(value: object, subject: str) -> tuple[ToolCall, ...]:
    """Read a list of calls or one call, as objects or JSON text. Raises `InputError` that begins with `subject`."""
    try:
        return tuple(map(_parse_call, _as_items(value)))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{subject} cannot be read: {error}; expected a list of "
            '{"id", "type": "function", "function": {"name", "arguments"}}, the arguments an object or its JSON text'
        ) from error


def _parse_call(item: Mapping[str, Any]) -> ToolCall:
    function: Any = item.get("function") if isinstance(item.get("function"), Mapping) else item
    name = function["name"]
    value: Any = next((function[key] for key in _ARGUMENTS if function.get(key) is not None), None)
    arguments: Any = value
    for _ in range(2):  # Some records encode the arguments as JSON twice.
        arguments = (load_json(arguments) if arguments.strip() else {}) if isinstance(arguments, str) else arguments
    if not isinstance(name, str) or not name or not isinstance(arguments, Mapping | None):
        raise ValueError(f"a call of {name!r} with arguments of {type(arguments).__name__}")
    values = cast("dict[str, Any]", arguments or {})
    if depth(values) > MAX_DEPTH:
        raise ValueError(f"the arguments of {name!r} are nested too deeply")
    return ToolCall(str(item.get("id") or ""), name, dict(values) if isinstance(value, str) else _Arguments(values))


def _calls_in_text(text: str) -> tuple[str, tuple[ToolCall, ...]] | None:
    """Split a text that ends with calls into the text before the calls and the calls; None if none can be read."""
    content, tag, rest = text.partition("<tool_call>")
    blocks = _CALL_BLOCK.findall(tag + rest)
    if not blocks or _CALL_BLOCK.sub("", tag + rest).strip() or action_label(text) is not None:
        return None
    try:
        return content.strip(), tuple(call for block in blocks for call in _read_calls(_literal(block), ""))
    except InputError:
        return None


def _literal(text: str) -> Any:
    """Parse JSON or a Python literal; None if both fail."""
    for parse in (load_json, ast.literal_eval):
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return parse(text)
    return None


def _link_answers(
    messages: Sequence[FlaggedMessage], tools: Sequence[Mapping[str, Any]], location: str, *, table: bool
) -> Iterator[FlaggedMessage]:
    """Give every call an id and every answer its call's id. Raises `InputError` if a joint answer cannot be split."""
    numbers = count()
    index = 0
    remove_padding = _padding_remover(messages, tools, table=table)
    while index < len(messages):
        message = messages[index]
        stop = next((k for k in range(index + 1, len(messages)) if not _is_answer(messages[k])), len(messages))
        in_text = _calls_in_text(message.content) if message.role == "assistant" and not message.calls else None
        if in_text is not None and (stop > index + 1 or stop == len(messages)):
            message = message._replace(content=in_text[0], calls=in_text[1])
        if not message.calls:
            yield message
            index += 1
            continue
        numbered = [call._replace(id=call.id or f"call{next(numbers):05d}") for call in message.calls]
        yield message._replace(calls=tuple(map(remove_padding, numbered)))
        yield from _with_ids(messages[index + 1 : stop], message.calls, numbered, f"{location}: message {index + 2}")
        index = stop


def _is_answer(message: FlaggedMessage) -> bool:
    """Return True for a tool message, or a user message with nothing but <tool_response> blocks."""
    return message.role == "tool" or (message.role == "user" and bool(_responses(message.content)))


def _responses(text: str) -> list[str]:
    """The content of the <tool_response> blocks of a text; empty if it holds anything else."""
    return [] if _RESPONSE_BLOCK.sub("", text).strip() else _RESPONSE_BLOCK.findall(text)


def _with_ids(
    answers: Sequence[FlaggedMessage], calls: Sequence[ToolCall], numbered: Sequence[ToolCall], location: str
) -> Iterator[FlaggedMessage]:
    """Yield each answer with a call id: its own, else that of the next open call of its function, else of any."""
    pending = list(numbered)
    anonymous = all(not call.id for call in calls)
    for answer in answers:
        texts = _responses(answer.content) or [answer.content]
        if len(texts) == 1 < len(pending) and len(answers) == 1 and (anonymous or not answer.call_id):
            texts = _split_answers(answer.content, len(pending), location)
        for text in texts:
            call = next((item for item in pending if item.id == answer.call_id), None)
            if call is None and (anonymous or not answer.call_id):
                call = next((item for item in pending if item.name == answer.name), pending[0] if pending else None)
            pending = [item for item in pending if item is not call]
            call_id = answer.call_id if call is None else call.id
            yield answer._replace(role="tool", content=text, call_id=call_id)


def _split_answers(content: str, number: int, location: str) -> list[str]:
    """Split a JSON list of answers to several calls (LLaMA-Factory)."""
    answers: Any = _literal(content)
    if not isinstance(answers, list) or len(cast("list[Any]", answers)) != number:
        raise InputError(
            f"{location} answers {number} calls at once; expected a message for each, a JSON list of as many answers, or as many "
            "<tool_response>. Write one message for each call"
        )
    return [answer if isinstance(answer, str) else write_json(answer).decode() for answer in cast("list[Any]", answers)]


def _padding_remover(
    messages: Sequence[FlaggedMessage], tools: Sequence[Mapping[str, Any]], *, table: bool
) -> Callable[[ToolCall], ToolCall]:
    """Make a function that removes the nulls with which a table fills its columns.

    Nulls in arguments given as JSON text stay: a model wrote them. Nulls of optional parameters in an object are
    padding if the record is a `table` row, or if any call has null for a parameter that its function does not define.
    """
    schemas = {tool["function"]["name"]: tool["function"].get("parameters") for tool in tools}
    objects = [call for message in messages for call in message.calls if isinstance(call.arguments, _Arguments)]
    table = table or any(
        value is None and call.name in schemas and key not in _schema_keys(schemas[call.name], "properties")
        for call in objects
        for key, value in call.arguments.items()
    )

    def remove_padding(call: ToolCall) -> ToolCall:
        if not table or not isinstance(call.arguments, _Arguments):
            return call._replace(arguments=dict(call.arguments))
        required = _schema_keys(schemas.get(call.name), "required")
        arguments = call.arguments.items()
        return call._replace(arguments={k: without_nulls(v) for k, v in arguments if v is not None or k in required})

    return remove_padding


def _schema_keys(schema: object, key: str) -> set[str]:
    value: object = cast("Mapping[str, object]", schema).get(key) if isinstance(schema, Mapping) else None
    names = cast("Sequence[object]", value) if isinstance(value, Mapping | list) else ()
    return {name for name in names if isinstance(name, str)}


def _holds_padding(value: object) -> bool:
    """Return True if a schema has null where null is not a value."""
    if isinstance(value, Mapping):
        schema = cast("Mapping[str, object]", value)
        return any(key not in _NULLABLE_KEYS and (item is None or _holds_padding(item)) for key, item in schema.items())
    return isinstance(value, list | tuple) and any(map(_holds_padding, cast("Sequence[object]", value)))


def _as_items(value: Any) -> list[Any]:
    """The items of a list, or a single object as a list; the list and each item may be JSON text."""
    parsed: Any = load_json(value) if isinstance(value, str) else value
    items: list[Any] = [parsed] if isinstance(parsed, Mapping) else list(parsed)
    return [load_json(item) if isinstance(item, str) else item for item in items]


_ASSISTANT_FLAGS = ("loss_mask", "train")
"""Message keys that hold a loss flag on assistant messages only: some data marks all user messages with 1."""
FLAGS = ("loss", "loss_weight", "training", "weight", "trainable", "step_loss_mask", *_ASSISTANT_FLAGS)
"""Message keys that hold a loss flag."""
_UNREAD_FLAG = re.compile(r"(?:^|_)(?:train|mask|loss)")
"""Other keys of assistant messages that may hold a loss flag, such as `masked` and Axolotl's `train_detail`: refused."""

_ROLES = {
    **dict.fromkeys(("human", "user", "prompter"), "user"),
    **dict.fromkeys(("gpt", "assistant", "model", "chatgpt", "bot", "chatbot"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function", "observation", "ipython", "tool_response", "tool_result"), "tool"),
    **dict.fromkeys(("function_call", "tool_call"), "call"),
}
"""Roles by their names in other formats. A `call` is an assistant message whose content is the call."""
_THINKING_KEYS = (*THOUGHTS, "thought", "thoughts")
"""Message keys and content part types that hold thoughts."""


def read_messages(
    value: object, key: str, location: str, *, tools: Sequence[Mapping[str, Any]] = (), table: bool = False
) -> list[FlaggedMessage]:
    """Read the messages of a record; `table`: the record is a table row. Raises `InputError` for an invalid message."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = load_json(value)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InputError(
            f"{location}: `{key}` is {type(value).__name__}; expected a list of messages with role and content"
        )
    parsed = [_message(item, number, location) for number, item in enumerate(cast("Sequence[object]", value), start=1)]
    return [*_link_answers(parsed, tools, location, table=table)]


def _message(item: object, number: int, location: str) -> FlaggedMessage:
    name = f"message {number}"
    if not isinstance(item, Mapping):
        raise InputError(f"{location}: {name} is {type(item).__name__}; expected an object with role and content")
    message = {key: value for key, value in cast("Mapping[str, Any]", item).items() if value is not None}
    author = message.get("role", message.get("from"))
    role = _ROLES.get(author.strip().casefold().replace("-", "_"), author) if isinstance(author, str) else None
    calls = _message_calls(message, role, name, location)
    # A message with calls may have no content.
    content = message.get("content", message.get("value", "" if calls else None))
    texts = [""] if role == "call" else _content_texts(content, ("text", "output_text", "input_text"), "value", "text")
    if role is None or texts is None:
        raise InputError(
            f"{location}: {name} has the keys {sorted(map(str, message))}{_unread_types(content)}; expected a role and text content"
        )
    speaks = role in {"assistant", "call"}
    if speaks and (unread := [key for key in message.keys() - {*FLAGS} if _UNREAD_FLAG.search(str(key))]):
        raise InputError(
            f"{location}: `{min(unread)}` of {name} is not read; replace it by a boolean `loss` (true: the turn is trained on)"
        )
    keys = (key for key in FLAGS if key in message and (speaks or key not in _ASSISTANT_FLAGS))
    flags = {_read_flag(message[key], key, number, location) for key in keys}
    if len(flags) > 1:
        raise InputError(f"{location}: {name} says both that it is trained on and that it is not. Keep one flag")
    flag = flags.pop() if flags else None
    if role == "assistant" and flag is not False:
        _refuse_untrained_parts(message.get("content"), number, location)
    answers = str(message.get("tool_call_id", "")) if role == "tool" else ""
    text, thinking = "".join(texts), ""
    if speaks:
        text, thinking = _split_thinking(message, content, text, f"{location}: {name}")
    if role == "call" and isinstance(content, str):
        thinking = "\n\n".join(filter(None, dict.fromkeys((thinking, thinking_in(content).thinking))))
    final_role = "assistant" if role == "call" else role
    return FlaggedMessage(final_role, text, flag, calls, answers, thinking, str(message.get("name", "")))


def _message_calls(message: Mapping[str, Any], role: str | None, name: str, location: str) -> tuple[ToolCall, ...]:
    if role == "call":
        call = message.get("content", message.get("value"))
        return _read_calls(thinking_in(call).text if isinstance(call, str) else call, f"{location}: the call in {name}")
    key = "tool_calls" if message.get("tool_calls") else "function_call"
    called = role == "assistant" and message.get(key)
    return _read_calls(message[key], f"{location}: `{key}` of {name}") if called else ()


def _split_thinking(message: Mapping[str, Any], content: object, text: str, location: str) -> tuple[str, str]:
    """Split a message into text and thoughts, without duplicates. Thoughts that are only in the text stay there."""
    candidates: list[str] = []
    for key in _THINKING_KEYS:
        if key in message:
            texts = _content_texts(message[key], None, "text", "value")
            if texts is None:
                raise InputError(
                    f"{location} has a `{key}` of {type(message[key]).__name__}; expected the text that was thought"
                )
            candidates.append("".join(texts).strip())
    candidates += [
        "".join(_content_texts(part, None, *_THINKING_KEYS, "text", "value", "summary") or ()).strip()
        for part in _parts(content)
        if part.get("type") in _THINKING_KEYS
    ]
    thoughts = [*dict.fromkeys(filter(None, candidates))]
    inline = thinking_in(text)
    if not thoughts or inline.form is None:
        return text, "\n\n".join(thoughts)
    if inline.thinking not in thoughts:
        thoughts.append(inline.thinking)
    return inline.text, "\n\n".join(filter(None, thoughts))


def _content_texts(value: Any, types: Collection[str] | None, *keys: str) -> list[str] | None:
    """The texts of a content: a string, or parts with text under one of `keys`; None for other content.

    `types` are the accepted types of text parts; thinking parts are then skipped.
    """
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        part = cast("Mapping[str, object]", value)
        if types is not None and part.get("type") not in types:
            return [] if part.get("type") in _THINKING_KEYS else None
        return next((_content_texts(part[key], None, *keys) for key in keys if part.get(key) is not None), None)
    if not isinstance(value, list | tuple):
        return None
    nested = [
        _content_texts(part, types, *keys) if types is None or isinstance(part, Mapping) else None
        for part in cast("Sequence[object]", value)
    ]
    return None if None in nested else [text for part in nested for text in part or ()]


def _parts(content: object) -> Iterator[Mapping[str, object]]:
    for part in cast("Sequence[object]", content) if isinstance(content, list | tuple) else ():
        if isinstance(part, Mapping):
            yield cast("Mapping[str, object]", part)


def _unread_types(content: object) -> str:
    kinds = sorted({str(part.get("type")) for part in _parts(content)} - {"text", *_THINKING_KEYS})
    return f" and content of the type {' and '.join(map(repr, kinds))}, which is not read" if kinds else ""


def _refuse_untrained_parts(content: object, number: int, location: str) -> None:
    """Refuse content parts marked as untrained (Axolotl), because loss flags apply to whole turns."""
    for part in _parts(content):
        if key := next((key for key in FLAGS if part.get(key, 1) == 0), None):
            raise InputError(
                f"{location}: a part of message {number} is not to be trained on (`{key}`), and here a turn is trained "
                "on whole. Train on the run's own folder, or on an export in another format"
            )


def _read_flag(value: object, key: str, number: int, location: str) -> bool:
    if isinstance(value, bool | int | float) and value in {0, 1}:
        return bool(value)
    raise InputError(f"{location}: `{key}` of message {number} is {value!r}; expected true or false (1 or 0)")
