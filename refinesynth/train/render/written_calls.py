"""Checks that a chat template writes functions and calls whole, and that they hold no control tokens."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, cast

from refinesynth.train.conversation import ToolCall
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


def refuse_unwritten(
    template: ChatTemplate, messages: Sequence[ChatMessage], turn: str, tools: Tools, tried: set[str]
) -> None:
    """Raise `TemplateError` unless all that the last message calls changes what the template writes of it (`turn`).

    Each key and value of a call is changed in turn, however the template writes them. Calls of a shape in `tried`,
    which is added to, are not tried again.
    """
    *before, message = messages
    given: list[dict[str, Any]] = message.get("tool_calls") or []
    calls = [ToolCall(call["id"], call["function"]["name"], _parsed(call["function"]["arguments"])) for call in given]
    names = [call.name for call in calls]
    for name in names:
        if turn.count(name) + turn.count(json.dumps(name)[1:-1]) < names.count(name):
            raise _unwritten(f"a call of {name!r}", messages)
    first = all(one["role"] != "assistant" for one in before)
    alike = repr((first, bool(message["content"]), [(call.name, _shape(call.arguments)) for call in calls]))
    if alike in tried:
        return
    written = template.write(messages, tools=tools)
    for what, changed in _variants(calls):
        other = {**message, "tool_calls": [call.message(text=template.wants_text) for call in changed]}
        same = False
        with suppress(TemplateError):  # Where it refuses these, it reads them.
            same = template.write([*before, other], tools=tools) == written
        if same:
            raise _unwritten(what, messages)
    tried.add(alike)


def _unwritten(what: str, messages: Sequence[ChatMessage]) -> TemplateError:
    return TemplateError(
        f"the chat template does not write {what} in message {len(messages)}, so a model tuned on it would not learn to call. Give as "
        "--chat-template a file with a template that writes name and arguments of all tool_calls, or train a run folder on text "
        "(form=react)"
    )


def _variants(calls: Sequence[ToolCall]) -> Iterator[tuple[str, list[ToolCall]]]:
    """Yield the calls with one thing changed or a call left out, and the name of that."""
    for at, call in enumerate(calls):
        before, after = calls[:at], calls[at + 1 :]
        if after or before:
            yield f"the call of {call.name!r}, one of {len(calls)},", [*before, *after]
        yield f"the name {call.name!r} of a call", [*before, call._replace(name=f"{call.name}_x"), *after]
        for key, arguments in _changes(call.arguments, ""):
            what = f"the argument {key!r} of a call of {call.name!r}"
            yield what, [*before, call._replace(arguments=arguments), *after]


def _changes(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Yield the value with one key or part changed, and the key of that part."""
    if isinstance(value, dict):
        known = cast("dict[str, Any]", value)
        for name, one in known.items():
            yield name, {f"{other}_x" if other == name else other: part for other, part in known.items()}
            yield from ((inner, {**known, name: part}) for inner, part in _changes(one, name))
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        for at in {_shape(one): at for at, one in enumerate(items)}.values():
            yield from ((key, [*items[:at], part, *items[at + 1 :]]) for _, part in _changes(items[at], key))
    elif isinstance(value, str):
        yield key, f"{value}x"
    elif value is not None:
        yield key, not value if isinstance(value, bool) else 7 if value != 7 else 8  # noqa: PLR2004 - another number


def _shape(value: Any) -> str:
    """A text that is equal for values that a template treats alike: keys, kinds, and emptiness."""
    if isinstance(value, dict):
        return repr({name: _shape(one) for name, one in cast("dict[str, Any]", value).items()})
    if isinstance(value, list):
        return repr(sorted({*map(_shape, cast("list[Any]", value))}))
    return f"{type(value).__name__} {bool(value)}"


def _parsed(arguments: Any) -> Any:
    return json.loads(arguments) if isinstance(arguments, str) else arguments


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
