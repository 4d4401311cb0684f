"""Where in a template's text each message stands, and what the assistant writes of it; all in characters.

Three renderings are compared, and none is trusted alone: the conversation, the conversation with marks around every
message (which says where messages are and whether they are whole), and for each assistant turn the prompt that a model
would be given for it. What a model writes in a turn begins where that prompt ends and ends with the first control token
behind the message: so what stands before it is that prompt, character by character, or there is no training on it.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from refinesynth.chat import thinking_in
from refinesynth.train.conversation import THOUGHTS
from refinesynth.train.render.encoding import Controls
from refinesynth.train.render.template import ChatMessage, ChatTemplate, RewritesHistoryError, TemplateError, Tools


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


CHANGED = "it leaves out or changes part of an assistant turn even where it is the last one"
"""What a template does that cannot be trained through as it is."""
_NEXT: ChatMessage = {"role": "user", "content": "."}
_SHOWN = 40
"""Characters of a template's text that a message shows."""


class Located(NamedTuple):
    """A conversation as text, with its parts."""

    text: str
    parts: tuple[MessagePart, ...]
    places: tuple[CharRange | None, ...]
    """Of every part, blanks around it left out; None where that is not known (and nothing of it is trained on)."""
    turns: dict[int, CharRange]
    """What the assistant writes, end-of-turn token included, by the message's index."""


def locate(template: ChatTemplate, controls: Controls, messages: Sequence[ChatMessage], *, markers: bool) -> Located:
    """All messages of a conversation, and all that its assistant writes.

    `markers`: trust the template's generation markers for where a turn ends, and for where it begins if there are no
    prompts.

    Raises:
        RewritesHistoryError: A message is not whole, or not where it was, or a prompt differs from what is trained
            behind.
        TemplateError: An assistant's turn has no end-of-turn token, or a marked range holds another message.
    """
    text = template.write(messages)
    parts = message_parts(messages)
    places = find_parts(template, text, messages)
    whole = outer(parts, places)
    marked = [CharRange(*found) for found in template.marked(messages)] if markers else []
    turns: dict[int, CharRange] = {}
    for at, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        after = whole[at + 1].start if at + 1 < len(whole) else len(text)
        own = _marker(marked, whole, at) if markers else whole[at]
        start = begin(template, text, messages, at, own)
        if at == len(messages) - 1:
            text, stop = ended(template, controls, text, messages, whole[at].stop)
        else:
            stop = end_of_turn(controls, text, whole[at].stop, after, turn=at)
        # A marker may leave the end-of-turn token out, which would give an agent that never stops; or hold the line feed
        # behind it, which no model is asked to write.
        turns[at] = CharRange(start, max(own.stop, stop) if text[stop : own.stop].strip() else stop)
    if not markers:
        _refuse_headers(template, controls, text, messages, whole, turns)
    first = messages[: min(turns, default=0)]
    headers = template.write(first, prompt=True) == template.write(first)
    begins = {at: whole[at - 1].stop if headers and at else turn.start for at, turn in turns.items()}
    refuse_different_openings({at: text[begins[at] : whole[at].start] for at in turns}, headers=headers)
    return Located(text, tuple(parts), tuple(places), turns)


def locate_last(template: ChatTemplate, controls: Controls, messages: Sequence[ChatMessage]) -> Located:
    """The last message alone, an assistant's; the earlier ones may be rewritten, as they are when a model is asked for
    it.

    Raises:
        RewritesHistoryError: What it writes before this message is not what a model is given.
        TemplateError: The template changes this message too.
    """
    text = template.write(messages)
    last = len(messages) - 1
    own = [part for part in message_parts(messages) if part.message == last]
    prompt = template.write(messages[:-1], prompt=True)
    places = laid_out(own, text, len(prompt)) if text.startswith(prompt) else []
    if (
        not places
    ):  # The prompt may open the message itself, as with <think>; or it is another one, which `begin` refuses.
        bare = template.write(messages[:-1])
        places = laid_out(own, text, len(bare)) if text.startswith(bare) else []
    if not places and text.startswith(prompt):
        raise RewritesHistoryError(CHANGED)
    found = CharRange(places[0].start, places[-1].stop) if places else CharRange(len(text), len(text))
    start = begin(template, text, messages, last, found)
    text, stop = ended(template, controls, text, messages, found.stop)
    before = messages[:-1]
    return Located(
        text,
        tuple(message_parts(messages)),
        (*find_spoken(template, text, before), *places),
        {last: CharRange(start, stop)},
    )


def begin(template: ChatTemplate, text: str, messages: Sequence[ChatMessage], at: int, message: CharRange) -> int:
    """Where in `text` a model that is asked for turn `at`, which stands at `message`, begins to write: where its prompt
    ends.

    A template that knows no prompt, and writes a header before the message, leaves the header to the caller of the
    model: there it is the message.

    Raises:
        RewritesHistoryError: What a model is given is not what `text` begins with, or the whole message is in it.
    """
    prompt = template.write(messages[:at], prompt=True)
    if not text.startswith(prompt) or len(prompt) >= message.stop:
        raise different_prompt(prompt, text, at)
    rest = text[len(prompt) : message.start]
    if rest.strip() and prompt == template.write(messages[:at]):
        return message.start
    return len(prompt)


def different_prompt(prompt: str, text: str, at: int) -> RewritesHistoryError:
    """What to say where `text` does not begin with the prompt for message `at`."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(prompt, text, strict=False)))
    since = max(0, same - _SHOWN // 2)
    return RewritesHistoryError(
        f"a model that is asked for message {at + 1} is given ...{prompt[since : since + _SHOWN]!r}, and the text of the "
        f"conversation has ...{text[since : since + _SHOWN]!r} there"
    )


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


def ended(
    template: ChatTemplate, controls: Controls, text: str, messages: Sequence[ChatMessage], start: int, /
) -> tuple[str, int]:
    """`text`, whose last message is an assistant's and ends at `start`, and where its turn ends.

    Where a turn has no end of its own, as in GLM's templates, it is the header of the message that follows.

    Raises:
        TemplateError: There is no such end.
    """
    last = len(messages) - 1
    try:
        return text, end_of_turn(controls, text, start, len(text), turn=last)
    except TemplateError:
        header = heading(template, controls, text, messages, _NEXT)
        if header is None or text[start:].strip():
            raise
        return header, len(header)


def heading(
    template: ChatTemplate,
    controls: Controls,
    text: str,
    messages: Sequence[ChatMessage],
    following: ChatMessage,
    /,
    *,
    tools: Tools = (),
) -> str | None:
    """`text`, which is that of the messages, and the control token that heads a message that follows them.

    None where there is none, or where it says nothing of who speaks next: it begins the assistant's own turn too, or
    that begins with no control token.
    """
    whole = template.write([*messages, following], tools=tools)
    # Thoughts may be left out of the turn as soon as another follows, so only its end need be there.
    text = text.rstrip()
    said = str(messages[-1]["content"]).rstrip()
    end = (said if text.endswith(said) else text.rpartition("\n")[2])[-_SHOWN:] or text[-_SHOWN:]
    behind = len(text) if whole.startswith(text) else whole.rfind(end) + len(end)
    header = controls.opening(whole, behind) if behind >= len(end) else None
    asked = template.write(messages[:-1], tools=tools)
    prompt = template.write(messages[:-1], prompt=True, tools=tools)[len(asked) :]
    if header is None or whole[slice(*header)] in prompt or controls.first(prompt, 0, len(prompt)) is None:
        return None
    return text + whole[behind : header[1]]


def refuse_doubled(located: Located) -> None:
    """Thoughts that stand in a message must not be written behind others, or an empty block of them.

    Raises:
        RewritesHistoryError: They are.
    """
    for part, place in zip(located.parts, located.places, strict=True):
        if part.role != "assistant" or place is None or part.key != "content" or thinking_in(part.text).form is None:
            continue
        before = located.text[: place.start].rstrip()
        mark = before[max(map(before.rfind, ("<", "[", "\u25c1"))) :]
        if thinking_in(mark).form is not None:
            raise RewritesHistoryError(
                f"it writes {mark!r} before the thoughts that message {part.message + 1} holds itself"
            )


def refuse_different_openings(opened: Mapping[int, str], *, headers: bool) -> None:
    """What a model writes before its message, such as an empty block of thinking, it is to write in every turn or in
    none.

    `opened` has it by the message's index. `headers`: the template knows no prompt, so what it writes before a message, behind the one before, is the header of
    a turn.

    Raises:
        RewritesHistoryError: The template writes it before some turns alone.
    """
    openings = {at: opening.strip() for at, opening in opened.items()}
    first = min(openings, default=0)
    for at, opening in openings.items():
        if opening != openings[first]:
            raise RewritesHistoryError(
                f"{'the header of' if headers else 'what a model writes in'} a turn begins with {opening!r} in message {at + 1}, and with "
                f"{openings[first]!r} in message {first + 1}"
            )


def _refuse_headers(  # noqa: PLR0917
    template: ChatTemplate,
    controls: Controls,
    text: str,
    messages: Sequence[ChatMessage],
    whole: Sequence[CharRange],
    turns: dict[int, CharRange],
    /,
) -> None:
    """Where turns end otherwise than the last one does, what they end with must not be the header of the next.

    A template may write an end-of-turn token behind the last turn alone; a model tuned on it would write the user's
    header. One that ends users' turns too is none, unless it also begins the prompt for an assistant's.

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


def _marker(marked: Sequence[CharRange], messages: Sequence[CharRange], at: int) -> CharRange:
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


def laid_out(parts: Sequence[MessagePart], text: str, start: int) -> list[CharRange]:
    """Where the parts stand in `text`, from `start` on, one after the other; none if one is not there.

    Blanks may differ, as where a template lays reasoning out anew.
    """
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
