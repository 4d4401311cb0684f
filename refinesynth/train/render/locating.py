"""Where in a template's text each message stands, and what the assistant writes of it; all in characters.

Three renderings are compared, and none is trusted alone: the conversation, the conversation with marks around every message
(which says where messages are and whether they are whole), and for each assistant turn the prompt that a model would be given
for it. What a model writes in a turn begins where that prompt ends and ends with the first control token behind the message.
"""

from collections.abc import Sequence
from typing import NamedTuple

from refinesynth.train.render.controls import Controls
from refinesynth.train.render.errors import RewritesHistoryError, TemplateError
from refinesynth.train.render.template import ChatMessage, ChatTemplate


class Range(NamedTuple):
    """Characters `start:stop`."""

    start: int
    stop: int


class Located(NamedTuple):
    """A conversation as text, with its parts."""

    text: str
    messages: tuple[Range | None, ...]
    """Of every message, blanks around it left out; None where that is not known (and nothing of it is trained on)."""
    turns: dict[int, Range]
    """What the assistant writes, end-of-turn token included, by the message's index."""


def locate(template: ChatTemplate, controls: Controls, messages: Sequence[ChatMessage], *, markers: bool) -> Located:
    """All messages of a conversation, and all that its assistant writes.

    `markers`: trust the template's generation markers for where an assistant begins and ends.

    Raises:
        RewritesHistoryError: A message is not whole, or not where it was, or a prompt differs from what is trained behind.
        TemplateError: An assistant's turn has no end-of-turn token, or a marked range holds another message.
    """
    text = template.write(messages)
    whole = find_messages(template, text, messages)
    marked = [Range(*found) for found in template.marked(messages)] if markers else []
    turns: dict[int, Range] = {}
    for at, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = whole[at - 1].stop if at else 0
        after = whole[at + 1].start if at + 1 < len(whole) else len(text)
        start = begin(template, text, messages, at, before, whole[at])
        stop = end_of_turn(controls, text, whole[at].stop, after, turn=at)
        if markers:
            own = _marker(marked, whole, at)
            # A marker that leaves the end-of-turn token out would give an agent that never stops.
            start, stop = own.start, max(stop, own.stop)
        turns[at] = Range(start, stop)
    if not markers:
        _refuse_headers(template, controls, text, messages, whole, turns)
    return Located(text, tuple(whole), turns)


def locate_last(template: ChatTemplate, controls: Controls, messages: Sequence[ChatMessage]) -> Located:
    """The last message alone, an assistant's; the earlier ones may be rewritten, as they are when a model is asked for it.

    Raises:
        TemplateError: The template changes this message too, or what it writes before it is not what a model is given.
    """
    text = template.write(messages)
    prompt = template.write(messages[:-1], prompt=True)
    if not text.startswith(prompt):
        raise TemplateError(
            "the chat template writes other text before a last assistant turn than it gives a model that is to write it; "
            "give another template as chat_template"
        )
    own = _laid_out(messages[-1]["content"], text, len(prompt))
    if own is None:  # The prompt may open the message itself, as with <think>.
        bare = template.write(messages[:-1])
        own = _laid_out(messages[-1]["content"], text, len(bare)) if text.startswith(bare) else None
    if own is None or own.stop <= len(prompt):
        raise TemplateError(
            "the chat template leaves out or changes part of an assistant turn even where it is the last one; "
            "give another template as chat_template"
        )
    stop = end_of_turn(controls, text, own.stop, len(text), turn=len(messages) - 1)
    return Located(text, (*_known(template, text, messages[:-1]), own), {len(messages) - 1: Range(len(prompt), stop)})


def begin(  # noqa: PLR0917
    template: ChatTemplate, text: str, messages: Sequence[ChatMessage], at: int, before: int, message: Range, /
) -> int:
    """Where in `text` a model that is asked for turn `at` begins to write.

    `before` is the end of the message before it and `message` its own.

    Raises:
        RewritesHistoryError: What a model is given differs from `text` in a message before.
    """
    prompt = template.write(messages[:at], prompt=True)
    if prompt[:before] != text[:before]:
        raise RewritesHistoryError(f"what it writes before message {at + 1} depends on the messages behind it")
    if not text.startswith(prompt) or len(prompt) >= message.stop:
        return message.start  # The prompt holds more than the text does, such as an opening <think>.
    rest = text[len(prompt) : message.start]
    if rest.strip() and prompt == template.write(messages[:at]):
        return message.start  # It knows no prompt: what is left is a header, which whoever asks the model writes.
    return len(prompt)


def end_of_turn(controls: Controls, text: str, start: int, stop: int, *, turn: int) -> int:
    """The end of the first control token in `text[start:stop]`, which lies between two messages; see `Controls.end`.

    Raises:
        TemplateError: There is none, or there is text before it.
    """
    found = controls.end(text, start, stop)
    if found is None or text[start : found[0]].strip():
        raise TemplateError(
            f"the chat template writes {text[start:stop]!r} after message {turn + 1}, an assistant's, and no end-of-turn token "
            "at once; a model tuned on it would not learn to stop. Give a template that writes one (often {{ eos_token }})"
        )
    return found[1]


def _refuse_headers(  # noqa: PLR0917
    template: ChatTemplate,
    controls: Controls,
    text: str,
    messages: Sequence[ChatMessage],
    whole: Sequence[Range],
    turns: dict[int, Range],
    /,
) -> None:
    """Where turns end otherwise than the last one does, what they end with must not be the header of the next.

    A template may write an end-of-turn token behind the last turn alone; a model tuned on it would write the user's header.
    One that ends users' turns too is none, unless it also begins the prompt for an assistant's.

    Raises:
        TemplateError: It is.
    """

    def ending(at: int) -> str:
        stop = turns[at].stop if at in turns else whole[at + 1].start
        found = controls.end(text, whole[at].stop, stop)
        return text[slice(*found)] if found else ""

    last = ending(max(turns)) if turns else ""
    others = {at: found for at in turns if (found := ending(at)) not in {last, controls.eos}}
    if not others:
        return
    spoken = {ending(at) for at in range(max(turns)) if at not in turns}
    asked = messages[: min(turns)]
    prompt = template.write(asked, prompt=True)[len(template.write(asked)) :]
    for at, found in others.items():
        if found not in spoken or found in prompt:
            raise TemplateError(
                f"the chat template writes {found!r} after message {at + 1}, an assistant's, and {last!r} after the last one: the "
                "former is the header of the next turn, and no end-of-turn token. Give a template that writes one after every turn"
            )


def find_messages(template: ChatTemplate, text: str, messages: Sequence[ChatMessage]) -> list[Range]:
    """Where each message stands in `text`, all of them whole and in order.

    Raises:
        RewritesHistoryError: They are not.
    """
    opening, middle, closing = _unused_characters(text, messages)
    marked = template.write(_with_marks(messages, opening, middle, closing))
    heads = [f"{opening}{number}{middle}" for number in range(len(messages))]
    starts = [marked.find(head) for head in heads]
    for number, (message, head, start) in enumerate(zip(messages, heads, starts, strict=True)):
        core = message["content"].strip() + closing
        if start < 0 or marked.count(head) > 1 or not marked.startswith(core, start + len(head)):
            raise RewritesHistoryError(
                f"it leaves out, repeats or changes part of message {number + 1} ({message['role']})"
            )
    if starts != sorted(starts):
        raise RewritesHistoryError("it changes the order of the messages")
    found: list[Range] = []
    shift = 0  # Earlier marks move what is behind them.
    for message, head, start in zip(messages, heads, starts, strict=True):
        core = message["content"].strip()
        found.append(Range(start - shift, start - shift + len(core)))
        shift += len(head) + len(closing)
    without = marked
    for mark in (*heads, closing):
        without = without.replace(mark, "")
    if without != text:
        raise RewritesHistoryError("what it writes depends on what the messages hold")
    return found


def _known(template: ChatTemplate, text: str, messages: Sequence[ChatMessage]) -> list[Range | None]:
    """What users and systems say, where it can be found; all None otherwise."""
    spoken = [at for at, message in enumerate(messages) if message["role"] != "assistant"]
    known: list[Range | None] = [None] * len(messages)
    opening, middle, closing = _unused_characters(text, messages)
    marked = template.write(
        [
            _with_marks([message], opening, middle, closing, first=at)[0] if at in spoken else message
            for at, message in enumerate(messages)
        ],
        prompt=True,
    )
    kept = 0
    for at in spoken:
        head, core = f"{opening}{at}{middle}", messages[at]["content"].strip()
        start = marked.find(head)
        if start < 0 or not text.startswith(core, start - kept):
            return [None] * len(messages)
        known[at] = Range(start - kept, start - kept + len(core))
        kept += len(head) + len(closing)
    return known


def _with_marks(
    messages: Sequence[ChatMessage], opening: str, middle: str, closing: str, *, first: int = 0
) -> list[ChatMessage]:
    """Marks inside the blanks around each message, so that a template that strips them does so all the same."""
    marked: list[ChatMessage] = []
    for number, message in enumerate(messages, start=first):
        content = message["content"]
        core = content.strip()
        left = content[: len(content) - len(content.lstrip())]
        right = content[len(left) + len(core) :]
        marked.append({**message, "content": f"{left}{opening}{number}{middle}{core}{closing}{right}"})
    return marked


def _unused_characters(text: str, messages: Sequence[ChatMessage]) -> tuple[str, str, str]:
    """Three private-use characters that are nowhere in the conversation."""
    used = set(text).union(*(message["content"] for message in messages))
    free = (chr(code) for code in range(0xE000, 0xF900) if chr(code) not in used)
    try:
        return next(free), next(free), next(free)
    except StopIteration:
        raise TemplateError(
            "the messages hold every private-use character of Unicode; leave this conversation out"
        ) from None


def _marker(marked: Sequence[Range], messages: Sequence[Range], at: int) -> Range:
    own = [one for one in marked if one.start <= messages[at].start and messages[at].stop <= one.stop]
    if len(own) != 1:
        raise TemplateError(
            f"the template's generation markers hold message {at + 1}, an assistant's, {len(own)} times, not once"
        )
    others = (message for k, message in enumerate(messages) if k != at)
    if any(own[0].start < other.stop and other.start < own[0].stop for other in others):
        raise TemplateError(
            f"the template's generation markers hold another message beside message {at + 1}, an assistant's"
        )
    return own[0]


def _laid_out(content: str, text: str, start: int) -> Range | None:
    """Where `content` stands in `text`, from `start` on; blanks may differ, as where a template lays reasoning out anew."""
    places = [at for at in range(start, len(text)) if not text[at].isspace()]
    core = "".join(content.split())
    at = "".join(text[place] for place in places).find(core)
    return Range(places[at], places[at + len(core) - 1] + 1) if at >= 0 else None
