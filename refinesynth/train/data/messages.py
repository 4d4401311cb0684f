"""Reader of messages in the form of chat completions, with thoughts, loss flags and tool calls.

    {"role": "assistant", "tool_calls": [{"id", "type": "function", "function": {"name", "arguments"}}]}

Arguments are an object or its JSON text. Functions may be wrapped in {"type": "function"}.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, cast

from refinesynth.chat import action_label, thinking_in
from refinesynth.errors import InputError
from refinesynth.text.json_reader import MAX_DEPTH, depth, load_json
from refinesynth.train.labelled_conversation import THOUGHTS, FlaggedMessage, ToolCall

_NULLABLE_KEYS = frozenset({"default", "const", "enum", "example", "examples"})
"""JSON schema keys for which null is a value."""


def read_tools(record: Mapping[str, Any], location: str) -> list[dict[str, Any]]:
    """Read a record's functions as a chat completion's `tools`. Raises `InputError` for invalid `tools`."""
    try:
        tools = [_normalize_tool(tool) for tool in _as_items(record.get("tools") or [])]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise InputError(
            f'{location}: `tools` is not a list of {{"type": "function", "function": {{"name", "description", "parameters"}}}}, with or '
            "without the outer object; expected what a chat completion's `tools` are"
        ) from error
    if any(_holds_null(tool, _NULLABLE_KEYS) for tool in tools):
        raise InputError(f"{location}: `tools` holds null, as a table fills absent keys; write `tools` as JSON text")
    return tools


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
    function: Any = item["function"]
    name, value = function["name"], function.get("arguments")
    arguments: Any = (load_json(value) if value.strip() else {}) if isinstance(value, str) else value
    if not isinstance(name, str) or not name or not isinstance(arguments, Mapping | None):
        raise ValueError(f"a call of {name!r} with arguments of {type(arguments).__name__}")
    values = cast("dict[str, Any]", arguments or {})
    if depth(values) > MAX_DEPTH:
        raise ValueError(f"the arguments of {name!r} are nested too deeply")
    if arguments is value and _holds_null(values):
        raise ValueError(f"the arguments of {name!r} hold null, as a table fills absent keys; write them as JSON text")
    return ToolCall(str(item.get("id") or ""), name, dict(values))


def _link_answers(messages: Sequence[FlaggedMessage]) -> Iterator[FlaggedMessage]:
    """Give every call an id and every answer its call's id: its own, else that of the next open call of its name, else
    of any.
    """
    numbers = count()
    pending: list[ToolCall] = []
    anonymous = True
    for message in messages:
        if message.calls:
            anonymous = all(not call.id for call in message.calls)
            pending = [call._replace(id=call.id or f"call{next(numbers):05d}") for call in message.calls]
            yield message._replace(calls=tuple(pending))
            continue
        if message.role == "tool":
            call = next((item for item in pending if item.id == message.call_id), None)
            if call is None and (anonymous or not message.call_id):
                call = next((item for item in pending if item.name == message.name), pending[0] if pending else None)
            pending = [item for item in pending if item is not call]
            message = message if call is None else message._replace(call_id=call.id)  # noqa: PLW2901
        yield message


def _holds_null(value: object, nullable: Collection[str] = ()) -> bool:
    """Return True if an object in `value` has null for a key that is not `nullable`."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value).items()
        return any(key not in nullable and (item is None or _holds_null(item, nullable)) for key, item in fields)
    return isinstance(value, list | tuple) and any(
        _holds_null(item, nullable) for item in cast("Sequence[object]", value)
    )


def _as_items(value: Any) -> list[Any]:
    """The items of a list, or a single object as a list; the list and each item may be JSON text."""
    parsed: Any = load_json(value) if isinstance(value, str) else value
    items: list[Any] = [parsed] if isinstance(parsed, Mapping) else list(parsed)
    return [load_json(item) if isinstance(item, str) else item for item in items]


FLAGS = ("loss", "loss_weight", "training", "weight", "trainable", "step_loss_mask")
"""Message keys that hold a loss flag."""
_UNREAD_FLAG = re.compile(r"(?:^|_)(?:train|mask|loss)")
"""Other keys of assistant messages that may hold a loss flag, such as `masked` and Axolotl's `train_detail`: refused."""

_ROLES = {"human": "user", "gpt": "assistant", "developer": "system"}
"""Roles by their names in ShareGPT's form and of OpenAI."""
_THINKING_KEYS = (*THOUGHTS, "thought", "thoughts")
"""Message keys that hold thoughts."""


def read_messages(value: object, key: str, location: str) -> list[FlaggedMessage]:
    """Read the messages of a record. Raises `InputError` for an invalid message."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InputError(
            f"{location}: `{key}` is {type(value).__name__}; expected a list of messages with role and content"
        )
    parsed = [_message(item, number, location) for number, item in enumerate(cast("Sequence[object]", value), start=1)]
    return [*_link_answers(parsed)]


def _message(item: object, number: int, location: str) -> FlaggedMessage:
    name = f"message {number}"
    if not isinstance(item, Mapping):
        raise InputError(f"{location}: {name} is {type(item).__name__}; expected an object with role and content")
    message = {key: value for key, value in cast("Mapping[str, Any]", item).items() if value is not None}
    author = message.get("role", message.get("from"))
    role = _ROLES.get(author, author) if isinstance(author, str) else None
    speaks = role == "assistant"
    called = speaks and message.get("tool_calls")
    calls = _read_calls(message["tool_calls"], f"{location}: `tool_calls` of {name}") if called else ()
    # A message with calls may have no content.
    content = message.get("content", message.get("value", "" if calls else None))
    text = _content_text(content)
    if role is None or text is None:
        raise InputError(
            f"{location}: {name} has the keys {sorted(map(str, message))}{_unread_types(content)}; expected a role and text content"
        )
    if speaks and (message.get("function_call") or _calls_in_text(text)):
        raise InputError(
            f"{location}: {name} calls a function in a form that is not read; write the call as `tool_calls`"
        )
    if speaks and (unread := [key for key in message.keys() - {*FLAGS} if _UNREAD_FLAG.search(str(key))]):
        raise InputError(
            f"{location}: `{min(unread)}` of {name} is not read; replace it by a boolean `loss` (true: the turn is trained on)"
        )
    flags = {_read_flag(message[key], key, number, location) for key in FLAGS if key in message}
    if len(flags) > 1:
        raise InputError(f"{location}: {name} says both that it is trained on and that it is not. Keep one flag")
    flag = flags.pop() if flags else None
    if speaks and flag is not False:
        _refuse_untrained_parts(message.get("content"), number, location)
    answers = str(message.get("tool_call_id", "")) if role == "tool" else ""
    text, thinking = _split_thinking(message, text, f"{location}: {name}") if speaks else (text, "")
    return FlaggedMessage(role, text, flag, calls, answers, thinking, str(message.get("name", "")))


def _calls_in_text(text: str) -> bool:
    """Return True for a call in a message's text, complete or not; thoughts and actions may mention calls."""
    return "<tool_call>" in text and "<tool_call>" in thinking_in(text).text and action_label(text) is None


def _split_thinking(message: Mapping[str, Any], text: str, location: str) -> tuple[str, str]:
    """Split a message into text and thoughts, without duplicates. Thoughts that are only in the text stay there."""
    thoughts: list[str] = []
    for key in (key for key in _THINKING_KEYS if key in message):
        if not isinstance(message[key], str):
            raise InputError(
                f"{location} has a `{key}` of {type(message[key]).__name__}; expected the text that was thought"
            )
        thoughts.append(message[key].strip())
    thoughts = [*dict.fromkeys(filter(None, thoughts))]
    inline = thinking_in(text)
    if not thoughts or inline.form is None:
        return text, "\n\n".join(thoughts)
    if inline.thinking not in thoughts:
        thoughts.append(inline.thinking)
    return inline.text, "\n\n".join(filter(None, thoughts))


def _content_text(content: object) -> str | None:
    """The text of a content: a string, or parts of the type `text`; None for other content."""
    if isinstance(content, str):
        return content
    parts = [*_parts(content)]
    texts = [next((part[key] for key in ("text", "value") if part.get(key) is not None), None) for part in parts]
    if not parts or len(parts) != len(cast("Sequence[object]", content)) or _unread_types(content):
        return None
    return "".join(map(str, texts)) if all(isinstance(text, str) for text in texts) else None


def _parts(content: object) -> Iterator[Mapping[str, object]]:
    for part in cast("Sequence[object]", content) if isinstance(content, list | tuple) else ():
        if isinstance(part, Mapping):
            yield cast("Mapping[str, object]", part)


def _unread_types(content: object) -> str:
    kinds = sorted({str(part.get("type")) for part in _parts(content)} - {"text"})
    return f" and content of the type {' and '.join(map(repr, kinds))}, which is not read" if kinds else ""


def _refuse_untrained_parts(content: object, number: int, location: str) -> None:
    """Refuse content parts marked as untrained (Axolotl), because loss flags apply to whole turns."""
    for part in _parts(content):
        keys = (key for key in part if key in FLAGS or _UNREAD_FLAG.search(key))
        if key := next((key for key in keys if part[key] == 0), None):
            raise InputError(
                f"{location}: a part of message {number} is not to be trained on (`{key}`), and here a turn is trained "
                "on whole. Train on the run's own folder, or on an export in another format"
            )


def _read_flag(value: object, key: str, number: int, location: str) -> bool:
    if isinstance(value, bool | int | float) and value in {0, 1}:
        return bool(value)
    raise InputError(f"{location}: `{key}` of message {number} is {value!r}; expected true or false (1 or 0)")
