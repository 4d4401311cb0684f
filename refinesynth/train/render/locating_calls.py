"""Where turns stand that call tools: by comparing prompts alone.

What a call looks like is the template's, and no mark can be put around it. So a turn is what the text has between the
prompt that a model would be given for it and the end of the text up to that turn, and both must be what the whole
begins with, character by character. It ends in a special token: in one that the template writes behind the turn and not
behind each call; or, where it writes none (as GLM's), in the one that heads the message that follows, since that is
what a model writes there to stop.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

from refinesynth.train.conversation import ToolCall
from refinesynth.train.render.encoding import Controls
from refinesynth.train.render.locating import (
    CHANGED,
    CharRange,
    Located,
    different_prompt,
    find_parts,
    find_spoken,
    heading,
    laid_out,
    message_parts,
    refuse_different_openings,
)
from refinesynth.train.render.template import ChatMessage, ChatTemplate, RewritesHistoryError, TemplateError, Tools


class CallLocator(NamedTuple):
    """A template, what its tokenizer takes for control tokens, and the functions of a conversation."""

    template: ChatTemplate
    controls: Controls
    tools: Tools
    tried: set[str]
    """Shapes of calls that are known to be written whole; added to."""

    def locate(self, messages: Sequence[ChatMessage]) -> Located:
        """All that the assistant writes. What follows its last turn is only looked at for how that ends.

        Raises:
            RewritesHistoryError: A message is not whole, or a prompt or a turn is not what the text begins with.
            TemplateError: The template writes no tools, a turn's end cannot be told, or a call or a tool holds a
                control token.
        """
        last = _last(messages)
        said = messages[: last + 1]
        written = self._written(messages, last)
        text = self._upto(messages, last, written)
        turns: dict[int, CharRange] = {}
        for at, message in enumerate(said):
            if message["role"] == "assistant":
                start = self._begin(messages, at, text)
                whole = text if at == last else self._upto(messages, at, self._write(messages[: at + 1]))
                whole = self._begun(messages[: at + 1], whole, text, start)
                turns[at] = CharRange(start, len(whole))
                self._refuse_unwritten(said, at, text[start : len(whole)])
        parts = message_parts(said)
        places = find_parts(self.template, written, said, tools=self.tools)
        first = {part.message: place.start for part, place in reversed([*zip(parts, places, strict=True)])}
        refuse_different_openings(
            {at: text[turn.start : first[at]] for at, turn in turns.items() if at in first}, headers=False
        )
        return Located(text, tuple(parts), tuple(places), turns)

    def locate_last(self, messages: Sequence[ChatMessage]) -> Located:
        """The last turn of the assistant alone; earlier ones may be rewritten, as when a model is asked for it.

        Raises:
            RewritesHistoryError, TemplateError: As `locate`.
        """
        last = _last(messages)
        text = self._upto(messages, last, self._written(messages, last))
        start = self._begin(messages, last, text)
        self._refuse_unwritten(messages[: last + 1], last, text[start:])
        parts = message_parts(messages[: last + 1])
        own = [part for part in parts if part.message == last]
        places = laid_out(own, text, start)
        if own and not places:
            raise RewritesHistoryError(CHANGED)
        before = find_spoken(self.template, text, messages[:last], tools=self.tools)
        return Located(text, tuple(parts), (*before, *places), {last: CharRange(start, len(text))})

    def _write(self, messages: Sequence[ChatMessage], *, prompt: bool = False) -> str:
        return self.template.write(messages, prompt=prompt, tools=self.tools)

    def _written(self, messages: Sequence[ChatMessage], last: int) -> str:
        """The text up to a turn, once what it is made of is known to be sound."""
        _refuse_forged(self.controls, messages[: last + 1], self.tools)
        task = messages[: next(at for at, message in enumerate(messages) if message["role"] == "assistant")]
        prompt = self._write(task, prompt=True)
        names = [str(tool["function"]["name"]) for tool in self.tools]
        missing = [name for name in names if name not in prompt]
        with suppress(TemplateError):  # Some cannot be written without tools.
            missing = names if prompt == self.template.write(task, prompt=True) else missing
        if missing:
            raise TemplateError(
                f"the chat template does not write the function {missing[0]!r} that may be called; give a template that writes tools "
                "as chat_template, or train on text (form=react)"
            )
        return self._write(messages[: last + 1])

    def _begin(self, messages: Sequence[ChatMessage], at: int, text: str) -> int:
        prompt = self._write(messages[:at], prompt=True)
        if not text.startswith(prompt) or len(prompt) == len(text):
            raise different_prompt(prompt, text, at)
        return len(prompt)

    def _upto(self, messages: Sequence[ChatMessage], at: int, written: str) -> str:
        """The text up to the end of turn `at`, its end-of-turn token included; `written` is that of the messages up to
        it.
        """
        before = self._write(messages[:at])
        if len(before) >= len(written):
            raise RewritesHistoryError(f"it leaves something out of earlier messages once message {at + 1} follows")
        found = self.controls.closing(written, len(before), len(written))
        if found is not None and not self._closes_calls(messages[: at + 1], written[slice(*found)], written):
            return written[: found[1]]
        following = _following(messages[at])
        ended = heading(self.template, self.controls, written, messages[: at + 1], following, tools=self.tools)
        if ended is None:
            raise TemplateError(
                f"the chat template writes no end-of-turn token after message {at + 1}, an assistant's; a model tuned on it would not "
                "learn to stop. Give a template that writes one (often {{ eos_token }})"
            )
        return ended

    def _begun(self, messages: Sequence[ChatMessage], whole: str, text: str, start: int) -> str:
        """The part of `whole` that `text` begins with, up to a turn's end: some templates write one more special token
        where nothing follows.

        Raises:
            RewritesHistoryError: There is no such part.
        """
        full, closing = whole, self.controls.closing(whole, start, len(whole))
        while closing is not None and not text.startswith(whole):
            closing = self.controls.closing(whole, start, closing[0])
            whole = whole[: closing[1]] if closing is not None else whole
            if closing is not None and self._closes_calls(messages, whole[slice(*closing)], full):
                closing = None
        if closing is None:
            raise RewritesHistoryError(f"it writes message {len(messages)} otherwise once others follow")
        return whole

    def _refuse_unwritten(self, messages: Sequence[ChatMessage], at: int, turn: str) -> None:
        """All that is called must make a difference to what the template writes of turn `at`.

        Each key and value of a call is changed in turn, so that it does not matter how a template writes them; what is left
        out where it is empty is found by its key. Of calls that are alike in this, only the first is tried.

        Raises:
            TemplateError: A call, its name or an argument is not written.
        """
        message = messages[at]
        calls: list[dict[str, Any]] = message.get("tool_calls") or []
        known = [
            ToolCall(call["id"], call["function"]["name"], _parsed(call["function"]["arguments"])) for call in calls
        ]
        names = [call.name for call in known]
        for name in names:
            if turn.count(name) + turn.count(json.dumps(name)[1:-1]) < names.count(name):
                raise _unwritten(f"a call of {name!r}", at)
        first = all(one["role"] != "assistant" for one in messages[:at])
        shapes = [(call.name, _shape(call.arguments)) for call in known]
        alike = repr((first, at == len(messages) - 1, bool(message["content"]), shapes))
        if alike in self.tried:
            return
        written = self._write(messages[: at + 1])
        for what, changed in _variants(known):
            if self._written_as(messages, at, changed) == written:
                raise _unwritten(what, at)
        self.tried.add(alike)

    def _written_as(self, messages: Sequence[ChatMessage], at: int, calls: Sequence[ToolCall]) -> str | None:
        """Messages up to `at` with other calls there; None where the template refuses these, and so reads them."""
        text = self.template.wants_text
        try:
            return self._write(
                [*messages[:at], {**messages[at], "tool_calls": [call.message(text=text) for call in calls]}]
            )
        except TemplateError:
            return None

    def _closes_calls(self, messages: Sequence[ChatMessage], token: str, written: str) -> bool:
        """Whether a token stands behind every call: with another call there is one more of it."""
        *before, message = messages
        calls: list[Any] = message.get("tool_calls") or []
        if not calls:
            return False
        try:
            more = self._write([*before, {**message, "tool_calls": [*calls, calls[-1]]}])
        except TemplateError:  # It takes one call a turn.
            return False
        return more.count(token) > written.count(token)


def _last(messages: Sequence[ChatMessage]) -> int:
    return max(at for at, message in enumerate(messages) if message["role"] == "assistant")


def _following(message: ChatMessage) -> ChatMessage:
    calls: list[Any] = message.get("tool_calls") or []
    if not calls:
        return {"role": "user", "content": "."}
    return {"role": "tool", "content": ".", "tool_call_id": calls[0]["id"]}


def _unwritten(what: str, at: int) -> TemplateError:
    return TemplateError(
        f"the chat template does not write {what} in message {at + 1}, so a model tuned on it would not learn to call. Give as "
        "--chat-template a file with a template that writes name and arguments of all tool_calls, or train a run folder on text "
        "(form=react)"
    )


def _variants(calls: Sequence[ToolCall]) -> Iterator[tuple[str, list[ToolCall]]]:
    """The calls with one thing changed, or a call left out, and what that is."""
    for at, call in enumerate(calls):
        before, after = calls[:at], calls[at + 1 :]
        if len(calls) > 1:
            yield f"the call of {call.name!r}, one of {len(calls)},", [*before, *after]
        yield f"the name {call.name!r} of a call", [*before, call._replace(name=f"{call.name}_x"), *after]
        for key, arguments in _changes(call.arguments, ""):
            yield (
                f"the argument {key!r} of a call of {call.name!r}",
                [*before, call._replace(arguments=arguments), *after],
            )


def _changes(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    """The value with one key or one part of it changed, and the key of that part."""
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
    """The same for values that a template treats alike: keys, kinds, and whether there is something."""
    if isinstance(value, dict):
        return repr({name: _shape(one) for name, one in cast("dict[str, Any]", value).items()})
    if isinstance(value, list):
        return repr(sorted({*map(_shape, cast("list[Any]", value))}))
    return f"{type(value).__name__} {bool(value)}"


def _parsed(arguments: Any) -> Any:
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def _refuse_forged(controls: Controls, messages: Sequence[ChatMessage], tools: Tools) -> None:
    """What reads like a control token cannot be kept text in a call or a tool: where it stands is not known.

    Raises:
        TemplateError: There is such a text.
    """
    called = [(f"a call of message {at + 1}", message.get("tool_calls")) for at, message in enumerate(messages)]
    for what, value in (("a function that may be called", list(tools)), *called):
        for text in _texts(value):
            found = controls.first(text, 0, len(text))
            if found is not None:
                raise TemplateError(
                    f"{what} holds text that reads like a control token ({text[slice(*found)]!r}); leave this conversation out"
                )


def _texts(value: object) -> Iterator[str]:
    """All texts in a value of JSON, names of keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in cast("dict[str, Any]", value).items():
            yield key
            yield from _texts(each)
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from _texts(each)
