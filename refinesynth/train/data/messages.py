"""Messages as records have them, with the calls of tools and the flags that say which are trained on."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson

from refinesynth.errors import InputError
from refinesynth.train.conversation import ToolCall
from refinesynth.train.data.turn_labels import FlaggedMessage

FLAGS = ("loss", "loss_weight", "training", "weight", "trainable", "step_loss_mask")
"""Keys of a message that say whether it is trained on."""

_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "model": "assistant"}


def read_messages(value: object, key: str, where: str) -> list[tuple[FlaggedMessage, bool | None]]:
    """The messages of a record, each with its flag, if it has one.

    Raises:
        InputError: One is not sound.
    """
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InputError(
            f"{where}: `{key}` is {type(value).__name__}; expected a list of messages with role and content"
        )
    return [_message(item, number, where) for number, item in enumerate(cast("Sequence[object]", value), start=1)]


def _message(item: object, number: int, where: str) -> tuple[FlaggedMessage, bool | None]:
    if not isinstance(item, Mapping):
        raise InputError(
            f"{where}: message {number} is {type(item).__name__}; expected an object with role and content"
        )
    message = {key: value for key, value in cast("Mapping[str, Any]", item).items() if value is not None}
    role = message.get("role", message.get("from"))
    calls = _calls(message.get("tool_calls") or (), number, where)
    # Beside a call nothing need be said.
    content = _text(message.get("content", message.get("value", "" if calls else None)))
    if not isinstance(role, str) or content is None:
        raise InputError(
            f"{where}: message {number} has the keys {sorted(map(str, message))}; expected a role and text content"
        )
    flags = {_flag(message[key], key, number, where) for key in FLAGS if key in message}
    if len(flags) > 1:
        raise InputError(f"{where}: message {number} says both that it is trained on and that it is not. Keep one flag")
    flag = flags.pop() if flags else None
    if role == "assistant" and flag is not False:
        _refuse_halves(message.get("content"), number, where)
    answers = str(message.get("tool_call_id", "")) if role == "tool" else ""
    return FlaggedMessage(_ROLES.get(role, role), content, loss=False, calls=calls, answers=answers), flag


def _calls(value: object, number: int, where: str) -> tuple[ToolCall, ...]:
    """What a message calls; arguments are an object, or the JSON text of one."""
    try:
        return tuple(_call(item) for item in cast("Sequence[Any]", value))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise InputError(
            f"{where}: `tool_calls` of message {number} cannot be read: {error}; expected a list of "
            '{"id", "type": "function", "function": {"name", "arguments"}}, the arguments an object or its JSON text'
        ) from error


def _call(item: Mapping[str, Any]) -> ToolCall:
    function: Mapping[str, Any] = item.get("function", item)
    name, given = function["name"], function.get("arguments")
    arguments: Any = orjson.loads(given) if isinstance(given, str) and given.strip() else given or {}
    if not isinstance(name, str) or not name or not isinstance(arguments, Mapping):
        raise ValueError(f"a call of {name!r} with arguments of {type(arguments).__name__}")
    # Tables have a column for every key: where a call has none, its value is null.
    known = {key: value for key, value in cast("Mapping[str, Any]", arguments).items() if value is not None}
    return ToolCall(str(item.get("id") or ""), name, known)


def read_tools(given: Mapping[str, Any], where: str) -> Sequence[Mapping[str, Any]]:
    """The functions that a record says may be called, as a list or its JSON text.

    Raises:
        InputError: They are neither.
    """
    tools: Any = given.get("tools") or []
    try:
        tools = orjson.loads(tools) if isinstance(tools, str) else tools
        if all(isinstance(tool["function"]["name"], str) for tool in tools):
            return [dict(tool) for tool in tools]
    except (ValueError, TypeError, LookupError):
        pass
    raise InputError(
        f'{where}: `tools` is not a list of {{"type": "function", "function": {{"name", "description", "parameters"}}}}; expected '
        "what a chat completion's `tools` are"
    )


def _text(value: object) -> str | None:
    """A content: text, or a list of text parts."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        return None
    parts = [
        cast("Mapping[str, object]", part).get("value", cast("Mapping[str, object]", part).get("text"))
        for part in cast("Sequence[object]", value)
        if isinstance(part, Mapping) and cast("Mapping[str, object]", part).get("type") == "text"
    ]
    texts = [part for part in parts if isinstance(part, str)]
    return "".join(texts) if len(texts) == len(cast("Sequence[object]", value)) else None


def _refuse_halves(content: object, number: int, where: str) -> None:
    """Here a turn is trained on whole or not at all; Axolotl's parts of a content may say otherwise."""
    for part in cast("Sequence[object]", content) if isinstance(content, list | tuple) else ():
        said: Mapping[str, object] = cast("Mapping[str, object]", part) if isinstance(part, Mapping) else {}
        if said.get("train", said.get("weight", 1)) == 0:
            raise InputError(
                f"{where}: a part of message {number} is not to be trained on (`train` or `weight`), and here a turn is trained "
                "on whole. Train on the run's own folder, or on an export in another format"
            )


def _flag(value: object, key: str, number: int, where: str) -> bool:
    if isinstance(value, bool | int | float) and value in {0, 1}:
        return bool(value)
    raise InputError(f"{where}: `{key}` of message {number} is {value!r}; expected true or false (1 or 0)")
