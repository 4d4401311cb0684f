"""Where each piece of a conversation stands in a template's text: marks are put around every one, and looked for.

A message is one piece, its content; or two, where a turn's thought is given to the template apart from the rest.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from refinesynth.train.render.errors import RewritesHistoryError, TemplateError
from refinesynth.train.render.template import THOUGHTS, ChatMessage, ChatTemplate


class Range(NamedTuple):
    """Characters `start:stop`."""

    start: int
    stop: int


class Piece(NamedTuple):
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


def pieces_of(messages: Sequence[ChatMessage]) -> list[Piece]:
    """All pieces in the order in which they are said: a thought before what comes of it."""
    return [
        Piece(at, message["role"], key, message[key])
        for at, message in enumerate(messages)
        for key in (*THOUGHTS, "content")
        if key in message
    ]


def outer(pieces: Sequence[Piece], places: Sequence[Range]) -> list[Range]:
    """Of each message, from the beginning of its first piece to the end of its last one."""
    found: list[Range] = []
    for piece, place in zip(pieces, places, strict=True):
        if piece.message < len(found):
            found[-1] = Range(found[-1].start, place.stop)
        else:
            found.append(place)
    return found


def find_pieces(template: ChatTemplate, text: str, messages: Sequence[ChatMessage]) -> list[Range]:
    """Where each piece stands in `text`, blanks around it left out: all of them whole and in order.

    Raises:
        RewritesHistoryError: They are not.
    """
    pieces = pieces_of(messages)
    opening, middle, closing = _unused_characters(text, messages)
    marked = template.write(_with_marks(messages, opening, middle, closing))
    heads = [f"{opening}{number}{middle}" for number in range(len(pieces))]
    starts = [marked.find(head) for head in heads]
    for piece, head, start in zip(pieces, heads, starts, strict=True):
        core = piece.core + closing
        if start < 0 or marked.count(head) > 1 or not marked.startswith(core, start + len(head)):
            what = "" if piece.key == "content" else f", the {piece.key}"
            raise RewritesHistoryError(
                f"it leaves out, repeats or changes part of message {piece.message + 1} ({piece.role}{what})"
            )
    if starts != sorted(starts):
        raise RewritesHistoryError("it changes the order of the messages")
    without = marked
    for mark in (*heads, closing):
        without = without.replace(mark, "")
    if without != text:
        raise RewritesHistoryError("what it writes depends on what the messages hold")
    return list(_unmarked(pieces, heads, starts, closing))


def find_spoken(template: ChatTemplate, text: str, messages: Sequence[ChatMessage]) -> list[Range | None]:
    """What users and systems say in the prompt that `text` begins with; None for what assistants say, and if it cannot be found."""
    pieces = pieces_of(messages)
    spoken = [number for number, piece in enumerate(pieces) if piece.role != "assistant"]
    opening, middle, closing = _unused_characters(text, messages)
    marked = template.write(_with_marks(messages, opening, middle, closing, only=spoken), prompt=True)
    heads = [f"{opening}{number}{middle}" for number in spoken]
    said = [pieces[number] for number in spoken]
    places = list(_unmarked(said, heads, [marked.find(head) for head in heads], closing))
    if any(not text.startswith(piece.core, max(0, at.start)) for piece, at in zip(said, places, strict=True)):
        return [None] * len(pieces)
    found = dict(zip(spoken, places, strict=True))
    return [found.get(number) for number in range(len(pieces))]


def _unmarked(pieces: Sequence[Piece], heads: Sequence[str], starts: Sequence[int], closing: str) -> Iterator[Range]:
    """Places in the text without marks: earlier marks move what is behind them."""
    shift = 0
    for piece, head, start in zip(pieces, heads, starts, strict=True):
        yield Range(start - shift, start - shift + len(piece.core))
        shift += len(head) + len(closing)


def _with_marks(
    messages: Sequence[ChatMessage], opening: str, middle: str, closing: str, *, only: Sequence[int] | None = None
) -> list[ChatMessage]:
    """Marks inside the blanks around each piece, so that a template that strips them does so all the same."""
    marked = [dict(message) for message in messages]
    for number, piece in enumerate(pieces_of(messages)):
        if only is None or number in only:
            left = piece.text[: len(piece.text) - len(piece.text.lstrip())]
            right = piece.text[len(left) + len(piece.core) :]
            marked[piece.message][piece.key] = f"{left}{opening}{number}{middle}{piece.core}{closing}{right}"
    return [*marked]


def _unused_characters(text: str, messages: Sequence[ChatMessage]) -> tuple[str, str, str]:
    """Three private-use characters that are nowhere in the conversation."""
    used = set(text).union(*(piece.text for piece in pieces_of(messages)))
    free = (chr(code) for code in range(0xE000, 0xF900) if chr(code) not in used)
    try:
        return next(free), next(free), next(free)
    except StopIteration:
        raise TemplateError(
            "the messages hold every private-use character of Unicode; leave this conversation out"
        ) from None
