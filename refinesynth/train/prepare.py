"""Preparation of training examples from conversations, with counts of everything that is cut or left out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import tee
from typing import NamedTuple

from refinesynth.chat import PARALLEL_INSTRUCTIONS
from refinesynth.train.labelled_conversation import Conversation
from refinesynth.train.render.renderer import Renderer
from refinesynth.train.tokens import Label, Rendered, TokenStore


@dataclass(slots=True)
class Counts:
    """Counts of conversations and tokens, complete after rendering. They include everything that is cut or left out."""

    conversations: int = 0
    """Conversations read."""
    records: int = 0
    """Examples kept. An expanded conversation gives several examples."""
    tokens: int = 0
    """Tokens of the kept examples."""
    trained_tokens: int = 0
    """Tokens that give loss."""
    mistake_tokens: int = 0
    """Tokens of mistakes, which give loss only with `loss_on` `all_turns`."""
    truncated: int = 0
    """Examples longer than `max_length` that are cut after the last trained turn that fits."""
    dropped_long: int = 0
    """Examples longer than `max_length` that are left out, since no trained turn fits."""
    dropped_untrained: int = 0
    """Conversations without an example, and examples without a trained token; they are left out."""
    dropped_forged: int = 0
    """Conversations with text that looks like a control token of the chat template; they are left out."""
    cut_turns: int = 0
    """Assistant turns cut off truncated examples."""
    parallel_tasks: int = 0
    """Conversations whose task allows several calls per message."""
    longest: int = 0
    """Tokens of the longest kept example."""
    trained_turns: int = 0
    """Assistant turns of the kept examples that give loss."""
    other_turns: int = 0
    """Assistant turns of the kept examples that are context."""

    def keep(self, example: Rendered) -> None:
        """Count an example."""
        trained = sum(bool(example.labels[span.start] == Label.TRAINED) for span in example.spans)
        self.records += 1
        self.tokens += len(example)
        self.trained_tokens += example.trained
        self.mistake_tokens += example.mistakes
        self.trained_turns += trained
        self.other_turns += len(example.spans) - trained
        self.longest = max(self.longest, len(example))


class Prepared(NamedTuple):
    """Examples for training, with counts."""

    store: TokenStore
    counts: Counts


def prepare(
    conversations: Iterable[Conversation],
    renderer: Renderer,
    max_length: int,
) -> Prepared:
    """Render all conversations, in order, and fit them into `max_length` tokens. Every example has a trained token.

    Raises `InputError` if a conversation cannot be rendered (`Renderer.render`).
    """
    counts = Counts()
    return Prepared(TokenStore(examples(conversations, renderer, max_length, counts)), counts)


def examples(
    conversations: Iterable[Conversation],
    renderer: Renderer,
    max_length: int,
    counts: Counts,
) -> Iterator[Rendered]:
    """Yield the examples that `prepare` keeps; `counts` is complete at the end."""
    # The renderer reads a batch ahead.
    kept, read = tee(conversations)
    for conversation, rendered in zip(kept, renderer.render_many(read), strict=True):
        counts.conversations += 1
        counts.parallel_tasks += any(PARALLEL_INSTRUCTIONS in turn.content for turn in conversation.turns[:2])
        if not rendered:
            is_forged = renderer.forges(conversation)
            counts.dropped_forged += is_forged
            counts.dropped_untrained += not is_forged
        for example in rendered:
            fitted = fit(example, max_length) if example.trained else None
            if fitted is None:
                counts.dropped_long += bool(example.trained)
                counts.dropped_untrained += not example.trained
                continue
            if cut := len(example.spans) - len(fitted.spans):
                counts.truncated += 1
                counts.cut_turns += cut
            counts.keep(fitted)
            yield replace(fitted, source=conversation.source)


def fit(rendered: Rendered, max_length: int) -> Rendered | None:
    """The example, or its longest prefix of at most `max_length` tokens that ends with a trained turn; None without one."""
    if len(rendered) <= max_length:
        return rendered
    ends = [
        span.stop
        for span in rendered.spans
        if span.stop <= max_length and rendered.labels[span.stop - 1] == Label.TRAINED
    ]
    return rendered.first(ends[-1]) if ends else None
