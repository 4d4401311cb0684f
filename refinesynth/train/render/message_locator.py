"""Character ranges of messages and assistant turns in a rendered conversation.

Three renderings are compared: the conversation, the conversation with marks around every message, and the prompt of
each assistant turn. The marks give the range of each message and show that it is complete. A turn begins where its
prompt ends and ends with the first control token after the message. The text before a turn must equal its prompt.

The template writes calls, so they cannot be marked. For conversations with functions, a fourth rendering of the
messages up to a turn finds the end of that turn. The turn ends with a special token that the template writes after the
turn and not after each call. Without such a token (GLM), the turn ends with the header token of the next message: a
model writes that token to stop.
"""

import re
from collections.abc import Sequence
from os.path import commonprefix
from typing import Any, NamedTuple

from refinesynth.chat import thinking_in
from refinesynth.text.json_reader import write_json
from refinesynth.train.labelled_conversation import THOUGHTS
from refinesynth.train.render.encoding import CharRange, ControlTokens
from refinesynth.train.render.template import ChatMessage, ChatTemplate, RewritesHistoryError, TemplateError, Tools

_WINDOW = 40


class MessagePart(NamedTuple):
    """Text of a message for the template."""

    message: int
    role: str
    key: str
    """Key of the text in the message: `content`, or one of `THOUGHTS`."""
    text: str

    @property
    def core(self) -> str:
        """The text without surrounding whitespace."""
        return self.text.strip()


class Located(NamedTuple):
    """Conversation as text, with its parts."""

    text: str
    parts: Sequence[MessagePart]
    places: Sequence[CharRange]
    """Range of every part without surrounding whitespace."""
    turns: dict[int, CharRange]
    """Range of each assistant turn with its end-of-turn token, by message index."""

    def message_ranges(self) -> dict[int, CharRange]:
        """Range of the parts of each message, by index."""
        ranges: dict[int, CharRange] = {}
        for part, place in zip(self.parts, self.places, strict=True):
            ranges[part.message] = CharRange(ranges.get(part.message, place).start, place.stop)
        return ranges


class Locator(NamedTuple):
    """Finder of messages and turns, for one template and the functions of one conversation."""

    template: ChatTemplate
    controls: ControlTokens
    tools: Tools
    calls: bool
    """True if functions may be called."""

    def locate(self, messages: Sequence[ChatMessage]) -> Located:
        """Locate all messages and assistant turns of a conversation that ends with an assistant message.

        Raises:
            RewritesHistoryError: The template changes or moves a message, or the text does not begin with the prompt
                of a turn.
            TemplateError: An assistant turn has no end-of-turn token, or the template omits part of a call or a
                function.
        """
        rendered, last = self._write_checked(messages), len(messages) - 1
        located = Located(rendered, message_parts(messages), self._find_parts(rendered, messages), {})
        ranges = located.message_ranges()
        text, stop = self._cut_at_end(messages, rendered, ranges.get(last))
        for k in (k for k, message in enumerate(messages) if message["role"] == "assistant"):
            start = self._turn_start(messages, k, text, ranges.get(k))
            if k == last:
                end = stop
            elif self.calls:
                end = self._turn_end_in(messages[: k + 1], text, start)
            else:
                end = self._turn_end(text, ranges[k].stop, ranges[k + 1].start, k)
            located.turns[k] = CharRange(start, end)
        located = located._replace(text=text)
        self._refuse_headers(located, messages)
        self._refuse_different_openings(located, messages)
        return _check_text(located, messages)

    def locate_last(self, messages: Sequence[ChatMessage]) -> Located:
        """Locate the last message, an assistant message; the template may rewrite earlier messages.

        Raises `RewritesHistoryError` if the text does not begin with the message's prompt; `TemplateError` as `locate`.
        """
        rendered = self._write_checked(messages)
        last, earlier = len(messages) - 1, messages[:-1]
        last_parts = [part for part in message_parts(messages) if part.message == last]
        prompt = self._write(earlier, prompt=True)
        places = find_in_order(last_parts, rendered, len(prompt)) if rendered.startswith(prompt) else []
        if not places:  # The prompt may open the message itself (<think>). `_turn_start` refuses a prompt that differs.
            history = self._write(earlier)
            places = find_in_order(last_parts, rendered, len(history)) if rendered.startswith(history) else []
        if last_parts and not places and rendered.startswith(prompt):
            raise RewritesHistoryError(
                "it leaves out or changes part of an assistant turn even where it is the last one"
            )
        message = CharRange(places[0].start, places[-1].stop) if places else None
        start = self._turn_start(messages, last, rendered, message)
        text, stop = self._cut_at_end(messages, rendered, message)
        return _check_text(Located(text, last_parts, places, {last: CharRange(start, stop)}), messages)

    def _write(self, messages: Sequence[ChatMessage], *, prompt: bool = False) -> str:
        return self.template.write(messages, prompt=prompt, tools=self.tools)

    def _write_checked(self, messages: Sequence[ChatMessage]) -> str:
        if self.calls:
            self.template.refuse_unwritten(messages, self.tools)
        return self._write(messages)

    # Messages.

    def _find_parts(self, text: str, messages: Sequence[ChatMessage]) -> list[CharRange]:
        """Ranges of the parts in `text`, from a rendering with marks around them, of characters that are not in `text`.

        Raises `RewritesHistoryError` if a part is incomplete or out of order.
        """
        parts = message_parts(messages)
        opening, middle, closing = _unused_characters(text, messages)
        marked = self._write(_with_marks(messages, opening, middle, closing))
        pattern = re.compile(f"{opening}([0-9]+){middle}([^{closing}]*){closing}")
        unmarked, found, shift = pattern.sub(r"\2", marked), list[tuple[int, CharRange]](), 0
        for match in pattern.finditer(marked):
            start = match.start() - shift  # without the marks before
            found.append((int(match[1]), CharRange(start, start + len(match[2]))))
            shift += len(match[0]) - len(match[2])
        numbers = [number for number, _ in found]
        places = dict(found)
        for number, part in enumerate(parts):
            if numbers.count(number) != 1 or unmarked[slice(*places[number])] != part.core:
                field = "" if part.key == "content" else f", the {part.key}"
                raise RewritesHistoryError(
                    f"it leaves out, repeats or changes part of message {part.message + 1} ({part.role}{field})"
                )
        if numbers != sorted(numbers):
            raise RewritesHistoryError("it changes the order of the messages")
        if unmarked != text:
            raise RewritesHistoryError("what it writes depends on what the messages hold")
        return [place for _, place in found]

    # Turns.

    def _turn_start(self, messages: Sequence[ChatMessage], index: int, text: str, message: CharRange | None) -> int:
        """The first character of turn `index`, at the end of its prompt; `message` is the range of its text.

        With a template that has headers but no generation prompt, the turn begins with the message. Raises
        `RewritesHistoryError` if `text` does not begin with the prompt, or if the prompt contains the whole message.
        """
        prompt = self._write(messages[:index], prompt=True)
        if not text.startswith(prompt) or len(prompt) >= (message.stop if message else len(text)):
            start = max(0, _common(prompt, text) - _WINDOW // 2)
            raise RewritesHistoryError(
                f"a model that is asked for message {index + 1} is given ...{prompt[start : start + _WINDOW]!r}, and the text of the "
                f"conversation has ...{text[start : start + _WINDOW]!r} there"
            )
        has_header = message is not None and not self.calls and text[len(prompt) : message.start].strip()
        return message.start if message and has_header and prompt == self._write(messages[:index]) else len(prompt)

    def _turn_end(self, text: str, start: int, stop: int, turn: int) -> int:
        """The end of the first control token in `text[start:stop]`. Raises `TemplateError` if text precedes it."""
        token = self.controls.end(text, start, stop)
        if token is None or text[start : token[0]].strip():
            raise TemplateError(
                f"the chat template writes {text[start:stop]!r} after message {turn + 1}, an assistant's, and no end-of-turn token "
                "at once; a model tuned on it would not learn to stop. Give a template that writes one (often {{ eos_token }})"
            )
        return token[1]

    def _cut_at_end(self, messages: Sequence[ChatMessage], rendered: str, message: CharRange | None) -> tuple[str, int]:
        """The text up to the end of the last turn or further, and that end. For GLM, the next header is appended."""
        if self.calls or message is None:
            text = self._cut_after_turn(messages, rendered)
            return text, len(text)
        try:
            return rendered, self._turn_end(rendered, message.stop, len(rendered), len(messages) - 1)
        except TemplateError:
            text = self._with_next_header(messages, rendered)
            if text is None or rendered[message.stop :].strip():
                raise
            return text, len(text)

    def _cut_after_turn(self, messages: Sequence[ChatMessage], rendered: str) -> str:
        """The text up to the end of the last turn, which may have calls. Raises `TemplateError` without an end."""
        earlier = self._write(messages[:-1])
        if len(earlier) >= len(rendered):
            raise RewritesHistoryError(
                f"it leaves something out of earlier messages once message {len(messages)} follows"
            )
        token = self.controls.closing(rendered, len(earlier), len(rendered))
        if token is not None and not self._closes_calls(messages, rendered[slice(*token)], rendered):
            return rendered[: token[1]]
        text = self._with_next_header(messages, rendered)
        if text is None:
            raise TemplateError(
                f"the chat template writes no end-of-turn token after message {len(messages)}, an assistant's; a model tuned on it "
                "would not learn to stop. Give a template that writes one (often {{ eos_token }})"
            )
        return text

    def _turn_end_in(self, messages: Sequence[ChatMessage], text: str, start: int) -> int:
        """The end of the last of `messages` in the longer `text`; some templates add a token after the last message.

        Raises `RewritesHistoryError` if `text` does not begin with the rendered `messages`.
        """
        prefix = full = self._cut_after_turn(messages, self._write(messages))
        closing = self.controls.closing(prefix, start, len(prefix))
        while closing is not None and not text.startswith(prefix):
            closing = self.controls.closing(prefix, start, closing[0])
            prefix = prefix[: closing[1]] if closing is not None else prefix
            if closing is not None and self._closes_calls(messages, prefix[slice(*closing)], full):
                closing = None
        if closing is None:
            raise RewritesHistoryError(f"it writes message {len(messages)} otherwise once others follow")
        return len(prefix)

    def _closes_calls(self, messages: Sequence[ChatMessage], token: str, rendered: str) -> bool:
        """Return True if the template writes `token` after every call: an extra call adds an extra token."""
        *earlier, message = messages
        calls: list[Any] = message.get("tool_calls") or []
        if not calls:
            return False
        try:
            extended = self._write([*earlier, {**message, "tool_calls": [*calls, calls[-1]]}])
        except TemplateError:  # The template accepts one call per turn.
            return False
        return extended.count(token) > rendered.count(token)

    def _with_next_header(self, messages: Sequence[ChatMessage], text: str) -> str | None:
        """`text` with the control token of the next message's header; None if there is none or all headers share it."""
        calls: list[Any] = messages[-1].get("tool_calls") or []
        answer = {"role": "tool", "content": ".", "tool_call_id": calls[0]["id"]} if calls else None
        continued = self._write([*messages, answer or {"role": "user", "content": "."}])
        # Templates may drop the thoughts of a turn once another message follows: only the turn's end is compared.
        text = text.rstrip()
        content = str(messages[-1]["content"]).rstrip()
        end = (content if text.endswith(content) else text.rpartition("\n")[2])[-_WINDOW:] or text[-_WINDOW:]
        end_index = len(text) if continued.startswith(text) else continued.rfind(end) + len(end)
        header = self.controls.opening(continued, end_index) if end_index >= len(end) else None
        prompt = self._generation_prompt(messages[:-1])
        if header is None or continued[slice(*header)] in prompt or self.controls.first(prompt, 0, len(prompt)) is None:
            return None
        return text + continued[end_index : header[1]]

    def _generation_prompt(self, messages: Sequence[ChatMessage]) -> str:
        return self._write(messages, prompt=True)[len(self._write(messages)) :]

    # Refusals.

    def _refuse_different_openings(self, located: Located, messages: Sequence[ChatMessage]) -> None:
        """Raises: RewritesHistoryError: Only some turns have text before their message, such as an empty thought."""
        text, turns, ranges = located.text, located.turns, located.message_ranges()
        indices = [index for index in turns if index in ranges]
        headers = not self.calls and not self._generation_prompt(messages[: min(turns)])
        starts = {index: ranges[index - 1].stop if headers and index else turns[index].start for index in indices}
        openings = {index: text[starts[index] : ranges[index].start].strip() for index in indices}
        for index, opening in openings.items():
            if opening != openings[indices[0]]:
                raise RewritesHistoryError(
                    f"{'the header of' if headers else 'what a model writes in'} a turn begins with {opening!r} in message {index + 1}, and with "
                    f"{openings[indices[0]]!r} in message {indices[0] + 1}"
                )

    def _refuse_headers(self, located: Located, messages: Sequence[ChatMessage]) -> None:
        """Raise `TemplateError` if a turn ends with the header of the next message and the last turn does not.

        A template may write an end-of-turn token after the last turn only; a model tuned on it would write the user's
        header. A token that also ends other messages is no header, unless a generation prompt contains it.
        """
        if self.calls:  # `_turn_end_in` has compared the text up to each turn.
            return
        text, turns, ranges = located.text, located.turns, located.message_ranges()

        def ending(index: int) -> str:
            stop = turns[index].stop if index in turns else ranges[index + 1].start
            token = self.controls.end(text, ranges[index].stop, stop)
            return text[slice(*token)] if token else ""

        last = ending(max(turns))
        other_endings = {index: token for index in turns if (token := ending(index)) not in {last, self.controls.eos}}
        if not other_endings:
            return
        prompt_endings = {ending(index) for index in range(max(turns)) if index not in turns}
        prompt = self._generation_prompt(messages[: min(turns)])
        for index, token in other_endings.items():
            if token not in prompt_endings or token in prompt:
                raise TemplateError(
                    f"the chat template writes {token!r} after message {index + 1}, an assistant's, and {last!r} after the last one: the "
                    "former is the header of the next turn, and no end-of-turn token. Give a template that writes one after every turn"
                )


def message_parts(messages: Sequence[ChatMessage]) -> list[MessagePart]:
    """All parts in text order: thoughts before content, without calls."""
    return [
        MessagePart(index, message["role"], key, message[key])
        for index, message in enumerate(messages)
        for key in (*THOUGHTS, "content")
        if message.get(key)
    ]


def _with_marks(messages: Sequence[ChatMessage], opening: str, middle: str, closing: str) -> list[ChatMessage]:
    """Put marks inside the surrounding whitespace of each part, because a template may strip whitespace."""
    marked = [dict(message) for message in messages]
    for number, part in enumerate(message_parts(messages)):
        left = part.text[: len(part.text) - len(part.text.lstrip())]
        right = part.text[len(left) + len(part.core) :]
        marked[part.message][part.key] = f"{left}{opening}{number}{middle}{part.core}{closing}{right}"
    return [*marked]


def _unused_characters(text: str, messages: Sequence[ChatMessage]) -> tuple[str, str, str]:
    used = set(text).union(*(part.text for part in message_parts(messages)))
    first, second, third, *_ = [*sorted({chr(code) for code in range(0xE000, 0xF900)} - used), "", "", ""]
    if not third:
        raise TemplateError("the messages hold every private-use character of Unicode; leave this conversation out")
    return first, second, third


def _common(text: str, other: str) -> int:
    """Length of the common prefix, in characters."""
    return len(commonprefix((text, other)))  # noqa: RUF071 - characters are meant


_ESCAPE = re.compile(r"\\(?:u[0-9a-f]{4}|.)")
_WORD = re.compile(r"[a-z0-9]+")


def _check_text(located: Located, messages: Sequence[ChatMessage]) -> Located:
    """Return `located`.

    Raises:
        RewritesHistoryError: A thinking mark precedes content that holds thoughts.
        TemplateError: A turn lacks a word of its calls.
    """
    for part, place in zip(located.parts, located.places, strict=True):
        if part.role != "assistant" or part.key != "content" or thinking_in(part.text).form is None:
            continue
        preceding = located.text[: place.start].rstrip()
        mark = preceding[max(map(preceding.rfind, ("<", "[", "\u25c1"))) :]
        if thinking_in(mark).form is not None:
            raise RewritesHistoryError(
                f"it writes {mark!r} before the thoughts that message {part.message + 1} holds itself"
            )
    for index, place in located.turns.items():
        text = located.text[slice(*place)].casefold()
        calls = [call["function"] for call in messages[index].get("tool_calls") or ()]
        names = [str(function["name"]).casefold() for function in calls]
        written = write_json([function["arguments"] for function in calls]).decode().casefold()
        words = {word for word in _WORD.findall(_ESCAPE.sub(" ", written)) if word not in text}
        missing = [name for name in names if text.count(name) < names.count(name)]
        missing += sorted(words - ({"null"} if "none" in text else set()))
        if missing:
            raise TemplateError(
                f"the chat template does not write {missing[0]!r} of a call in message {index + 1}, so a model tuned on it would not "
                "learn to call. Give as --chat-template a file with a template that writes name and arguments of all tool_calls, or "
                "train a run folder on text (form=react)"
            )
    return located


def find_in_order(parts: Sequence[MessagePart], text: str, start: int) -> list[CharRange]:
    """Ranges of the parts in `text[start:]`, in order, whitespace ignored; empty if a part is missing."""
    positions = [index for index in range(start, len(text)) if not text[index].isspace()]
    squeezed = "".join(text[position] for position in positions)
    ranges: list[CharRange] = []
    offset = 0
    for part in parts:
        core = "".join(part.text.split())
        index = squeezed.find(core, offset)
        if index < 0:
            return []
        offset = index + len(core)
        ranges.append(CharRange(positions[index], positions[offset - 1] + 1))
    return ranges
