"""Messages as records have them, in other words for the same roles, with thoughts, calls and flags of training."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from refinesynth.chat import thinking_in
from refinesynth.errors import InputError
from refinesynth.text.jsontext import load_json
from refinesynth.train.conversation import THOUGHTS, ToolCall
from refinesynth.train.data.calls import Read, calls_of, read_calls, with_answers
from refinesynth.train.data.turn_labels import FlaggedMessage

FLAGS = ("loss", "loss_weight", "training", "weight", "trainable", "step_loss_mask")
"""Keys of a message that say whether it is trained on."""

_ROLES = {
    **dict.fromkeys(("human", "user", "prompter"), "user"),
    **dict.fromkeys(("gpt", "assistant", "model", "chatgpt", "bot", "chatbot"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function", "observation", "ipython", "tool_response", "tool_result"), "tool"),
    **dict.fromkeys(("function_call", "tool_call"), "call"),
}
"""In other words; `call` is an assistant's whose content is what it calls."""
_THINKING = (*THOUGHTS, "thought", "thoughts")
"""Under these, and in parts of these types, messages have what a model thought."""


def read_messages(
    value: object, key: str, where: str, *, tools: Sequence[Mapping[str, Any]] = (), table: bool = False
) -> list[tuple[FlaggedMessage, bool | None]]:
    """The messages of a record, each with its flag, if it has one; `table`: the record is a row of a table.

    Raises:
        InputError: One is not sound.
    """
    if isinstance(value, str):
        with suppress(ValueError):
            value = load_json(value)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InputError(
            f"{where}: `{key}` is {type(value).__name__}; expected a list of messages with role and content"
        )
    read = [_message(item, number, where) for number, item in enumerate(cast("Sequence[object]", value), start=1)]
    return [*with_answers(read, tools, where, table=table)]


def _message(item: object, number: int, where: str) -> Read:
    at = f"message {number}"
    if not isinstance(item, Mapping):
        raise InputError(f"{where}: {at} is {type(item).__name__}; expected an object with role and content")
    message = {key: value for key, value in cast("Mapping[str, Any]", item).items() if value is not None}
    given = message.get("role", message.get("from"))
    role = _ROLES.get(given.strip().casefold().replace("-", "_"), given) if isinstance(given, str) else None
    calls = _calls(message, role, at, where)
    # Beside a call nothing need be said.
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
    read = FlaggedMessage("assistant" if role == "call" else role, text, False, calls, answers, thinking)
    return Read(read, flag, str(message.get("name", "")))


def _calls(message: Mapping[str, Any], role: str | None, at: str, where: str) -> tuple[ToolCall, ...]:
    if role != "call":
        return calls_of(message, where, at) if role == "assistant" else ()
    value = message.get("content", message.get("value"))
    return read_calls(thinking_in(value).text if isinstance(value, str) else value, f"{where}: the call in {at}")


def _thinking(message: Mapping[str, Any], content: object, text: str, at: str) -> tuple[str, str]:
    """The text of a message and what was thought, each thought once; thoughts that stand in the text alone stay there.

    Raises:
        InputError: A thought is there and is no text.
    """
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
    """The text of a content: it is text, or a list of parts that have theirs under one of `keys`.

    Parts of thinking are left out where `types` says which parts have text. None: there is something else among them.
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
    """Which parts of a content are no text."""
    kinds = sorted({str(part.get("type")) for part in _parts(content)} - {"text", *_THINKING})
    return f" and content of the type {' and '.join(map(repr, kinds))}, which is not read" if kinds else ""


def _refuse_halves(content: object, number: int, where: str) -> None:
    """Here a turn is trained on whole or not at all; Axolotl's parts of a content may say otherwise."""
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
