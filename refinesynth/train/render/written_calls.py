"""Checks that a chat template writes functions and calls whole, and that they hold no control tokens."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from refinesynth.train.labelled_conversation import ToolCall
from refinesynth.train.render.encoding import Controls
from refinesynth.train.render.template import ChatMessage, ChatTemplate, TemplateError, Tools


def refuse_unwritten_tools(template: ChatTemplate, messages: Sequence[ChatMessage], tools: Tools) -> None:
    """Raises: TemplateError: A function does not stand in the first prompt."""
    task = messages[: next(at for at, message in enumerate(messages) if message["role"] == "assistant")]
    prompt = template.write(task, prompt=True, tools=tools)
    names = [str(tool["function"]["name"]) for tool in tools]
    missing = [name for name in names if name not in prompt]
    with suppress(TemplateError):  # Some cannot be written without tools.
        missing = names if prompt == template.write(task, prompt=True) else missing
    if missing:
        raise TemplateError(
            f"the chat template does not write the function {missing[0]!r} that may be called; give a template that writes tools "
            "as chat_template, or train on text (form=react)"
        )


def refuse_unwritten(template: ChatTemplate, messages: Sequence[ChatMessage], tools: Tools) -> None:
    """Raise `TemplateError` unless the template writes all that the last message calls.

    The template is given the calls with marks in the place of names and keys, and then of values; each mark must stand
    in what it writes. Truth values have no marks: the opposite of each must give another text.
    """
    *before, message = messages
    given: list[dict[str, Any]] = message.get("tool_calls") or []

    def write(*, keys: bool, flipped: int | None = None) -> tuple[str | None, dict[str, str], list[str]]:
        """Text that the template writes, None where it refuses; marks and truth values, each with its meaning."""
        marks, truths = dict[str, str](), list[str]()
        calls = [_marked_call(call, marks, truths, keys=keys, flipped=flipped) for call in given]
        marked = {**message, "tool_calls": [call.message(text=template.wants_text) for call in calls]}
        try:
            return template.write([*before, marked], tools=tools), marks, truths
        except TemplateError:  # Where it refuses these, it reads them.
            return None, marks, truths

    missing: list[str] = []
    for keys in (True, False):
        written, marks, truths = write(keys=keys)
        if written is not None:
            missing += [what for mark, what in marks.items() if mark not in written]
            if not keys:
                missing += [what for at, what in enumerate(truths) if write(keys=False, flipped=at)[0] == written]
    if missing:
        raise TemplateError(
            f"the chat template does not write {missing[0]} in message {len(messages)}, so a model tuned on it would not learn to "
            "call. Give as --chat-template a file with a template that writes name and arguments of all tool_calls, or train a run "
            "folder on text (form=react)"
        )


def _marked_call(
    call: Mapping[str, Any], marks: dict[str, str], truths: list[str], *, keys: bool, flipped: int | None
) -> ToolCall:
    """The call with marks in the place of its name and keys, or of its values, and one truth value `flipped`.

    `marks` gets what each mark stands for, `truths` what each truth value does.
    """
    function = call["function"]
    name: str = function["name"]

    def mark(what: str) -> str:
        marks[made := f"zq{len(marks)}qz"] = what
        return made

    def argument(key: str) -> str:
        return f"the argument {key!r} of a call of {name!r}"

    def marked(value: Any, key: str) -> Any:
        if isinstance(value, dict):
            known = cast("dict[str, Any]", value)
            return {mark(argument(k)) if keys else k: marked(one, k) for k, one in known.items()}
        if isinstance(value, list):
            return [marked(one, key) for one in cast("list[Any]", value)]
        if isinstance(value, bool):
            truths.append(argument(key))
            return value is (len(truths) - 1 != flipped)
        if keys or value is None:
            return value
        if isinstance(value, str):
            return mark(argument(key))
        number = 90_000_000 + len(marks)
        marks[str(number)] = argument(key)
        return number

    arguments = function["arguments"]
    arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    return ToolCall(call["id"], mark(f"a call of {name!r}") if keys else name, marked(arguments, ""))


def refuse_forged(controls: Controls, messages: Sequence[ChatMessage], tools: Tools) -> None:
    """Raises: TemplateError: A call or a tool holds text that reads like a control token, whose place is unknown."""
    called = [(f"a call of message {at + 1}", message.get("tool_calls")) for at, message in enumerate(messages)]
    for what, value in (("a function that may be called", list(tools)), *called):
        for text in _texts(value):
            found = controls.first(text, 0, len(text))
            if found is not None:
                raise TemplateError(
                    f"{what} holds text that reads like a control token ({text[slice(*found)]!r}); leave this conversation out"
                )


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in cast("dict[str, Any]", value).items():
            yield key
            yield from _texts(each)
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from _texts(each)
