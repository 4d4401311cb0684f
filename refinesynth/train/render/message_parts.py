"""Where each part of a conversation stands in a template's text: marks are put around every one, and looked for.

A message is one part, its content; or two, where a turn's thought is given to the template apart from the rest.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from refinesynth.train.conversation import THOUGHTS
from refinesynth.train.render.errors import RewritesHistoryError, TemplateError
from refinesynth.train.render.template import ChatMessage, ChatTemplate, Tools


class CharRange(NamedTuple):
    """Characters `start:stop`."""

    start: int
    stop: int


class MessagePart(NamedTuple):
    """A text that a message gives to the template."""

    message: int
    role: str
    key: str
    """Under which the message has it: `content`, or one of `THOUGHTS`."""
    text: str

    @property
    def core(self) -> str:
        """The text without the blanks around it."""
        return self.text.strip()


def message_parts(messages: Sequence[ChatMessage]) -> list[MessagePart]:
    """All parts in the order of the text: a thought before what comes of it; what a message calls is none."""
    return [
        MessagePart(at, message["role"], key, message[key])
        for at, message in enumerate(messages)
        for key in (*THOUGHTS, "content")
        if message.get(key)
    ]


def outer(parts: Sequence[MessagePart], places: Sequence[CharRange]) -> list[CharRange]:
    """Of each message, from the beginning of its first part to the end of its last one."""
    found: list[CharRange] = []
    for part, place in zip(parts, places, strict=True):
        if part.message < len(found):
            found[-1] = CharRange(found[-1].start, place.stop)
        else:
            found.append(place)
    return found


def find_parts(
    template: ChatTemplate, text: str, messages: Sequence[ChatMessage], *, tools: Tools = ()
) -> list[CharRange]:
    """Where each part stands in `text`, blanks around it left out: all of them whole and in order.

    Raises:
        RewritesHistoryError: They are not.
    """
    parts = message_parts(messages)
    opening, middle, closing = _unused_characters(text, messages)
    marked = template.write(_with_marks(messages, opening, middle, closing), tools=tools)
    heads = [f"{opening}{number}{middle}" for number in range(len(parts))]
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


def find_spoken(
    template: ChatTemplate, text: str, messages: Sequence[ChatMessage], *, tools: Tools = ()
) -> list[CharRange | None]:
    """What users and systems say in the prompt that `text` begins with; None for what assistants say, and if it cannot
    be found.
    """
    parts = message_parts(messages)
    spoken = [number for number, part in enumerate(parts) if part.role != "assistant"]
    opening, middle, closing = _unused_characters(text, messages)
    marked = template.write(_with_marks(messages, opening, middle, closing, only=spoken), prompt=True, tools=tools)
    heads = [f"{opening}{number}{middle}" for number in spoken]
    written = [parts[number] for number in spoken]
    places = list(_unmarked(written, heads, [marked.find(head) for head in heads], closing))
    if any(not text.startswith(part.core, max(0, at.start)) for part, at in zip(written, places, strict=True)):
        return [None] * len(parts)
    found = dict(zip(spoken, places, strict=True))
    return [found.get(number) for number in range(len(parts))]


def _unmarked(
    parts: Sequence[MessagePart], heads: Sequence[str], starts: Sequence[int], closing: str
) -> Iterator[CharRange]:
    """Places in the text without marks: earlier marks move what is behind them."""
    shift = 0
    for part, head, start in zip(parts, heads, starts, strict=True):
        yield CharRange(start - shift, start - shift + len(part.core))
        shift += len(head) + len(closing)


def _with_marks(
    messages: Sequence[ChatMessage], opening: str, middle: str, closing: str, *, only: Sequence[int] | None = None
) -> list[ChatMessage]:
    """Marks inside the blanks around each part, so that a template that strips them does so all the same."""
    marked = [dict(message) for message in messages]
    for number, part in enumerate(message_parts(messages)):
        if only is None or number in only:
            left = part.text[: len(part.text) - len(part.text.lstrip())]
            right = part.text[len(left) + len(part.core) :]
            marked[part.message][part.key] = f"{left}{opening}{number}{middle}{part.core}{closing}{right}"
    return [*marked]


def _unused_characters(text: str, messages: Sequence[ChatMessage]) -> tuple[str, str, str]:
    """Three private-use characters that are nowhere in the conversation."""
    used = set(text).union(*(part.text for part in message_parts(messages)))
    free = (chr(code) for code in range(0xE000, 0xF900) if chr(code) not in used)
    try:
        return next(free), next(free), next(free)
    except StopIteration:
        raise TemplateError(
            "the messages hold every private-use character of Unicode; leave this conversation out"
        ) from None
