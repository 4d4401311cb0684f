"""What a template writes around messages, found once for all conversations of one shape (roles and kinds of pieces, in order).

Nearly all templates are fixed text around messages. It is found with short made-up messages, put around the real ones, and the
result is compared with what the template writes for these: where they agree, positions are known at the cost of one rendering,
whatever the number of turns; where a template looks into messages, prompts are compared too, one for each turn. Where they do
not agree, `locating` looks at the conversation itself.
"""

from collections.abc import Sequence
from typing import NamedTuple

from refinesynth.train.render.controls import Controls
from refinesynth.train.render.errors import TemplateError
from refinesynth.train.render.locating import Located, begin, locate
from refinesynth.train.render.pieces import Range, outer, pieces_of
from refinesynth.train.render.template import ChatMessage, ChatTemplate
from refinesynth.train.render.watching import looks_into

_LEFT, _RIGHT = " \n", "\n "
"""Blanks around a made-up message, to see whether the template keeps them."""

_Shape = tuple[tuple[str, ...], ...]
"""Of each message its role and under which keys it has its pieces."""


class Layout(NamedTuple):
    """Text around pieces; one more gap than pieces."""

    gaps: tuple[str, ...]
    keeps: tuple[tuple[bool, bool], ...]
    """Whether the template keeps blanks before and after each piece."""
    turns: dict[int, tuple[int, int]]
    """For each assistant message: characters between its turn's beginning and its own, and between its end and the turn's."""
    looks: bool
    """Whether the template looks into messages, so that prompts for others may end otherwise."""

    def around(self, messages: Sequence[ChatMessage]) -> Located:
        """The messages in their places, not compared with anything yet."""
        pieces = pieces_of(messages)
        parts: list[str] = [self.gaps[0]]
        places: list[Range] = []
        padded: list[Range] = []  # The same with the blanks around them that are kept.
        at = len(self.gaps[0])
        for piece, keeps, gap in zip(pieces, self.keeps, self.gaps[1:], strict=True):
            text, core = piece.text, piece.core
            left = text[: text.index(core)] if keeps[0] else ""
            right = text[text.index(core) + len(core) :] if keeps[1] else ""
            places.append(Range(at + len(left), at + len(left) + len(core)))
            padded.append(Range(at, at + len(left) + len(core) + len(right)))
            parts += (left, core, right, gap)
            at = padded[-1].stop + len(gap)
        whole = outer(pieces, padded)
        turns = {k: Range(whole[k].start - before, whole[k].stop + after) for k, (before, after) in self.turns.items()}
        return Located("".join(parts), tuple(pieces), tuple(places), turns)


def layout_of(template: ChatTemplate, controls: Controls, shape: _Shape, *, markers: bool) -> Layout:
    """The text around messages of this shape.

    Raises:
        TemplateError: See `locate`.
    """
    made_up = _made_up(shape)
    bare = locate(template, controls, made_up, markers=markers)
    places = [found for found in bare.places if found is not None]
    edges = [0, *(edge for found in places for edge in found), len(bare.text)]
    gaps = tuple(bare.text[edges[k] : edges[k + 1]] for k in range(0, len(edges), 2))
    padded = locate(template, controls, _made_up(shape, _LEFT, _RIGHT), markers=markers)
    keeps = tuple(
        (padded.text[: found.start].endswith(_LEFT), padded.text[found.stop :].startswith(_RIGHT))
        for found in padded.places
        if found is not None
    )
    whole = outer(bare.pieces, places)
    turns = {at: (whole[at].start - turn.start, turn.stop - whole[at].stop) for at, turn in bare.turns.items()}
    return Layout(gaps, keeps, turns, looks_into(template, made_up))


def _made_up(shape: _Shape, left: str = "", right: str = "") -> list[ChatMessage]:
    return [
        {"role": role} | dict.fromkeys(keys, f"{left}word{number}{right}") for number, (role, *keys) in enumerate(shape)
    ]


class Layouts:
    """Finds conversations in a template's text, each shape's layout made once."""

    def __init__(self, template: ChatTemplate, controls: Controls, *, markers: bool) -> None:
        self._template = template
        self._controls = controls
        self._markers = markers
        self._made: dict[_Shape, Layout | TemplateError] = {}

    def locate(self, messages: Sequence[ChatMessage]) -> Located:
        """The same as `locating.locate`, quicker.

        Raises:
            TemplateError: See `locating.locate`.
        """
        layout = self._layout(
            tuple((message["role"], *(key for key in message if key != "role")) for message in messages)
        )
        if isinstance(layout, Layout):
            located = layout.around(messages)
            if located.text == self._template.write(messages) and (
                not layout.looks or self._is_prompted(messages, located)
            ):
                return located
        return locate(self._template, self._controls, messages, markers=self._markers)

    def _is_prompted(self, messages: Sequence[ChatMessage], located: Located) -> bool:
        """Whether each assistant turn begins where a model's prompt for it ends."""
        whole = outer(located.pieces, [place for place in located.places if place is not None])
        try:
            return all(
                begin(self._template, located.text, messages, at, whole[at]) == turn.start
                for at, turn in located.turns.items()
            )
        except TemplateError:
            return False

    def _layout(self, shape: _Shape) -> Layout | TemplateError:
        if shape not in self._made:
            try:
                self._made[shape] = layout_of(self._template, self._controls, shape, markers=self._markers)
            except TemplateError as error:
                self._made[shape] = error
        return self._made[shape]
