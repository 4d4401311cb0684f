"""Renderer of conversations as token ids and labels, for any chat template (paper, equation 1).

A conversation is refused if a label is not certain.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from refinesynth.chat import split_thought, thinking_in
from refinesynth.errors import InputError
from refinesynth.train.labelled_conversation import THOUGHTS, Conversation, LossOn, Turn, TurnLabel
from refinesynth.train.render.encoding import CharRange, Controls, Encoded, Encoder
from refinesynth.train.render.message_locator import Located, Locator
from refinesynth.train.render.template import ChatMessage, ChatTemplate, RewritesHistoryError, TemplateError, mentions
from refinesynth.train.tokens import Label, Rendered, Span


class LabelTask(NamedTuple):
    """Example with located text, before tokenization."""

    id: str
    conversation: Conversation
    located: Located
    trained: tuple[bool, ...]
    apart: int | None = None
    """Turn that is encoded separately from its prompt; None: the whole text is encoded at once."""
    masked: Mapping[int, tuple[CharRange, ...] | None] = MappingProxyType({})
    """Ranges of mistaken calls, by trained turn; None for a turn that is masked as a whole because of them."""


class _Prompt(NamedTuple):
    token: int
    """Position of the prompt's last control token."""
    end: str
    """The prompt's text from that token on."""
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
        """Label each record; the result is an error if tokens of a trained turn merge with those of its prompt.

        Raises `TemplateError` if the labels of a record are not certain.
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
        # Most prompts share their end: each distinct end is encoded once.
        ends = sorted({prompt.end for each in prompts for prompt in each.values()})
        alone = zip(ends, self._encoder.encode(ends), strict=True)
        tokens = {end: found.ids.tobytes() for end, found in alone}
        return [self._labelled(*each, tokens) for each in zip(records, encoded, forged, prompts, strict=True)]

    def _forged(self, record: LabelTask) -> list[CharRange]:
        """Ranges to encode separately, sorted: message text that looks like a control token, and the cut at `apart`."""
        located = record.located
        ranges: list[CharRange] = []
        for part, place in zip(located.parts, located.places, strict=True):
            assistant = part.role == "assistant"
            if place is not None:
                ranges += self._controls.forged(located.text, place.start, place.stop, assistant=assistant)
            elif any(self._controls.forged(part.text, 0, len(part.text), assistant=assistant)):
                raise TemplateError(
                    f"{record.conversation.where}: a message holds text that reads like a control token, and the chat template changes that "
                    "message, so it cannot be kept apart; leave this conversation out"
                )
        if record.apart is not None:
            start = located.turns[record.apart].start
            ranges.append(CharRange(start, start))
        return sorted(ranges)

    def _labelled(
        self,
        record: LabelTask,
        encoded: Encoded,
        forged: Sequence[CharRange],
        prompts: Mapping[int, _Prompt],
        ends: Mapping[str, bytes],
        /,
    ) -> Rendered | RewritesHistoryError:
        """Label one record; `ends` are the token ids of each prompt's end, encoded alone."""
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
                if not stands:  # the whole prompt may still give the same tokens
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
        prompts: dict[int, _Prompt] = {}
        for turn, (stop, _) in record.located.turns.items():
            if record.trained[turn]:
                k = int(np.searchsorted(controls, encoded.at(stop)))
                token = int(controls[k - 1]) if k else 0
                since = int(encoded.starts[token]) if k else 0
                prompts[turn] = _Prompt(token, record.located.text[since:stop], stop)
        return prompts

    def _tokens(self, record: LabelTask, encoded: Encoded, place: CharRange) -> tuple[int, int]:
        """The tokens of a turn.

        A token that begins with whitespace before the turn belongs to the turn: many tokenizers join a space with the
        next word. A token outside the turn that includes whitespace at its edge, such as a control token, does not.
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
        calls = bool(record.conversation.turns[at].calls)  # Templates may write calls with control tokens.
        behind = stop - 1 if calls or own[-1] is None else encoded.at(own[-1].stop)
        if not self._controls.kinds(encoded.ids[behind:stop]).any():
            raise TemplateError(
                f"{record.conversation.where}: the tokenizer makes no control token of what ends message {at + 1}, an assistant's "
                f"({self._tokenizer.convert_ids_to_tokens(encoded.ids[behind:stop].tolist())}), so a model would not learn to stop; "
                "its normalizer changes the token's text. Save the tokenizer with `normalized=False` for that token"
            )

    def _refuse_control_tokens(self, record: LabelTask, encoded: Encoded) -> None:
        """Raises: TemplateError: The tokenizer encodes message text as a control token, or the text has two BOS."""
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
    """Return True if a token across a turn's edge has only whitespace inside the turn."""
    return bool(outside.strip()) and not inside.strip()


VARIABLES: Final = ("enable_thinking", "thinking", "preserve_thinking", "truncate_history_thinking", "clear_thinking")
"""Template variables that control where thinking is written."""

OnRewrite = Literal["refuse", "expand"]
ThoughtAs = Literal["content", "reasoning", "omit"]

_TOGETHER = 64
"""Conversations per tokenizer call; a call uses all processor cores."""


class Renderer:
    """Renderer of training examples for one tokenizer and template.

    The tokens before each trained turn equal `apply_chat_template(earlier turns, add_generation_prompt=True)`.
    Otherwise rendering raises an error that names settings to try. For a template without generation prompts, the
    tokens up to the end of the previous message are equal; the header is context, and the same for all turns. All
    tokens that a model would write are trained, including each end-of-turn token. Text after the last turn is cut off.

    If a tokenizer merges tokens across a prompt's end, prompt and turn are encoded separately, as at inference, and
    each trained turn becomes an example (`on_rewrite`). Message text that looks like a control token is encoded as
    text. Positions come from comparing renderings (`message_locator.py`); generation markers are not used.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        loss_on: LossOn = LossOn.REFINEMENT,
        template: str | None = None,
        on_rewrite: OnRewrite = "refuse",
        chat_template_kwargs: Mapping[str, Any] = MappingProxyType({}),
        thought_as: ThoughtAs = "content",
    ) -> None:
        """Set the tokenizer's `chat_template` to the template in use, with the kwargs as defaults.

        Args:
            tokenizer: Fast transformers tokenizer of the model to tune.
            loss_on: Turns that give loss.
            template: Jinja text of a chat template; by default the tokenizer's own, else `REACT_TEMPLATE`.
            on_rewrite: Handling of conversations that the template writes differently in prompts (Qwen3 strips earlier
                reasoning). `refuse` raises; `expand` makes one exact example per trained turn, with several times the
                tokens. If only the last turn is trained, that example is always made.
            chat_template_kwargs: Variables of the template, such as `enable_thinking`.
            thought_as: `reasoning` passes the text before `Action:` to the template as the message's thought, under the
                key that it reads; `omit` drops that text. A record's own thinking is treated in the same way. `content`
                writes separate thinking between `<think>` and `</think>`.

        Raises:
            TemplateError: The tokenizer is slow or has no usable template, or the template does not read a variable
                or, for `reasoning`, thoughts.
        """
        self._template = ChatTemplate(tokenizer, template, variables=chat_template_kwargs)
        self.tokenizer: Any = tokenizer
        own: str | Mapping[str, str] | None = getattr(tokenizer, "chat_template", None)
        if self._template.source != own:
            among = {**own, "default": self._template.source} if isinstance(own, Mapping) else self._template.source
            tokenizer.chat_template = among
        if thought_as == "reasoning" and self._template.thought is None:
            raise TemplateError(
                f"the chat template reads no thought of a message ({', '.join(THOUGHTS)}); leave thought_as at 'content'"
            )
        self._controls = Controls(tokenizer, self._template.source)
        self._labeller = Labeller(tokenizer, self._controls)
        self.loss_on = loss_on
        self.on_rewrite: OnRewrite = on_rewrite
        self.chat_template_kwargs: Mapping[str, Any] = dict(chat_template_kwargs)
        self.thought_as: ThoughtAs = thought_as

    @property
    def template(self) -> str:
        """The chat template in use, in Jinja, for the tuned model's tokenizer."""
        return self._template.source

    def prompt(self, turns: Sequence[Turn], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """Write the prompt of the next turn as in training, with these functions. Raises as `render`."""
        messages = [self._message(turn, f"message {at + 1}") for at, turn in enumerate(turns)]
        return self._template.write(messages, prompt=True, tools=tools)

    def render(self, conversation: Conversation) -> list[Rendered]:
        """Render one conversation: one example, several if it is expanded, or none without an assistant turn.

        Raises:
            RewritesHistoryError: The template rewrites earlier turns and `on_rewrite` is `refuse`, or a trained turn.
            TemplateError: The labels are not certain.
            InputError: A turn contains half a character, or `loss_on` needs labels that the record does not have.
        """
        return next(self.render_many([conversation]))

    def render_many(self, conversations: Iterable[Conversation]) -> Iterator[list[Rendered]]:
        """Render conversations in batches, in order; several times faster than `render` on several cores."""
        source = iter(conversations)
        while batch := list(islice(source, _TOGETHER)):
            records = [self._records(conversation) for conversation in batch]
            labelled = iter(self._labeller.label([record for tasks in records for record in tasks]))
            for conversation, tasks in zip(batch, records, strict=True):
                yield self._checked(conversation, tasks, [next(labelled) for _ in tasks])

    def _records(self, conversation: Conversation) -> list[LabelTask]:
        messages = self._messages(conversation)
        if not messages:
            return []
        trained = conversation.trained(self.loss_on)
        try:
            locator = self._locator(conversation)
            located = locator.locate(messages)
            return [self._masked(LabelTask(conversation.id, conversation, located, trained), locator, messages)]
        except RewritesHistoryError as error:
            return self._expanded(conversation, error)
        except TemplateError as error:
            raise TemplateError(f"{conversation.where}: {error}") from error

    def _masked(self, task: LabelTask, locator: Locator, messages: Sequence[ChatMessage]) -> LabelTask:
        """Add the ranges of mistaken calls in mixed turns; a turn without certain ranges is not trained."""
        masked: dict[int, tuple[CharRange, ...] | None] = {}
        for at in task.located.turns:
            turn = task.conversation.turns[at]
            if turn.mistakes and task.trained[at] and self.loss_on is not LossOn.ALL_TURNS:
                places = locator.find_calls(messages, at, task.located)
                every = zip(places or (), turn.calls, strict=False)
                masked[at] = places and tuple(place for place, call in every if call.id in turn.mistakes)
        trained = (train and masked.get(at, ()) is not None for at, train in enumerate(task.trained))
        return task._replace(trained=tuple(trained), masked=masked)

    def _locator(self, conversation: Conversation) -> Locator:
        calls = bool(conversation.tools) or any(turn.calls for turn in conversation.turns)
        return Locator(self._template, self._controls, conversation.tools, calls)

    def _checked(
        self, conversation: Conversation, records: Sequence[LabelTask], made: Sequence[Rendered | RewritesHistoryError]
    ) -> list[Rendered]:
        """The examples of a conversation; prompts are encoded separately if their tokens merge with those of turns."""
        error = next((each for each in made if isinstance(each, RewritesHistoryError)), None)
        if error is None:
            return [each for each in made if isinstance(each, Rendered)]
        if any(record.apart is not None for record in records):
            raise TemplateError(f"{conversation.where}: {error}")
        apart = self._expanded(conversation, error, apart=True)
        return self._checked(conversation, apart, self._labeller.label(apart))

    def _expanded(
        self, conversation: Conversation, error: RewritesHistoryError, *, apart: bool = False
    ) -> list[LabelTask]:
        """Make an example for each trained turn, which ends with that turn and trains on it alone.

        Raises `RewritesHistoryError` if a turn before the last is trained and `on_rewrite` is `refuse`.
        """
        messages = self._messages(conversation)
        targets = [at for at, train in enumerate(conversation.trained(self.loss_on)) if train]
        last = max(at for at, turn in enumerate(conversation.turns) if turn.role == "assistant")
        if self.on_rewrite == "refuse" and any(at != last for at in targets):
            raise self._refusal(conversation, error) from error
        try:
            locator = self._locator(conversation)
            tasks = (
                LabelTask(
                    f"{conversation.id}@{at + 1}" if len(targets) > 1 else conversation.id,
                    conversation,
                    locator.locate_last(messages[: at + 1]),
                    (*(False,) * at, True),
                    at if apart else None,
                )
                for at in targets
            )
            return [self._masked(task, locator, messages[: len(task.trained)]) for task in tasks]
        except RewritesHistoryError as last:
            raise self._refusal(conversation, last) from last
        except TemplateError as last:
            raise TemplateError(f"{conversation.where}: {last}") from last

    def _refusal(self, conversation: Conversation, error: RewritesHistoryError) -> RewritesHistoryError:
        options = [
            f"--set chat_template_kwargs.{each}=true|false" for each in VARIABLES if mentions(self._template.bare, each)
        ]
        options += ["--thought-as reasoning"] if self._template.thought and self.thought_as == "content" else []
        options += ["--thought-as omit"] if self.thought_as != "omit" else []
        if self.on_rewrite == "refuse":
            options.append(
                "--set on_rewrite=expand (one example of each trained turn: exact, with several times the tokens)"
            )
        model = getattr(self.tokenizer, "name_or_path", "")
        return RewritesHistoryError(
            f"{conversation.where}: with the chat template{f' of {model}' if model else ''} as it is set, a model would be trained "
            f"behind other text than it is given when it plays: {error}. Try {', '.join([*options, '--chat-template FILE'])}, or several "
            "of them; docs/training.md lists what each family of templates needs"
        )

    def _messages(self, conversation: Conversation) -> list[ChatMessage]:
        """The turns up to the last assistant turn, as messages without labels."""
        turns = conversation.turns
        count = max((at + 1 for at, turn in enumerate(turns) if turn.role == "assistant"), default=0)
        if self.loss_on is not LossOn.REFINEMENT and any(turn.label is TurnLabel.HISTORY for turn in turns):
            raise InputError(
                f"{conversation.where}: this record does not say which of its earlier turns are mistakes, so loss_on="
                f"{self.loss_on.value!r} cannot be computed; give the run's own folder, or an export with a flag per message"
            )
        return [self._message(turn, f"{conversation.where}: message {at + 1}") for at, turn in enumerate(turns[:count])]

    def _message(self, turn: Turn, where: str) -> ChatMessage:
        called = [call.message(text=True)["function"]["arguments"] for call in turn.calls]
        try:
            "".join((turn.thinking, turn.content, *called)).encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"{where} holds half a character ({error.object[error.start]!r}, a lone surrogate), which no tokenizer takes; fix it or "
                "leave this conversation out"
            ) from error
        if turn.role == "tool":
            return {"role": turn.role, "content": turn.content, "tool_call_id": turn.answers}
        calls = [call.message(text=self._template.wants_text) for call in turn.calls]
        fields = {"content": turn.content}
        if turn.role == "assistant":
            fields = self._in_content(turn, where) if self.thought_as == "content" else self._in_field(turn)
        return {"role": turn.role, **fields, **({"tool_calls": calls} if calls else {})}

    def _in_content(self, turn: Turn, where: str) -> dict[str, str]:
        content = f"<think>\n{turn.thinking}\n</think>\n\n{turn.content}" if turn.thinking else turn.content
        mark, why = thinking_in(content).form, ""
        if mark is not None and any(self._controls.forged(mark, 0, len(mark), assistant=True)):
            why = "is a special token to the tokenizer, and special tokens in a message stay text"
        elif mark is not None and self._template.thought and mark not in self._template.source.casefold():
            why = "is nothing to the chat template, which writes thoughts otherwise"
        if why:
            raise TemplateError(
                f"{where} holds thoughts, and what ends them, {mark!r}, {why}. Give --thought-as reasoning where the template reads "
                "thoughts apart, else --thought-as omit"
            )
        return {"content": content}

    def _in_field(self, turn: Turn) -> dict[str, str]:
        thought, rest = _split(turn)
        if self.thought_as == "omit" or self._template.thought is None:
            return {"content": "" if turn.calls else split_thought(rest)[1]}
        return {**({self._template.thought: thought} if thought else {}), "content": rest}


def _split(turn: Turn) -> tuple[str, str]:
    """Split an assistant turn into its thought and the rest of its message.

    The thought is the record's thinking, else thinking between marks, else the text before the action or with a call.
    """
    if turn.thinking:
        return turn.thinking, turn.content
    thinking, rest, form = thinking_in(turn.content)
    if form is not None:
        return thinking, rest
    return (turn.content, "") if turn.calls else split_thought(turn.content)
