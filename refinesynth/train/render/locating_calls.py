"""Where turns stand that call tools: by comparing prompts alone.

What a call looks like is the template's, and no mark can be put around it. So a turn is what the text has between the
prompt that a model would be given for it and the end of the text up to that turn, and both must be what the whole
begins with, character by character. It ends in a special token: in one that the template writes behind the turn and not
behind each call; or, where it writes none (as GLM's), in the one that heads the message that follows, since that is
what a model writes there to stop.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

from refinesynth.train.render.controls import Controls
from refinesynth.train.render.errors import RewritesHistoryError, TemplateError
from refinesynth.train.render.locating import Located, different_prompt, laid_out, refuse_different_openings
from refinesynth.train.render.message_parts import CharRange, find_parts, find_spoken, message_parts
from refinesynth.train.render.template import ChatMessage, ChatTemplate, Tools


class CallLocator(NamedTuple):
    """A template, what its tokenizer takes for control tokens, and the functions of a conversation."""

    template: ChatTemplate
    controls: Controls
    tools: Tools

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
                if not text.startswith(whole):
                    raise RewritesHistoryError(f"it writes message {at + 1} otherwise once others follow")
                turns[at] = CharRange(start, len(whole))
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
        parts = message_parts(messages[: last + 1])
        own = [part for part in parts if part.message == last]
        places = laid_out(own, text, start)
        if own and not places:
            raise TemplateError(
                "the chat template leaves out or changes part of an assistant turn even where it is the last one; "
                "give another template as chat_template"
            )
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
        if names and prompt == self.template.write(task, prompt=True):
            missing = names
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
        found = self.controls.closing(written, len(before), len(written))
        if found is not None and not self._closes_calls(messages[: at + 1], written[slice(*found)], written):
            return written[: found[1]]
        following = self._write(messages[: at + 2]) if at + 1 < len(messages) else ""
        header = self.controls.opening(following, len(written)) if following.startswith(written) else None
        prompt = self._write(messages[:at], prompt=True)[len(before) :]
        if header is None or following[slice(*header)] in prompt:
            raise TemplateError(
                f"the chat template writes {following[len(written) :][:40]!r} after message {at + 1}, an assistant's, and no "
                "end-of-turn token; a model tuned on it would not learn to stop. Give a template that writes one (often {{ eos_token }})"
                + (
                    ""
                    if following
                    else ", or data in which an answer follows the last call: a run folder, with form=tools"
                )
            )
        return following[: header[1]]

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
