"""What a template writes around messages, found once for all conversations of one shape (roles, in order).

Nearly all templates are fixed text around messages. It is found with short made-up messages, put around the real ones, and the
result is compared with what the template writes for these: where they agree, positions are known at the cost of two renderings,
whatever the number of turns. Where not (a template that looks into messages), `locating` looks at the conversation itself.
"""

from collections.abc import Sequence
from typing import NamedTuple

from refinesynth.train.render.controls import Controls
from refinesynth.train.render.errors import TemplateError
from refinesynth.train.render.locating import Located, Range, begin, locate
from refinesynth.train.render.template import ChatMessage, ChatTemplate

_LEFT, _RIGHT = " \n", "\n "
"""Blanks around a made-up message, to see whether the template keeps them."""


class Layout(NamedTuple):
    """Text around messages; one more gap than messages."""

    gaps: tuple[str, ...]
    keeps: tuple[tuple[bool, bool], ...]
    """Whether the template keeps blanks before and after each message."""
    turns: dict[int, tuple[int, int]]
    """For each assistant message: characters between its turn's beginning and its own, and between its end and the turn's."""
    opened: str
    """What a prompt for an assistant's turn writes that the text of a whole turn does not hold, such as `<think>`; often empty."""

    def fits(self, messages: Sequence[ChatMessage]) -> bool:
        """Whether turns begin where they do here: not so where a message itself begins with what a prompt opens."""
        return not self.opened or not any(
            message["role"] == "assistant" and message["content"].lstrip().startswith(self.opened)
            for message in messages
        )

    def around(self, messages: Sequence[ChatMessage]) -> Located:
        """The messages in their places, not compared with anything yet."""
        parts: list[str] = [self.gaps[0]]
        ranges: list[Range] = []
        at = len(self.gaps[0])
        for message, keeps, gap in zip(messages, self.keeps, self.gaps[1:], strict=True):
            content = message["content"]
            core = content.strip()
            left = content[: content.index(core)] if keeps[0] else ""
            right = content[content.index(core) + len(core) :] if keeps[1] else ""
            ranges.append(Range(at + len(left), at + len(left) + len(core)))
            parts += (left, core, right, gap)
            at += len(left) + len(core) + len(right) + len(gap)
        turns = {
            k: Range(
                self._outer(messages, ranges, k, 0) - before,
                self._outer(messages, ranges, k, 1) + after,
            )
            for k, (before, after) in self.turns.items()
        }
        return Located("".join(parts), tuple(ranges), turns)

    def _outer(self, messages: Sequence[ChatMessage], ranges: Sequence[Range], at: int, side: int) -> int:
        """Where a message begins or ends, the blanks that are kept around it included."""
        content = messages[at]["content"]
        blanks = len(content) - len(content.lstrip() if side == 0 else content.rstrip())
        if not self.keeps[at][side]:
            blanks = 0
        return ranges[at].start - blanks if side == 0 else ranges[at].stop + blanks


def layout_of(template: ChatTemplate, controls: Controls, roles: Sequence[str], *, markers: bool) -> Layout:
    """The text around messages with these roles.

    Raises:
        TemplateError: See `locate`.
    """
    made_up = _made_up(roles)
    bare = locate(template, controls, made_up, markers=markers)
    ranges = [found for found in bare.messages if found is not None]
    edges = [0, *(edge for found in ranges for edge in found), len(bare.text)]
    gaps = tuple(bare.text[edges[k] : edges[k + 1]] for k in range(0, len(edges), 2))
    padded = locate(template, controls, _made_up(roles, _LEFT, _RIGHT), markers=markers)
    keeps = tuple(
        (padded.text[: found.start].endswith(_LEFT), padded.text[found.stop :].startswith(_RIGHT))
        for found in padded.messages
        if found is not None
    )
    turns = {at: (ranges[at].start - turn.start, turn.stop - ranges[at].stop) for at, turn in bare.turns.items()}
    opened = ""
    if turns:
        prompt = template.write(made_up[: max(turns)], prompt=True)
        opened = "" if bare.text.startswith(prompt) else prompt[bare.turns[max(turns)].start :].strip()
    return Layout(gaps, keeps, turns, opened)


def _made_up(roles: Sequence[str], left: str = "", right: str = "") -> list[ChatMessage]:
    return [{"role": role, "content": f"{left}word{number}{right}"} for number, role in enumerate(roles)]


class Layouts:
    """Finds conversations in a template's text, each shape's layout made once."""

    def __init__(self, template: ChatTemplate, controls: Controls, *, markers: bool) -> None:
        self._template = template
        self._controls = controls
        self._markers = markers
        self._made: dict[tuple[str, ...], Layout | TemplateError] = {}

    def locate(self, messages: Sequence[ChatMessage]) -> Located:
        """The same as `locating.locate`, quicker.

        Raises:
            TemplateError: See `locating.locate`.
        """
        layout = self._layout(tuple(message["role"] for message in messages))
        if isinstance(layout, Layout) and layout.fits(messages):
            located = layout.around(messages)
            if located.text == self._template.write(messages) and self._prompted(messages, located):
                return located
        return locate(self._template, self._controls, messages, markers=self._markers)

    def _prompted(self, messages: Sequence[ChatMessage], located: Located) -> bool:
        """Whether the last assistant turn, which has most before it, begins where a model's prompt for it ends."""
        last = max(located.turns, default=None)
        if last is None or self._markers:
            return True
        before, message = located.messages[last - 1], located.messages[last]
        if before is None or message is None:
            return False
        return begin(self._template, located.text, messages, last, before.stop, message) == located.turns[last].start

    def _layout(self, shape: tuple[str, ...]) -> Layout | TemplateError:
        if shape not in self._made:
            try:
                self._made[shape] = layout_of(self._template, self._controls, shape, markers=self._markers)
            except TemplateError as error:
                self._made[shape] = error
        return self._made[shape]
