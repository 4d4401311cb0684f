"""Token ids and labels of a located text, refused where a label is not certain."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from refinesynth.train.labelled_conversation import Conversation, TurnLabel
from refinesynth.train.render.encoding import CharRange, Controls, Encoded, Encoder
from refinesynth.train.render.message_locator import Located
from refinesynth.train.render.template import RewritesHistoryError, TemplateError
from refinesynth.train.tokens import Label, Rendered, Span


class LabelTask(NamedTuple):
    """Example with known text and unknown tokens."""

    id: str
    conversation: Conversation
    located: Located
    trained: tuple[bool, ...]
    apart: int | None = None
    """Turn whose tokens are made apart from those of its prompt; None: all are made together."""
    masked: Mapping[int, tuple[CharRange, ...] | None] = MappingProxyType({})
    """Places of mistakes among the calls of trained turns; None for a turn that is masked whole for them."""


class _Prompt(NamedTuple):
    token: int
    """Its last control token."""
    end: str
    """The text from that token on."""
    stop: int
    """Character at which the prompt ends."""


class Labeller:
    """Maker of labelled examples with one tokenizer."""

    def __init__(self, tokenizer: Any, controls: Controls) -> None:
        self._tokenizer = tokenizer
        self._controls = controls
        self._encoder = Encoder(tokenizer, controls)
        self._bos: int | None = getattr(tokenizer, "bos_token_id", None)

    def label(self, records: Sequence[LabelTask]) -> list[Rendered | RewritesHistoryError]:
        """Label each record; an error in its place where tokens of a trained turn merge with those of its prompt.

        Raises `TemplateError` if no certain labels can be made for one.
        """
        forged = [self._forged(record) for record in records]
        plain = [record for record, places in zip(records, forged, strict=True) if not places]
        together = iter(self._encoder.encode([record.located.text for record in plain]))
        encoded: list[Encoded] = []
        for record, places in zip(records, forged, strict=True):
            try:
                encoded.append(self._encoder.encode_forged(record.located.text, places) if places else next(together))
            except TemplateError as error:
                raise TemplateError(f"{record.conversation.where}: {error}") from error
        prompts = [self._prompts(*each) for each in zip(records, encoded, strict=True)]
        # Most prompts end alike.
        ends = sorted({prompt.end for each in prompts for prompt in each.values()})
        alone = zip(ends, self._encoder.encode(ends), strict=True)
        tokens = {end: found.ids.tobytes() for end, found in alone}
        return [self._labelled(*each, tokens) for each in zip(records, encoded, forged, prompts, strict=True)]

    def _forged(self, record: LabelTask) -> list[CharRange]:
        """Places to encode apart, in order: text of messages that reads like a control token."""
        located = record.located
        found: list[CharRange] = []
        for part, place in zip(located.parts, located.places, strict=True):
            assistant = part.role == "assistant"
            if place is not None:
                found += self._controls.forged(located.text, place.start, place.stop, assistant=assistant)
            elif any(self._controls.forged(part.text, 0, len(part.text), assistant=assistant)):
                raise TemplateError(
                    f"{record.conversation.where}: a message holds text that reads like a control token, and the chat template changes that "
                    "message, so it cannot be kept apart; leave this conversation out"
                )
        if record.apart is not None:
            start = located.turns[record.apart].start
            found.append(CharRange(start, start))
        return sorted(found)

    def _labelled(
        self,
        record: LabelTask,
        encoded: Encoded,
        forged: Sequence[CharRange],
        prompts: Mapping[int, _Prompt],
        ends: Mapping[str, bytes],
        /,
    ) -> Rendered | RewritesHistoryError:
        """`ends` are the tokens of the prompts' ends by themselves."""
        conversation, located = record.conversation, record.located
        labels = np.full(len(encoded.ids), Label.CONTEXT, np.int8)
        spans: list[Span] = []
        for at, place in located.turns.items():
            turn_label = conversation.turns[at].label or TurnLabel.HISTORY
            if record.masked.get(at, ()) is None:
                turn_label = TurnLabel.MISTAKE
            start, stop = self._tokens(record, encoded, place)
            self._refuse_textual_end(record, encoded, at, stop)
            spans.append(Span(start, stop, turn_label))
            if record.trained[at]:
                prompt = prompts[at]
                stands = encoded.ids[prompt.token : start].tobytes() == ends[prompt.end]
                if not stands:  # by the prompt's end; by the whole prompt they may
                    before = [each for each in forged if each.stop <= prompt.stop]
                    whole = self._encoder.encode_forged(located.text[: prompt.stop], before)
                    stands = encoded.ids[:start].tobytes() == whole.ids.tobytes()
                if not stands:
                    return RewritesHistoryError(
                        f"the tokenizer makes other tokens of the prompt for message {at + 1} by itself than before what is "
                        f"written there ({located.text[max(0, place.start - 20) : place.start + 10]!r})"
                    )
                labels[start:stop] = Label.TRAINED
                for wrong in record.masked.get(at) or ():
                    labels[encoded.at(wrong.start) : encoded.behind(wrong.stop)] = Label.MISTAKE
            elif turn_label is TurnLabel.MISTAKE:
                labels[start:stop] = Label.MISTAKE
        self._refuse_control_tokens(record, encoded)
        whole = sum(places is None for places in record.masked.values())
        return Rendered(record.id, encoded.ids, labels, tuple(spans), calls=len(record.masked) - whole, whole=whole)

    def _prompts(self, record: LabelTask, encoded: Encoded) -> dict[int, _Prompt]:
        controls = np.flatnonzero(self._controls.kinds(encoded.ids))
        found: dict[int, _Prompt] = {}
        for turn, (stop, _) in record.located.turns.items():
            if record.trained[turn]:
                k = int(np.searchsorted(controls, encoded.at(stop)))
                token = int(controls[k - 1]) if k else 0
                since = int(encoded.starts[token]) if k else 0
                found[turn] = _Prompt(token, record.located.text[since:stop], stop)
        return found

    def _tokens(self, record: LabelTask, encoded: Encoded, place: CharRange) -> tuple[int, int]:
        """The tokens of a turn.

        A token that begins with a blank before the turn belongs to it, since many tokenizers make the blank part of a
        word. One outside of the turn that takes in blanks at its edge, as control tokens may, does not.
        """
        start, stop = encoded.at(place.start), encoded.behind(place.stop)
        text = record.located.text
        while start < stop and _swallows(
            text[encoded.starts[start] : place.start], text[place.start : encoded.stops[start]]
        ):
            start += 1
        while start < stop and _swallows(
            text[place.stop : encoded.stops[stop - 1]], text[encoded.starts[stop - 1] : place.stop]
        ):
            stop -= 1
        after = text[place.stop : encoded.stops[stop - 1]] if start < stop else ""
        if start >= stop or after.strip():
            raise TemplateError(
                f"{record.conversation.where}: the tokenizer makes one token of an assistant turn's end and what the chat template writes "
                f"behind it ({after!r}); give a chat_template with a control token there"
            )
        return start, stop

    def _refuse_textual_end(self, record: LabelTask, encoded: Encoded, at: int, stop: int) -> None:
        """Raises: TemplateError: The template's end-of-turn token is no control token of the tokenizer."""
        located = record.located
        own = [place for part, place in zip(located.parts, located.places, strict=True) if part.message == at]
        calls = bool(record.conversation.turns[at].calls)  # Which may be written with control tokens of their own.
        behind = stop - 1 if calls or own[-1] is None else encoded.at(own[-1].stop)
        if not self._controls.kinds(encoded.ids[behind:stop]).any():
            raise TemplateError(
                f"{record.conversation.where}: the tokenizer makes no control token of what ends message {at + 1}, an assistant's "
                f"({self._tokenizer.convert_ids_to_tokens(encoded.ids[behind:stop].tolist())}), so a model would not learn to stop; "
                "its normalizer changes the token's text. Save the tokenizer with `normalized=False` for that token"
            )

    def _refuse_control_tokens(self, record: LabelTask, encoded: Encoded) -> None:
        """Raises: TemplateError: The tokenizer makes a control token of message text, or the text has two BOS."""
        ids, located = encoded.ids, record.located
        if self._bos is not None and len(ids) > 1 and ids[0] == ids[1] == self._bos:
            raise TemplateError(
                "the chat template begins with two beginning-of-sequence tokens; take one out of it and give it as chat_template"
            )
        kinds = self._controls.kinds(ids)
        known = [each for each in zip(located.parts, located.places, strict=True) if each[1] is not None]
        at = np.flatnonzero(kinds)
        which = np.searchsorted([place.stop for _, place in known if place], encoded.starts[at], side="right")
        for token, k in zip(map(int, at), map(int, which), strict=True):
            part, place = known[k] if k < len(known) else (None, None)
            if part is None or place is None or encoded.stops[token] <= place.start:
                continue
            if part.role != "assistant" or kinds[token] != 1:
                raise TemplateError(
                    f"{record.conversation.where}: the tokenizer makes a control token of text in message {part.message + 1} "
                    f"({located.text[encoded.starts[token] : encoded.stops[token]]!r}); leave this conversation out"
                )


def _swallows(outside: str, inside: str) -> bool:
    """Return True if a token across a turn's edge has only blanks inside of it."""
    return bool(outside.strip()) and not inside.strip()
