"""Renderer of conversations as token ids and labels, for any chat template (paper, equation 1).

A conversation is refused if a label is not certain.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinesynth.chat import split_thought, thinking_in
from refinesynth.errors import InputError
from refinesynth.train.labelled_conversation import THOUGHTS, Conversation, LossOn, Turn, TurnLabel, refuse_history
from refinesynth.train.render.encoding import CharRange, ControlTokens, Encoded, Encoder, texts_in
from refinesynth.train.render.message_locator import Located, Locator, message_parts
from refinesynth.train.render.template import ChatMessage, ChatTemplate, RewritesHistoryError, TemplateError, mentions
from refinesynth.train.tokens import Label, Rendered, Span


class LabelTask(NamedTuple):
    """Example with located text, before tokenization."""

    id: str
    conversation: Conversation
    located: Located
    trained: tuple[bool, ...]


class _Prompt(NamedTuple):
    token: int
    """Position of the prompt's last control token."""
    end: str
    """The prompt's text from that token on."""


class Labeller:
    """Maker of labelled examples with one tokenizer."""

    def __init__(self, tokenizer: Any, controls: ControlTokens) -> None:
        self._tokenizer = tokenizer
        self._controls = controls
        self._encoder = Encoder(tokenizer)
        self._bos: int | None = getattr(tokenizer, "bos_token_id", None)

    def label(self, tasks: Sequence[LabelTask]) -> list[Rendered]:
        """Label each task. Raises `TemplateError` if the labels of a task are not certain."""
        encoded = self._encoder.encode([task.located.text for task in tasks])
        prompts = [self._prompts(*each) for each in zip(tasks, encoded, strict=True)]
        # Most prompts share their end: each distinct end is encoded once.
        ends = sorted({prompt.end for turn_prompts in prompts for prompt in turn_prompts.values()})
        encoded_ends = zip(ends, self._encoder.encode(ends), strict=True)
        tokens = {end: encoded_end.ids.tobytes() for end, encoded_end in encoded_ends}
        return [self._label_one(*each, tokens) for each in zip(tasks, encoded, prompts, strict=True)]

    def _label_one(
        self,
        task: LabelTask,
        encoded: Encoded,
        prompts: Mapping[int, _Prompt],
        ends: Mapping[str, bytes],
        /,
    ) -> Rendered:
        """Label one task; `ends` are the token ids of each prompt's end, encoded alone."""
        conversation, located = task.conversation, task.located
        labels = np.full(len(encoded.ids), Label.CONTEXT, np.int8)
        spans: list[Span] = []
        for index, place in located.turns.items():
            turn = conversation.turns[index]
            turn_label = TurnLabel.MISTAKE if turn.mistakes else turn.label or TurnLabel.HISTORY
            start, stop = self._token_range(task, encoded, place)
            self._refuse_textual_end(task, encoded, index, stop)
            spans.append(Span(start, stop, turn_label))
            if task.trained[index]:
                prompt = prompts[index]
                is_same = encoded.ids[prompt.token : start].tobytes() == ends[prompt.end]
                if not is_same:  # the whole prompt may still give the same tokens
                    (alone,) = self._encoder.encode([located.text[: place.start]])
                    is_same = encoded.ids[:start].tobytes() == alone.ids.tobytes()
                if not is_same:
                    raise TemplateError(
                        f"{conversation.location}: the tokenizer makes other tokens of the prompt for message {index + 1} by itself than before "
                        f"what is written there ({located.text[max(0, place.start - 20) : place.start + 10]!r}); give a chat_template whose prompts "
                        "end with a control token, or react"
                    )
                labels[start:stop] = Label.TRAINED
            elif turn_label is TurnLabel.MISTAKE:
                labels[start:stop] = Label.MISTAKE
        self._refuse_two_beginnings(encoded.ids)
        return Rendered(task.id, encoded.ids, labels, tuple(spans))

    def _prompts(self, task: LabelTask, encoded: Encoded) -> dict[int, _Prompt]:
        controls = np.flatnonzero(self._controls.kinds(encoded.ids))
        prompts: dict[int, _Prompt] = {}
        for turn, (stop, _) in task.located.turns.items():
            if task.trained[turn]:
                k = int(np.searchsorted(controls, encoded.index_at(stop)))
                token = int(controls[k - 1]) if k else 0
                since = int(encoded.starts[token]) if k else 0
                prompts[turn] = _Prompt(token, task.located.text[since:stop])
        return prompts

    def _token_range(self, task: LabelTask, encoded: Encoded, place: CharRange) -> tuple[int, int]:
        """The tokens of a turn.

        A token that begins with whitespace before the turn belongs to the turn: many tokenizers join a space with the
        next word. A token outside the turn that includes whitespace at its edge, such as a control token, does not.
        """
        start, stop = encoded.index_at(place.start), encoded.index_after(place.stop)
        text = task.located.text
        while start < stop and _is_outside(
            text[encoded.starts[start] : place.start], text[place.start : encoded.stops[start]]
        ):
            start += 1
        while start < stop and _is_outside(
            text[place.stop : encoded.stops[stop - 1]], text[encoded.starts[stop - 1] : place.stop]
        ):
            stop -= 1
        following = text[place.stop : encoded.stops[stop - 1]] if start < stop else ""
        if start >= stop or following.strip():
            raise TemplateError(
                f"{task.conversation.location}: the tokenizer makes one token of an assistant turn's end and what the chat template writes "
                f"behind it ({following!r}); give a chat_template with a control token there"
            )
        return start, stop

    def _refuse_textual_end(self, task: LabelTask, encoded: Encoded, index: int, stop: int) -> None:
        """Raises: TemplateError: The template's end-of-turn token is no control token of the tokenizer."""
        located = task.located
        places = [place for part, place in zip(located.parts, located.places, strict=True) if part.message == index]
        calls = bool(task.conversation.turns[index].calls)  # Templates may write calls with control tokens.
        first = stop - 1 if calls or not places else encoded.index_at(places[-1].stop)
        if not self._controls.kinds(encoded.ids[first:stop]).any():
            raise TemplateError(
                f"{task.conversation.location}: the tokenizer makes no control token of what ends message {index + 1}, an assistant's "
                f"({self._tokenizer.convert_ids_to_tokens(encoded.ids[first:stop].tolist())}), so a model would not learn to stop; "
                "its normalizer changes the token's text. Save the tokenizer with `normalized=False` for that token"
            )

    def _refuse_two_beginnings(self, ids: NDArray[np.int32]) -> None:
        """Raises: TemplateError: The text has two BOS."""
        if self._bos is not None and len(ids) > 1 and ids[0] == ids[1] == self._bos:
            raise TemplateError(
                "the chat template begins with two beginning-of-sequence tokens; take one out of it and give it as chat_template"
            )


def _is_outside(outside: str, inside: str) -> bool:
    """Return True if a token across a turn's edge has only whitespace inside the turn."""
    return bool(outside.strip()) and not inside.strip()


VARIABLES: Final = ("enable_thinking", "thinking", "preserve_thinking", "truncate_history_thinking", "clear_thinking")
"""Template variables that control where thinking is written."""

OnRewrite = Literal["refuse", "expand"]
ThoughtAs = Literal["content", "reasoning", "omit"]

_BATCH_SIZE = 64
"""Conversations per tokenizer call; a call uses all processor cores."""


class Renderer:
    """Renderer of training examples for one tokenizer and template.

    The tokens before each trained turn equal `apply_chat_template(earlier turns, add_generation_prompt=True)`.
    Otherwise rendering raises an error that names settings to try. For a template without generation prompts, the
    tokens up to the end of the previous message are equal; the header is context, and the same for all turns. All
    tokens that a model would write are trained, including each end-of-turn token. Text after the last turn is cut off.

    Positions come from comparing renderings (`message_locator.py`); generation markers are not used.
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
        old: str | Mapping[str, str] | None = getattr(tokenizer, "chat_template", None)
        if self._template.source != old:
            update = {**old, "default": self._template.source} if isinstance(old, Mapping) else self._template.source
            tokenizer.chat_template = update
        if thought_as == "reasoning" and self._template.thought is None:
            raise TemplateError(
                f"the chat template reads no thought of a message ({', '.join(THOUGHTS)}); leave thought_as at 'content'"
            )
        self._controls = ControlTokens(tokenizer, self._template.source)
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
        messages = [self._message(turn, f"message {index + 1}") for index, turn in enumerate(turns)]
        return self._template.write(messages, prompt=True, tools=tools)

    def render(self, conversation: Conversation) -> list[Rendered]:
        """Render one conversation: one example, several if it is expanded, or none without an assistant turn, and none if
        it `forges` control tokens.

        Raises:
            RewritesHistoryError: The template rewrites earlier turns and `on_rewrite` is `refuse`, or a trained turn.
            TemplateError: The labels are not certain.
            InputError: A turn contains half a character, or `loss_on` needs labels that the record does not have.
        """
        return next(self.render_many([conversation]))

    def forges(self, conversation: Conversation) -> bool:
        """Return True if text of a message, call or function looks like a control token; no example is made of it."""
        messages = self._messages(conversation)
        parts = ((part.text, part.role == "assistant") for part in message_parts(messages))
        calls = texts_in([list(conversation.tools), *(message.get("tool_calls") for message in messages)])
        texts = chain(parts, ((text, False) for text in calls))
        return any(self._controls.forged(text, assistant=assistant) for text, assistant in texts)

    def render_many(self, conversations: Iterable[Conversation]) -> Iterator[list[Rendered]]:
        """Render conversations in batches, in order; several times faster than `render` on several cores."""
        source = iter(conversations)
        while batch := list(islice(source, _BATCH_SIZE)):
            task_lists = [self._label_tasks(conversation) for conversation in batch]
            labelled = iter(self._labeller.label([task for tasks in task_lists for task in tasks]))
            for tasks in task_lists:
                yield [next(labelled) for _ in tasks]

    def _label_tasks(self, conversation: Conversation) -> list[LabelTask]:
        messages = self._messages(conversation)
        if not messages or self.forges(conversation):
            return []
        trained = conversation.trained(self.loss_on)
        try:
            located = self._make_locator(conversation).locate(messages)
            return [LabelTask(conversation.id, conversation, located, trained)]
        except RewritesHistoryError as error:
            return self._expand(conversation, error)
        except TemplateError as error:
            raise TemplateError(f"{conversation.location}: {error}") from error

    def _make_locator(self, conversation: Conversation) -> Locator:
        calls = bool(conversation.tools) or any(turn.calls for turn in conversation.turns)
        return Locator(self._template, self._controls, conversation.tools, calls)

    def _expand(self, conversation: Conversation, error: RewritesHistoryError) -> list[LabelTask]:
        """Make an example for each trained turn, which ends with that turn and trains on it alone.

        Raises `RewritesHistoryError` if a turn before the last is trained and `on_rewrite` is `refuse`.
        """
        messages = self._messages(conversation)
        targets = [index for index, train in enumerate(conversation.trained(self.loss_on)) if train]
        last_index = max(index for index, turn in enumerate(conversation.turns) if turn.role == "assistant")
        if self.on_rewrite == "refuse" and any(index != last_index for index in targets):
            raise self._rewrite_error(conversation, error) from error
        try:
            locator = self._make_locator(conversation)
            return [
                LabelTask(
                    f"{conversation.id}@{index + 1}" if len(targets) > 1 else conversation.id,
                    conversation,
                    locator.locate_last(messages[: index + 1]),
                    (*(False,) * index, True),
                )
                for index in targets
            ]
        except RewritesHistoryError as inner:
            raise self._rewrite_error(conversation, inner) from inner
        except TemplateError as inner:
            raise TemplateError(f"{conversation.location}: {inner}") from inner

    def _rewrite_error(self, conversation: Conversation, error: RewritesHistoryError) -> RewritesHistoryError:
        options = [
            f"--set chat_template_kwargs.{name}=true|false" for name in VARIABLES if mentions(self._template.raw, name)
        ]
        options += ["--thought-as reasoning"] if self._template.thought and self.thought_as == "content" else []
        options += ["--thought-as omit"] if self.thought_as != "omit" else []
        if self.on_rewrite == "refuse":
            options.append(
                "--set on_rewrite=expand (one example of each trained turn: exact, with several times the tokens)"
            )
        model = getattr(self.tokenizer, "name_or_path", "")
        return RewritesHistoryError(
            f"{conversation.location}: with the chat template{f' of {model}' if model else ''} as it is set, a model would be trained "
            f"behind other text than it is given when it plays: {error}. Try {', '.join([*options, '--chat-template FILE'])}, or several "
            "of them; docs/training.md lists what each family of templates needs"
        )

    def _messages(self, conversation: Conversation) -> list[ChatMessage]:
        """The turns up to the last assistant turn, as messages without labels."""
        turns = conversation.turns
        count = max((index + 1 for index, turn in enumerate(turns) if turn.role == "assistant"), default=0)
        if self.loss_on is not LossOn.REFINEMENT:
            refuse_history(conversation, f"loss_on={self.loss_on.value!r} cannot be computed")
        return [self._message(t, f"{conversation.location}: message {k + 1}") for k, t in enumerate(turns[:count])]

    def _message(self, turn: Turn, location: str) -> ChatMessage:
        arguments = [call.message(text=True)["function"]["arguments"] for call in turn.calls]
        try:
            "".join((turn.thinking, turn.content, *arguments)).encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"{location} holds half a character ({error.object[error.start]!r}, a lone surrogate), which no tokenizer takes; fix it or "
                "leave this conversation out"
            ) from error
        if turn.role == "tool":
            return {"role": turn.role, "content": turn.content, "tool_call_id": turn.call_id}
        calls = [call.message(text=self._template.arguments_as_text) for call in turn.calls]
        fields = {"content": turn.content}
        if turn.role == "assistant":
            fields = self._joined_fields(turn, location) if self.thought_as == "content" else self._split_fields(turn)
        return {"role": turn.role, **fields, **({"tool_calls": calls} if calls else {})}

    def _joined_fields(self, turn: Turn, location: str) -> dict[str, str]:
        content = f"<think>\n{turn.thinking}\n</think>\n\n{turn.content}" if turn.thinking else turn.content
        mark, problem = thinking_in(content).form, ""
        if mark is not None and self._controls.forged(mark, assistant=True):
            problem = "is a special token to the tokenizer, and special tokens in a message stay text"
        elif mark is not None and self._template.thought and mark not in self._template.source.casefold():
            problem = "is nothing to the chat template, which writes thoughts otherwise"
        if problem:
            raise TemplateError(
                f"{location} holds thoughts, and what ends them, {mark!r}, {problem}. Give --thought-as reasoning where the template reads "
                "thoughts apart, else --thought-as omit"
            )
        return {"content": content}

    def _split_fields(self, turn: Turn) -> dict[str, str]:
        thought, rest = _split_turn(turn)
        if self.thought_as == "omit" or self._template.thought is None:
            return {"content": "" if turn.calls else split_thought(rest)[1]}
        return {**({self._template.thought: thought} if thought else {}), "content": rest}


def _split_turn(turn: Turn) -> tuple[str, str]:
    """Split an assistant turn into its thought and the rest of its message.

    The thought is the record's thinking, else thinking between marks, else the text before the action or with a call.
    """
    if turn.thinking:
        return turn.thinking, turn.content
    thinking, rest, form = thinking_in(turn.content)
    if form is not None:
        return thinking, rest
    return (turn.content, "") if turn.calls else split_thought(turn.content)
