"""Preparation of training examples from conversations, with counts of everything that is cut or left out."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import tee

import numpy as np

from refinesynth.chat import PARALLEL_INSTRUCTIONS
from refinesynth.train.labelled_conversation import Conversation
from refinesynth.train.render.renderer import Renderer
from refinesynth.train.tokens import Label, Rendered, TokenStore

_MAX_NAMED_IDS = 10
"""Number of ids in `Counts.named`, per count."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of conversations and tokens. They include everything that is cut or left out."""

    conversations: int = 0
    """Conversations read."""
    records: int = 0
    """Examples kept. An expanded conversation gives several examples."""
    tokens: int = 0
    """Tokens of the kept examples."""
    trained_tokens: int = 0
    """Tokens that give loss."""
    mistake_tokens: int = 0
    """Tokens of mistakes, which give no loss."""
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
    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """First ids of `truncated`, `dropped_long`, `dropped_untrained` and `dropped_forged`, if not empty."""

    @property
    def trained_share(self) -> float:
        """Trained tokens of all tokens, 0 to 1."""
        return self.trained_tokens / self.tokens if self.tokens else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
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
    counter = DataCounter()
    store = TokenStore(examples(conversations, renderer, max_length, counter))
    return Prepared(store, counter.counts())


class DataCounter:
    """Running counts during rendering."""

    def __init__(self) -> None:
        self.numbers = Counter[str]()
        """Counts by field of `Counts`; also `trained_turns` and `other_turns` of the kept examples."""
        self.longest = 0
        """Tokens of the longest kept example."""
        self._named: dict[str, list[str]] = {}

    def read(self, conversation: Conversation) -> None:
        self.numbers["conversations"] += 1
        self.numbers["parallel_tasks"] += any(PARALLEL_INSTRUCTIONS in turn.content for turn in conversation.turns[:2])

    def count_named(self, kind: str, name: str) -> None:
        self.numbers[kind] += 1
        if self.numbers[kind] <= _MAX_NAMED_IDS:
            self._named.setdefault(kind, []).append(name)

    def keep(self, example: Rendered) -> None:
        self.longest = max(self.longest, len(example))
        trained = sum(bool(example.labels[span.start] == Label.TRAINED) for span in example.spans)
        self.numbers.update(
            records=1,
            tokens=len(example),
            trained_tokens=example.trained,
            mistake_tokens=int(np.count_nonzero(example.labels == Label.MISTAKE)),
            trained_turns=trained,
            other_turns=len(example.spans) - trained,
        )

    def counts(self) -> Counts:
        named = {kind: tuple(names) for kind, names in self._named.items()}
        numbers = {item.name: self.numbers[item.name] for item in fields(Counts) if item.name != "named"}
        return Counts(**numbers, named=named)


def examples(
    conversations: Iterable[Conversation],
    renderer: Renderer,
    max_length: int,
    counter: DataCounter,
) -> Iterator[Rendered]:
    """Yield the examples that `prepare` keeps; `counter` is complete at the end."""
    # The renderer reads a batch ahead.
    kept, read = tee(conversations)
    for conversation, rendered in zip(kept, renderer.render_many(read), strict=True):
        counter.read(conversation)
        if not rendered:
            kind = "dropped_forged" if renderer.forges(conversation) else "dropped_untrained"
            counter.count_named(kind, conversation.id)
        for example in rendered:
            fitted = fit(example, max_length) if example.trained else None
            if fitted is None:
                counter.count_named("dropped_long" if example.trained else "dropped_untrained", example.id)
                continue
            if cut := len(example.spans) - len(fitted.spans):
                counter.count_named("truncated", example.id)
                counter.numbers["cut_turns"] += cut
            counter.keep(fitted)
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
