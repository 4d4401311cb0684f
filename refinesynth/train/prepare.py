"""Conversations to training examples, with an account of everything that is cut or left out."""

import hashlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from refinesynth.train.conversation import Conversation
from refinesynth.train.render.renderer import Renderer
from refinesynth.train.tokens import Label, Rendered, TokenStore

_NAMED = 10
"""Ids that are kept of each kind that is cut or left out."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the conversations. Nothing is cut or left out that is not counted here."""

    conversations: int = 0
    """Read."""
    records: int = 0
    """Examples made of them and kept: as many, unless some were left out, or expanded for a template that rewrites
    history."""
    tokens: int = 0
    """In the kept examples."""
    trained_tokens: int = 0
    """Of these, tokens that give loss."""
    mistake_tokens: int = 0
    """Of these, tokens of mistakes that are kept out of the loss."""
    truncated: int = 0
    """Longer than `max_length`, and cut behind the last trained turn that fits."""
    dropped_long: int = 0
    """Longer than `max_length`, and left out: by choice, or because not even the first trained turn fits."""
    dropped_untrained: int = 0
    """Without a trained token, and left out."""
    cut_turns: int = 0
    """Assistant turns that were cut off the truncated ones."""
    repeated: int = 0
    """Conversations that say the same as an earlier one, as where a run is given twice; kept, so they count double. Not
    those that a weight above 1 repeats."""
    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Ids of the first few, by `truncated`, `dropped_long`, `dropped_untrained` and `repeated`; a kind without any has
    no entry."""

    @property
    def trained_share(self) -> float:
        """Trained tokens of all tokens, 0 to 1."""
        return self.trained_tokens / self.tokens if self.tokens else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Examples ready to be trained on."""

    store: TokenStore
    counts: Counts


def prepare(
    conversations: Iterable[Conversation],
    renderer: Renderer,
    max_length: int,
    over_length: Literal["truncate", "drop"] = "truncate",
) -> Prepared:
    """Render all conversations, in order, and fit them into `max_length` tokens.

    An iterator is consumed some dozens at a time. Every example that is kept has at least one trained token.

    Raises:
        InputError: A conversation cannot be rendered; see `Renderer.render`.
    """
    account = RunningCounts()
    store = TokenStore.of(examples(conversations, renderer, max_length, over_length, account))
    return Prepared(store, account.counts)


@dataclass(slots=True)
class RunningCounts:
    """Kept while rendering goes on."""

    conversations: int = 0
    records: int = 0
    tokens: Counter[Label] = field(default_factory=Counter[Label])
    """Of the kept examples, by what they are to the loss."""
    turns: Counter[bool] = field(default_factory=Counter[bool])
    """Assistant turns of the kept examples, by whether they are trained."""
    longest: int = 0
    """Tokens of the longest kept example."""
    cut_turns: int = 0
    noted: Counter[str] = field(default_factory=Counter[str])
    named: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    seen: set[bytes] = field(default_factory=set[bytes])
    """Digests of the conversations so far."""

    def read(self, conversation: Conversation) -> None:
        if conversation.again:
            return
        text = repr([(turn.role, turn.thinking, turn.content, turn.calls) for turn in conversation.turns])
        digest = hashlib.sha256(text.encode()).digest()
        if digest in self.seen:
            self.note("repeated", conversation.id)
        self.seen.add(digest)

    def note(self, kind: str, name: str) -> None:
        self.noted[kind] += 1
        if self.noted[kind] <= _NAMED:
            self.named.setdefault(kind, []).append(name)

    def keep(self, example: Rendered) -> None:
        self.records += 1
        self.longest = max(self.longest, len(example))
        for label in Label:
            self.tokens[label] += int(np.count_nonzero(example.labels == label))
        for span in example.spans:
            self.turns[bool(example.labels[span.start] == Label.TRAINED)] += 1

    @property
    def counts(self) -> Counts:
        """Of all that came so far."""
        return Counts(
            conversations=self.conversations,
            records=self.records,
            tokens=self.tokens.total(),
            trained_tokens=self.tokens[Label.TRAINED],
            mistake_tokens=self.tokens[Label.MISTAKE],
            truncated=self.noted["truncated"],
            dropped_long=self.noted["dropped_long"],
            dropped_untrained=self.noted["dropped_untrained"],
            cut_turns=self.cut_turns,
            repeated=self.noted["repeated"],
            named={kind: tuple(names) for kind, names in self.named.items()},
        )


def examples(
    conversations: Iterable[Conversation],
    renderer: Renderer,
    max_length: int,
    over_length: Literal["truncate", "drop"],
    account: RunningCounts,
) -> Iterator[Rendered]:
    """What `prepare` keeps, one example after the other; `account` is whole at the end."""
    ahead: deque[tuple[str, str]] = deque()  # Ids and sources of what the renderer has read and not given back.

    def noted() -> Iterator[Conversation]:
        for conversation in conversations:
            ahead.append((conversation.id, conversation.source))
            account.read(conversation)
            yield conversation

    for made in renderer.render_many(noted()):
        account.conversations += 1
        name, source = ahead.popleft()
        if not made:
            account.note("dropped_untrained", name)
        for example in made:
            fitted = _fitted(example, max_length, over_length, account)
            if fitted is not None:
                account.keep(fitted)
                yield replace(fitted, source=source)


def fit(rendered: Rendered, max_length: int, over_length: Literal["truncate", "drop"]) -> Rendered | None:
    """The example, or its longest beginning of at most `max_length` tokens that ends with a trained turn.

    A turn is never cut through: its end-of-turn token is what it is cut behind. None where `over_length` is `drop`, or
    where not even the first trained turn fits in.
    """
    if len(rendered) <= max_length:
        return rendered
    if over_length == "drop":
        # The template may write something behind the last turn, a newline often; to leave that out loses nothing.
        last = rendered.spans[-1].stop if rendered.spans else 0
        return rendered.first(last) if 0 < last <= max_length else None
    ends = [
        span.stop
        for span in rendered.spans
        if span.stop <= max_length and rendered.labels[span.stop - 1] == Label.TRAINED
    ]
    return rendered.first(ends[-1]) if ends else None


def _fitted(
    example: Rendered, max_length: int, over_length: Literal["truncate", "drop"], account: RunningCounts
) -> Rendered | None:
    fitted = fit(example, max_length, over_length)
    if not example.trained:
        account.note("dropped_untrained", example.id)
        return None
    if fitted is None:
        account.note("dropped_long", example.id)
        return None
    cut = len(example.spans) - len(fitted.spans)
    if cut:
        account.note("truncated", example.id)
        account.cut_turns += cut
    return fitted
