"""Places of messages and assistant turns in a template's text, in characters.

Three renderings are compared: the conversation, the conversation with marks around every message (for the places of
messages and their completeness), and for each assistant turn its prompt. A turn begins where its prompt ends and ends
with the first control token behind the message. The text before it must be its prompt, or it is not trained.

Calls are written by the template, so no mark can be put around them. Where functions may be called, a fourth rendering
finds the end of a turn: the text up to it, which the whole must begin with. It ends in a special token that the
template writes behind the turn and not behind each call; or, without one (GLM), in the one that heads the next message,
since that is what a model writes there to stop.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise, takewhile
from os.path import commonprefix
from typing import Any, NamedTuple

from refinesynth.chat import thinking_in
from refinesynth.train.labelled_conversation import THOUGHTS
from refinesynth.train.render.encoding import CharRange, Controls, refuse_forged
from refinesynth.train.render.template import (
    ChatMessage,
    ChatTemplate,
    RewritesHistoryError,
    TemplateError,
    Tools,
    refuse_unwritten_calls,
    refuse_unwritten_tools,
)

_SHOWN = 40


class MessagePart(NamedTuple):
    """Text of a message for the template."""

    message: int
    role: str
    key: str
    """Its key in the message: `content`, or one of `THOUGHTS`."""
    text: str

    @property
    def core(self) -> str:
        """The text without surrounding blanks."""
        return self.text.strip()


class Located(NamedTuple):
    """Conversation as text, with its parts."""

    text: str
    parts: tuple[MessagePart, ...]
    places: tuple[CharRange | None, ...]
    """Place of every part without surrounding blanks; None if unknown, and then nothing of it is trained."""
    turns: dict[int, CharRange]
    """Text of each assistant turn with its end-of-turn token, by message index."""


class Locator(NamedTuple):
    """Finder of messages and turns, for one template, its control tokens, and the functions of a conversation."""

    template: ChatTemplate
    controls: Controls
    tools: Tools
    calls: bool
    """True if functions may be called."""

    def locate(self, messages: Sequence[ChatMessage]) -> Located:
        """Locate all messages and assistant turns of a conversation that ends with an assistant's.

        Raises:
            RewritesHistoryError: A message is not whole or not in its place, or a prompt or turn is not what the text
                begins with.
            TemplateError: An assistant's turn has no end-of-turn token, a call or a function is not written whole, or
                one of them holds a control token.
        """
        written, last = self._written(messages), len(messages) - 1
        parts = message_parts(messages)
        places = self._find_parts(written, messages)
        ranges: dict[int, CharRange] = {}
        for part, place in zip(parts, places, strict=True):
            ranges[part.message] = CharRange(ranges.get(part.message, place).start, place.stop)
        text, stop = self._ended(messages, written, ranges.get(last))
        turns: dict[int, CharRange] = {}
        for at in (at for at, message in enumerate(messages) if message["role"] == "assistant"):
            start = self._begin(messages, at, text, ranges.get(at))
            if at == last:
                turns[at] = CharRange(start, stop)
            elif self.calls:
                turns[at] = CharRange(start, self._end_of_begun(messages[: at + 1], text, start))
            else:
                turns[at] = CharRange(start, self._end_of_turn(text, ranges[at].stop, ranges[at + 1].start, at))
        self._refuse_headers(text, messages, ranges, turns)
        self._refuse_different_openings(text, messages, ranges, turns)
        return _undoubled(Located(text, tuple(parts), tuple(places), turns))

    def locate_last(self, messages: Sequence[ChatMessage]) -> Located:
        """Locate the last message alone, an assistant's; earlier ones may be rewritten, as in its prompt.

        Raises `RewritesHistoryError` if the text before it is not its prompt; `TemplateError` as `locate`.
        """
        written = self._written(messages)
        last, before = len(messages) - 1, messages[:-1]
        parts = message_parts(messages)
        own = [part for part in parts if part.message == last]
        prompt = self._write(before, prompt=True)
        places = laid_out(own, written, len(prompt)) if written.startswith(prompt) else []
        if (
            not places
        ):  # The prompt may open the message itself, as with <think>; or is another, which `_begin` refuses.
            bare = self._write(before)
            places = laid_out(own, written, len(bare)) if written.startswith(bare) else []
        if own and not places and written.startswith(prompt):
            raise RewritesHistoryError(
                "it leaves out or changes part of an assistant turn even where it is the last one"
            )
        message = CharRange(places[0].start, places[-1].stop) if places else None
        start = self._begin(messages, last, written, message)
        text, stop = self._ended(messages, written, message)
        turns = {last: CharRange(start, stop)}
        return _undoubled(Located(text, tuple(parts), (*self._find_spoken(text, before), *places), turns))

    def _write(self, messages: Sequence[ChatMessage], *, prompt: bool = False) -> str:
        return self.template.write(messages, prompt=prompt, tools=self.tools)

    def _written(self, messages: Sequence[ChatMessage]) -> str:
        if self.calls:
            refuse_forged(self.controls, messages, self.tools)
            refuse_unwritten_tools(self.template, messages, self.tools)
            refuse_unwritten_calls(self.template, messages, self.tools)
        return self._write(messages)

    # Messages.

    def _marked(
        self, text: str, messages: Sequence[ChatMessage], numbers: Sequence[int], *, prompt: bool = False
    ) -> tuple[str, list[str], str]:
        """The text with marks around the parts of these numbers, the mark before each, and the mark behind."""
        opening, middle, closing = _unused_characters(text, messages)
        heads = {number: f"{opening}{number}{middle}" for number in numbers}
        return self._write(_with_marks(messages, heads, closing), prompt=prompt), [*heads.values()], closing

    def _find_parts(self, text: str, messages: Sequence[ChatMessage]) -> list[CharRange]:
        """Places of the parts in `text`. Raises `RewritesHistoryError` if one is not whole or not in order."""
        parts = message_parts(messages)
        marked, heads, closing = self._marked(text, messages, range(len(parts)))
        starts = [marked.find(head) for head in heads]
        for part, head, start in zip(parts, heads, starts, strict=True):
            core = part.core + closing
            if start < 0 or marked.count(head) > 1 or not marked.startswith(core, start + len(head)):
                what = "" if part.key == "content" else f", the {part.key}"
                raise RewritesHistoryError(
                    f"it leaves out, repeats or changes part of message {part.message + 1} ({part.role}{what})"
                )
        if starts != sorted(starts):
            raise RewritesHistoryError("it changes the order of the messages")
        without = marked
        for mark in (*heads, closing):
            without = without.replace(mark, "")
        if without != text:
            raise RewritesHistoryError("what it writes depends on what the messages hold")
        return list(_unmarked(parts, heads, starts, closing))

    def _find_spoken(self, text: str, messages: Sequence[ChatMessage]) -> list[CharRange | None]:
        """Places of users' and systems' messages in the prompt that `text` begins with; None for unknown ones."""
        parts = message_parts(messages)
        spoken = [number for number, part in enumerate(parts) if part.role != "assistant"]
        marked, heads, closing = self._marked(text, messages, spoken, prompt=True)
        written = [parts[number] for number in spoken]
        places = list(_unmarked(written, heads, [marked.find(head) for head in heads], closing))
        if any(not text.startswith(part.core, max(0, at.start)) for part, at in zip(written, places, strict=True)):
            return [None] * len(parts)
        found = dict(zip(spoken, places, strict=True))
        return [found.get(number) for number in range(len(parts))]

    def find_calls(self, messages: Sequence[ChatMessage], at: int, located: Located) -> tuple[CharRange, ...] | None:
        """Places of the calls of message `at`, each from where a model decides to make it to where it decides on what
        follows; None if they are not certain.

        The message is written with its first call, with two, and so on, and with one more than it has: a call begins where
        the text without it parts from the text with it. That must be behind the message's text and in its turn, and another
        name of a call must make a difference in its place.
        """
        message, turn = messages[at], located.turns[at]
        calls: list[Any] = message["tool_calls"]
        ways = [[*calls, calls[-1]][:number] for number in range(len(calls) + 2)]
        for number, call in enumerate(calls):
            function = {**call["function"], "name": f"{call['function']['name']}_"}
            ways.append([*calls[:number], {**call, "function": function}, *calls[number + 1 :]])
        own = (place for part, place in zip(located.parts, located.places, strict=True) if part.message == at)
        least = max((place.stop for place in own if place), default=turn.start)
        bare = {key: value for key, value in message.items() if key != "tool_calls"}
        for behind in ((), messages[at + 1 :]):
            with suppress(TemplateError):
                variants = [{**bare, "tool_calls": way} if way else bare for way in ways]
                written = [self._write([*messages[:at], one, *behind]) for one in variants]
                fewer, complete, renamed = written[: len(calls) + 2], written[len(calls)], written[len(calls) + 2 :]
                edges = [self.controls.before(one, _same(one, more)) for one, more in pairwise(fewer)]
                places = [CharRange(*pair) for pair in pairwise(edges)]
                inside = all(
                    each.start <= _same(complete, one) < each.stop for each, one in zip(places, renamed, strict=True)
                )
                if (
                    inside
                    and located.text.startswith(complete[: edges[-1]])
                    and least <= edges[0]
                    and edges[-1] < turn.stop
                ):
                    return tuple(places)
        return None

    # Turns.

    def _begin(self, messages: Sequence[ChatMessage], at: int, text: str, message: CharRange | None) -> int:
        """The character at which turn `at` begins, where its prompt ends; `message` is the place of its text.

        A template without generation prompts leaves the header to the caller: there the turn begins with the message.
        Raises `RewritesHistoryError` if `text` does not begin with the prompt, or the whole message is in it.
        """
        prompt = self._write(messages[:at], prompt=True)
        if not text.startswith(prompt) or len(prompt) >= (message.stop if message else len(text)):
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(prompt, text, strict=False)))
            since = max(0, same - _SHOWN // 2)
            raise RewritesHistoryError(
                f"a model that is asked for message {at + 1} is given ...{prompt[since : since + _SHOWN]!r}, and the text of the "
                f"conversation has ...{text[since : since + _SHOWN]!r} there"
            )
        headed = message is not None and not self.calls and text[len(prompt) : message.start].strip()
        return message.start if message and headed and prompt == self._write(messages[:at]) else len(prompt)

    def _end_of_turn(self, text: str, start: int, stop: int, turn: int) -> int:
        """The end of the first control token in `text[start:stop]`. Raises `TemplateError` if text stands before it."""
        found = self.controls.end(text, start, stop)
        if found is None or text[start : found[0]].strip():
            raise TemplateError(
                f"the chat template writes {text[start:stop]!r} after message {turn + 1}, an assistant's, and no end-of-turn token "
                "at once; a model tuned on it would not learn to stop. Give a template that writes one (often {{ eos_token }})"
            )
        return found[1]

    def _ended(self, messages: Sequence[ChatMessage], written: str, message: CharRange | None) -> tuple[str, int]:
        """`written` up to the end of its last turn, and that end: for GLM the header of the next message."""
        if self.calls or message is None:
            text = self._upto(messages, written)
            return text, len(text)
        try:
            return written, self._end_of_turn(written, message.stop, len(written), len(messages) - 1)
        except TemplateError:
            text = self._headed(messages, written)
            if text is None or written[message.stop :].strip():
                raise
            return text, len(text)

    def _upto(self, messages: Sequence[ChatMessage], written: str) -> str:
        """`written` up to the end of the last turn, which may call. Raises `TemplateError` if it has no end."""
        before = self._write(messages[:-1])
        if len(before) >= len(written):
            raise RewritesHistoryError(
                f"it leaves something out of earlier messages once message {len(messages)} follows"
            )
        found = self.controls.closing(written, len(before), len(written))
        if found is not None and not self._closes_calls(messages, written[slice(*found)], written):
            return written[: found[1]]
        text = self._headed(messages, written)
        if text is None:
            raise TemplateError(
                f"the chat template writes no end-of-turn token after message {len(messages)}, an assistant's; a model tuned on it "
                "would not learn to stop. Give a template that writes one (often {{ eos_token }})"
            )
        return text

    def _end_of_begun(self, messages: Sequence[ChatMessage], text: str, start: int) -> int:
        """The end of the last of these messages in the longer `text`; some templates add a token where nothing follows.

        Raises `RewritesHistoryError` if `text` does not begin with these messages.
        """
        rest = full = self._upto(messages, self._write(messages))
        closing = self.controls.closing(rest, start, len(rest))
        while closing is not None and not text.startswith(rest):
            closing = self.controls.closing(rest, start, closing[0])
            rest = rest[: closing[1]] if closing is not None else rest
            if closing is not None and self._closes_calls(messages, rest[slice(*closing)], full):
                closing = None
        if closing is None:
            raise RewritesHistoryError(f"it writes message {len(messages)} otherwise once others follow")
        return len(rest)

    def _closes_calls(self, messages: Sequence[ChatMessage], token: str, written: str) -> bool:
        """Return True if a token stands behind every call: one more call brings one more of it."""
        *before, message = messages
        calls: list[Any] = message.get("tool_calls") or []
        if not calls:
            return False
        try:
            more = self._write([*before, {**message, "tool_calls": [*calls, calls[-1]]}])
        except TemplateError:  # It takes one call a turn.
            return False
        return more.count(token) > written.count(token)

    def _headed(self, messages: Sequence[ChatMessage], text: str) -> str | None:
        """`text` and the control token that heads the next message; None if there is none, or if it heads all."""
        calls: list[Any] = messages[-1].get("tool_calls") or []
        answer = {"role": "tool", "content": ".", "tool_call_id": calls[0]["id"]} if calls else None
        continued = self._write([*messages, answer or {"role": "user", "content": "."}])
        # Thoughts may be left out of the turn as soon as another follows, so only its end need be there.
        text = text.rstrip()
        content = str(messages[-1]["content"]).rstrip()
        end = (content if text.endswith(content) else text.rpartition("\n")[2])[-_SHOWN:] or text[-_SHOWN:]
        behind = len(text) if continued.startswith(text) else continued.rfind(end) + len(end)
        header = self.controls.opening(continued, behind) if behind >= len(end) else None
        prompt = self._header(messages[:-1])
        if header is None or continued[slice(*header)] in prompt or self.controls.first(prompt, 0, len(prompt)) is None:
            return None
        return text + continued[behind : header[1]]

    def _header(self, messages: Sequence[ChatMessage]) -> str:
        return self._write(messages, prompt=True)[len(self._write(messages)) :]

    # Refusals.

    def _refuse_different_openings(
        self,
        text: str,
        messages: Sequence[ChatMessage],
        ranges: Mapping[int, CharRange],
        turns: Mapping[int, CharRange],
    ) -> None:
        """Raises: RewritesHistoryError: Only some turns have text before their message, such as an empty thought."""
        spoken = [at for at in turns if at in ranges]
        headers = not self.calls and not self._header(messages[: min(turns)])
        begins = {at: ranges[at - 1].stop if headers and at else turns[at].start for at in spoken}
        openings = {at: text[begins[at] : ranges[at].start].strip() for at in spoken}
        for at, opening in openings.items():
            if opening != openings[spoken[0]]:
                raise RewritesHistoryError(
                    f"{'the header of' if headers else 'what a model writes in'} a turn begins with {opening!r} in message {at + 1}, and with "
                    f"{openings[spoken[0]]!r} in message {spoken[0] + 1}"
                )

    def _refuse_headers(
        self,
        text: str,
        messages: Sequence[ChatMessage],
        ranges: Mapping[int, CharRange],
        turns: Mapping[int, CharRange],
    ) -> None:
        """Raise `TemplateError` if a turn ends in the header of the next message, where the last turn ends otherwise.

        A template may write an end-of-turn token behind the last turn alone; a model tuned on it would write the user's
        header. A token that ends users' turns too is no header, unless it also begins an assistant's prompt.
        """
        if self.calls:  # There the text up to each turn is compared.
            return

        def ending(at: int) -> str:
            stop = turns[at].stop if at in turns else ranges[at + 1].start
            found = self.controls.end(text, ranges[at].stop, stop)
            return text[slice(*found)] if found else ""

        last = ending(max(turns))
        others = {at: found for at in turns if (found := ending(at)) not in {last, self.controls.eos}}
        if not others:
            return
        spoken = {ending(at) for at in range(max(turns)) if at not in turns}
        prompt = self._header(messages[: min(turns)])
        for at, found in others.items():
            if found not in spoken or found in prompt:
                raise TemplateError(
                    f"the chat template writes {found!r} after message {at + 1}, an assistant's, and {last!r} after the last one: the "
                    "former is the header of the next turn, and no end-of-turn token. Give a template that writes one after every turn"
                )


def message_parts(messages: Sequence[ChatMessage]) -> list[MessagePart]:
    """All parts in the order of the text: thoughts before content, calls left out."""
    return [
        MessagePart(at, message["role"], key, message[key])
        for at, message in enumerate(messages)
        for key in (*THOUGHTS, "content")
        if message.get(key)
    ]


def _unmarked(
    parts: Sequence[MessagePart], heads: Sequence[str], starts: Sequence[int], closing: str
) -> Iterator[CharRange]:
    """Places in the text without marks: earlier marks move later places."""
    shift = 0
    for part, head, start in zip(parts, heads, starts, strict=True):
        yield CharRange(start - shift, start - shift + len(part.core))
        shift += len(head) + len(closing)


def _with_marks(messages: Sequence[ChatMessage], heads: Mapping[int, str], closing: str) -> list[ChatMessage]:
    """Put marks inside the blanks around each part, so that a template may strip those."""
    marked = [dict(message) for message in messages]
    for number, part in enumerate(message_parts(messages)):
        if number in heads:
            left = part.text[: len(part.text) - len(part.text.lstrip())]
            right = part.text[len(left) + len(part.core) :]
            marked[part.message][part.key] = f"{left}{heads[number]}{part.core}{closing}{right}"
    return [*marked]


def _unused_characters(text: str, messages: Sequence[ChatMessage]) -> tuple[str, str, str]:
    used = set(text).union(*(part.text for part in message_parts(messages)))
    first, second, third, *_ = [*sorted({chr(code) for code in range(0xE000, 0xF900)} - used), "", "", ""]
    if not third:
        raise TemplateError("the messages hold every private-use character of Unicode; leave this conversation out")
    return first, second, third


def _same(text: str, other: str) -> int:
    """Number of characters at the beginning of both."""
    return len(commonprefix((text, other)))  # noqa: RUF071 - characters are meant


def _undoubled(located: Located) -> Located:
    """Refuse thoughts in a message that are written behind others, or behind an empty block of them."""
    for part, place in zip(located.parts, located.places, strict=True):
        if part.role != "assistant" or place is None or part.key != "content" or thinking_in(part.text).form is None:
            continue
        before = located.text[: place.start].rstrip()
        mark = before[max(map(before.rfind, ("<", "[", "\u25c1"))) :]
        if thinking_in(mark).form is not None:
            raise RewritesHistoryError(
                f"it writes {mark!r} before the thoughts that message {part.message + 1} holds itself"
            )
    return located


def laid_out(parts: Sequence[MessagePart], text: str, start: int) -> list[CharRange]:
    """Places of the parts in `text` from `start` on, in order, ignoring blanks; empty if one is missing."""
    places = [at for at in range(start, len(text)) if not text[at].isspace()]
    squeezed = "".join(text[place] for place in places)
    found: list[CharRange] = []
    after = 0
    for part in parts:
        core = "".join(part.text.split())
        at = squeezed.find(core, after)
        if at < 0:
            return []
        after = at + len(core)
        found.append(CharRange(places[at], places[after - 1] + 1))
    return found
