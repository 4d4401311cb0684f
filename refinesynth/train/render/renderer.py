"""A conversation as token ids and labels, made together, for any chat template (paper, equation 1)."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np

from refinesynth.errors import InputError
from refinesynth.train.conversation import Conversation, LossOn, Speech
from refinesynth.train.render.controls import Controls, Forged
from refinesynth.train.render.encoding import Encoded, Encoder
from refinesynth.train.render.errors import RewritesHistoryError, TemplateError
from refinesynth.train.render.layouts import Layouts
from refinesynth.train.render.locating import Located, Range, locate_last
from refinesynth.train.render.template import ChatMessage, ChatTemplate
from refinesynth.train.tokens import Label, Rendered, Span

_TOGETHER = 64
"""Conversations that are tokenized in one call, on all processor cores."""


class _Record(NamedTuple):
    """An example whose text is known and whose tokens are not."""

    id: str
    conversation: Conversation
    located: Located
    trained: tuple[bool, ...]


class Renderer:
    """Makes examples for one tokenizer and template.

    The ids are those of the tokenizer's `apply_chat_template(..., tokenize=True)`, and text in a message that reads like a control
    token stays text. In each assistant turn that gives loss, every token from the first one that a model would write to the
    end-of-turn token is trained, mid-conversation too. What follows the last assistant turn is cut off: nothing is learned from
    it.

    Labels are made in characters and brought to tokens by offsets. Positions come from the template's generation markers where it
    has them, else from comparing renderings (see `locating`); where neither gives certain labels, rendering is refused.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        loss_on: LossOn = LossOn.REFINEMENT,
        template: str | None = None,
        on_rewrite: Literal["refuse", "expand"] = "refuse",
    ) -> None:
        """Take a transformers tokenizer, fast or slow.

        Its `chat_template` becomes the one that is used, so that it can be saved with the tuned model.

        Args:
            tokenizer: Of the model that is tuned.
            loss_on: Which turns give loss.
            template: Jinja text of a chat template; by default the tokenizer's own, else `REACT_TEMPLATE`.
            on_rewrite: What to do with a conversation whose earlier turns the template writes otherwise once later ones follow
                (Qwen3 strips their reasoning). `refuse` raises; `expand` makes one example of each trained turn and all
                before it, exactly as a model meets it, at several times the tokens. Where only the last turn is trained, that
                is one example, and done either way.

        Raises:
            TemplateError: There is no template, and none can be made.
        """
        self._template = ChatTemplate(tokenizer, template)
        if template is not None or getattr(tokenizer, "chat_template", None) is None:
            tokenizer.chat_template = self._template.source
        self.tokenizer: Any = tokenizer
        self._controls = Controls(tokenizer, self._template.source)
        self._encoder = Encoder(tokenizer, self._controls)
        self._markers = _marks_each_turn(self._template)
        self._layouts = Layouts(self._template, self._controls, markers=self._markers)
        self._bos: int | None = getattr(tokenizer, "bos_token_id", None)
        self.loss_on = loss_on
        self.on_rewrite: Literal["refuse", "expand"] = on_rewrite

    @property
    def method(self) -> str:
        """Where labels come from: `generation markers` or `prefix difference`."""
        return "generation markers" if self._markers else "prefix difference"

    @property
    def template(self) -> str:
        """The chat template in use, in Jinja: what the tuned model's tokenizer is to be saved with."""
        return self._template.source

    def render(self, conversation: Conversation) -> list[Rendered]:
        """The examples of one conversation: one; several where it is expanded; none if it has no assistant turn.

        Raises:
            RewritesHistoryError: The template rewrites it, and `on_rewrite` is `refuse`.
            TemplateError: No certain labels can be made for it.
            InputError: A turn is empty, or what `loss_on` asks for is not known of it.
        """
        return next(self.render_many([conversation]))

    def render_many(self, conversations: Iterable[Conversation]) -> Iterator[list[Rendered]]:
        """The examples of each conversation, in order; several times quicker than `render` on several cores.

        Raises:
            InputError: As `render`, at the conversation in question.
        """
        source = iter(conversations)
        while some := list(islice(source, _TOGETHER)):
            records = [self._records(conversation) for conversation in some]
            flat = [record for each in records for record in each]
            forged = [self._forged(record) for record in flat]
            plain = iter(
                self._encoder.encode(
                    [record.located.text for record, places in zip(flat, forged, strict=True) if not places],
                    [_cuts(record.located) for record, places in zip(flat, forged, strict=True) if not places],
                )
            )
            made = iter(
                [
                    self._labelled(record, self._apart(record, places) if places else next(plain))
                    for record, places in zip(flat, forged, strict=True)
                ]
            )
            yield from ([next(made) for _ in each] for each in records)

    def _records(self, conversation: Conversation) -> list[_Record]:
        messages = self._messages(conversation)
        if not messages:
            return []
        trained = conversation.trained(self.loss_on)[: len(messages)]
        try:
            return [_Record(conversation.id, conversation, self._layouts.locate(messages), trained)]
        except RewritesHistoryError as error:
            targets = [at for at, train in enumerate(trained) if train]
            if self.on_rewrite == "refuse" and any(at != len(messages) - 1 for at in targets):
                raise RewritesHistoryError(
                    f"{conversation.where}: the chat template rewrites the conversation: {error}. One text cannot serve all its "
                    "turns. Set on_rewrite to 'expand' (one example of each trained turn: exact, with several times the tokens), "
                    "or give a chat_template that leaves earlier turns as they are"
                ) from error
            return [self._expanded(conversation, messages, at, several=len(targets) > 1) for at in targets]
        except TemplateError as error:
            raise TemplateError(f"{conversation.where}: {error}") from error

    def _expanded(
        self, conversation: Conversation, messages: Sequence[ChatMessage], at: int, *, several: bool
    ) -> _Record:
        """One example that trains on the turn `at` alone and ends with it."""
        try:
            located = locate_last(self._template, self._controls, messages[: at + 1])
        except TemplateError as error:
            raise TemplateError(f"{conversation.where}: {error}") from error
        name = f"{conversation.id}@{at + 1}" if several else conversation.id
        return _Record(name, conversation, located, (*(False,) * at, True))

    def _messages(self, conversation: Conversation) -> list[ChatMessage]:
        """The turns up to the last assistant's, without their flags."""
        turns = conversation.turns
        count = max((at + 1 for at, turn in enumerate(turns) if turn.role == "assistant"), default=0)
        if self.loss_on is not LossOn.REFINEMENT and any(turn.speech is Speech.HISTORY for turn in turns):
            raise InputError(
                f"{conversation.where}: this record does not say which of its earlier turns are mistakes, so loss_on="
                f"{self.loss_on.value!r} cannot be computed; give the run's own folder, or an export with a flag per message"
            )
        if any(not turn.content.strip() for turn in turns[:count]):
            raise InputError(f"{conversation.where}: a message is empty; leave this conversation out")
        for number, turn in enumerate(turns[:count], start=1):
            try:
                turn.content.encode()
            except UnicodeEncodeError as error:
                raise InputError(
                    f"{conversation.where}: message {number} holds half a character ({turn.content[error.start]!r}, a lone "
                    "surrogate), which no tokenizer takes; mend it or leave this conversation out"
                ) from error
        return [{"role": turn.role, "content": turn.content} for turn in turns[:count]]

    def _forged(self, record: _Record) -> list[Forged]:
        """Places in messages that read like control tokens, in the order of the text."""
        found: list[Forged] = []
        for turn, place in zip(record.conversation.turns, record.located.messages, strict=False):
            assistant = turn.role == "assistant"
            if place is not None:
                found += self._controls.forged(record.located.text, place.start, place.stop, assistant=assistant)
            elif any(self._controls.forged(turn.content, 0, len(turn.content), assistant=assistant)):
                raise TemplateError(
                    f"{record.conversation.where}: a message holds text that reads like a control token, and the chat template "
                    "changes that message, so it cannot be kept apart; leave this conversation out"
                )
        return found

    def _apart(self, record: _Record, forged: Sequence[Forged]) -> Encoded:
        try:
            return self._encoder.encode_forged(record.located.text, _cuts(record.located), forged)
        except TemplateError as error:
            raise TemplateError(f"{record.conversation.where}: {error}") from error

    def _labelled(self, record: _Record, encoded: Encoded) -> Rendered:
        conversation, located = record.conversation, record.located
        labels = np.full(len(encoded.ids), Label.CONTEXT, np.int8)
        spans: list[Span] = []
        for at, place in located.turns.items():
            speech = conversation.turns[at].speech or Speech.HISTORY
            start, stop = self._tokens(record, encoded, place)
            self._refuse_textual_end(record, encoded, at, stop)
            spans.append(Span(start, stop, speech))
            if record.trained[at]:
                labels[start:stop] = Label.TRAINED
            elif speech is Speech.MISTAKE:
                labels[start:stop] = Label.MISTAKE
        self._refuse_control_tokens(record, encoded)
        return Rendered(record.id, conversation.group, encoded.ids, labels, tuple(spans))

    def _tokens(self, record: _Record, encoded: Encoded, place: Range) -> tuple[int, int]:
        """The tokens of a turn.

        One that begins before the turn with a blank belongs to it: to many tokenizers the blank before a word is part of it.
        One that stands before or behind the turn and takes blanks at its edge in, as control tokens may, does not.
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
        before = text[encoded.starts[start] : place.start] if start < stop else ""
        after = text[place.stop : encoded.stops[stop - 1]] if start < stop else ""
        if start >= stop or before.strip() or after.strip():
            raise TemplateError(
                f"{record.conversation.where}: the tokenizer makes one token of an assistant turn's edge and what the chat "
                f"template writes there ({before!r} before, {after!r} after); give a chat_template with a control token there"
            )
        return start, stop

    def _refuse_textual_end(self, record: _Record, encoded: Encoded, at: int, stop: int) -> None:
        """What the template means for an end-of-turn token must be one to the tokenizer, and not a few characters.

        Raises:
            TemplateError: It is not.
        """
        message = record.located.messages[at]
        behind = encoded.at(message.stop) if message is not None else stop - 1
        if not self._controls.kinds(encoded.ids[behind:stop]).any():
            raise TemplateError(
                f"{record.conversation.where}: the tokenizer makes no control token of what ends message {at + 1}, an assistant's "
                f"({self.tokenizer.convert_ids_to_tokens(encoded.ids[behind:stop].tolist())}), so a model would not learn to stop; "
                "its normalizer changes the token's text. Save the tokenizer with `normalized=False` for that token"
            )

    def _refuse_control_tokens(self, record: _Record, encoded: Encoded) -> None:
        """Whatever the tokenizer did to the text (it may fold characters): no message holds a control token.

        Raises:
            TemplateError: One does; or the text begins with two beginning-of-sequence tokens.
        """
        ids = encoded.ids
        if self._bos is not None and len(ids) > 1 and ids[0] == ids[1] == self._bos:
            raise TemplateError(
                "the chat template begins with two beginning-of-sequence tokens; take one out of it and give it as chat_template"
            )
        kinds = self._controls.kinds(ids)
        turns = record.conversation.turns
        places = [
            (place, turn.role) for place, turn in zip(record.located.messages, turns, strict=False) if place is not None
        ]
        at = np.flatnonzero(kinds)
        which = np.searchsorted([place.stop for place, _ in places], encoded.starts[at], side="right")
        for token, k in zip(at.tolist(), which.tolist(), strict=True):
            if k < len(places) and encoded.stops[token] > places[k][0][0]:
                if places[k][1] == "assistant" and kinds[token] == 1:
                    continue
                raise TemplateError(
                    f"{record.conversation.where}: the tokenizer makes a control token of text in message {k + 1} "
                    f"({record.located.text[encoded.starts[token] : encoded.stops[token]]!r}); leave this conversation out"
                )


def _swallows(outside: str, inside: str) -> bool:
    """Whether a token across a turn's edge stands outside of it and has only blanks inside."""
    return bool(outside.strip()) and not inside.strip()


def _cuts(located: Located) -> list[int]:
    """Where tokens will be asked for: the edges of all messages and turns."""
    places = [*(place for place in located.messages if place is not None), *located.turns.values()]
    return sorted({edge for place in places for edge in place})


def _marks_each_turn(template: ChatTemplate) -> bool:
    """Whether the template's generation markers can be relied on: there are as many as assistant turns in a sample."""
    if not template.has_markers:
        return False
    sample: list[ChatMessage] = [
        {"role": role, "content": f"word{k}"} for k, role in enumerate(("user", "assistant") * 2)
    ]
    try:
        return len(template.marked(sample)) == sum(message["role"] == "assistant" for message in sample)
    except TemplateError:
        return False
