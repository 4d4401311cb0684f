"""Encoder of text as token ids, with the character range of each token.

A conversation whose text looks like a control token is left out (`Renderer.forges`): no text becomes one.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from refinesynth.train.render.template import TemplateError


class CharRange(NamedTuple):
    """Characters `start:stop`."""

    start: int
    stop: int


class ControlTokens:
    """Added tokens of a tokenizer that are control tokens of its chat template.

    All special tokens are. Other added tokens, such as `<think>`, are if the template's source contains them. A model
    may write the latter, so they count as forged only outside assistant messages. Whitespace tokens (Gemma) are text.
    """

    def __init__(self, tokenizer: Any, template: str) -> None:
        special_texts: set[str] = {str(text) for text in tokenizer.all_special_tokens}
        added: list[tuple[int, str, bool]] = [
            (int(number), str(token.content), bool(token.special) or str(token.content) in special_texts)
            for number, token in tokenizer.added_tokens_decoder.items()
            if not str(token.content).isspace()
        ]
        special = {text: number for number, text, is_special in added if is_special}
        controls = special | {text: number for number, text, _ in added if text in template}
        self._any_pattern = _compile_any(controls)
        self._special_pattern = _compile_any(special)
        self._kind_by_id = np.zeros(max([len(tokenizer) - 1, *controls.values()]) + 1, np.int8)
        self._kind_by_id[list(controls.values())] = 1
        self._kind_by_id[list(special.values())] = 2
        unknown: int | None = getattr(tokenizer, "unk_token_id", None)
        eos: int | None = getattr(tokenizer, "eos_token_id", None)
        if unknown is not None and unknown != eos:
            self._kind_by_id[unknown] = 0  # Ordinary text outside the vocabulary gets this token.
        self._normalizer: Any = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
        self.eos = str(getattr(tokenizer, "eos_token", None) or "")
        """End-of-sequence token; empty if the tokenizer has none."""

    def kinds(self, ids: NDArray[np.int32]) -> NDArray[np.int8]:
        """(tokens,) 0: no control token, 1: a control token that is not special, 2: a special token."""
        return self._kind_by_id[ids]

    def first(self, text: str, start: int, stop: int) -> CharRange | None:
        """The first control token in `text[start:stop]`."""
        match = self._any_pattern.search(text, start, stop)
        return CharRange(*match.span()) if match else None

    def end(self, text: str, start: int, stop: int) -> CharRange | None:
        """The first control token in `text[start:stop]`, extended to the end-of-sequence token.

        The range is extended only if control tokens alone lie between. A model needs that token in training to stop.
        """
        first = last = self.first(text, start, stop)
        while last is not None and text[slice(*last)] != self.eos:
            following = self._any_pattern.match(text, last.stop, stop)
            last = CharRange(*following.span()) if following else None
        return CharRange(first.start, last.stop) if first and last else first

    def closing(self, text: str, start: int, stop: int) -> CharRange | None:
        """The last special token of `text[start:stop]`, if only whitespace follows the token."""
        matches = [*self._special_pattern.finditer(text, start, stop)]
        return CharRange(*matches[-1].span()) if matches and not text[matches[-1].end() : stop].strip() else None

    def opening(self, text: str, start: int) -> CharRange | None:
        """The special token at the beginning of `text[start:]`, leading whitespace skipped."""
        match = self._special_pattern.match(text, start + len(text[start:]) - len(text[start:].lstrip()))
        return CharRange(*match.span()) if match else None

    def forged(self, text: str, *, assistant: bool) -> bool:
        """Return True if the text of a message would be encoded as control tokens, also after normalization."""
        pattern = self._special_pattern if assistant else self._any_pattern
        normalized = text if self._normalizer is None else self._normalizer.normalize_str(text)
        return any(pattern.search(each) for each in (text, normalized))


def _compile_any(texts: dict[str, int]) -> re.Pattern[str]:
    # Longest first, because a token may be a prefix of another one.
    return re.compile("|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True)) or "(?!)")


class Encoded(NamedTuple):
    """Tokens of one text."""

    ids: NDArray[np.int32]
    """(tokens,)"""
    starts: NDArray[np.int32]
    """(tokens,) First character. Some whitespace has no token; one character may have several tokens (bytes)."""
    stops: NDArray[np.int32]
    """(tokens,) One past its last character."""

    def index_at(self, character: int) -> int:
        """The first token that ends after this character; `len(ids)` if there is none."""
        return int(np.searchsorted(self.stops, character, side="right"))

    def index_after(self, character: int) -> int:
        """The first token that begins at or after this character; `len(ids)` if there is none."""
        return int(np.searchsorted(self.starts, character, side="left"))


class Encoder:
    """Encoder with one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        """Take a fast tokenizer. Raises `TemplateError` for a slow tokenizer, which returns no offsets."""
        if not getattr(tokenizer, "is_fast", False):
            raise TemplateError(
                f"the tokenizer {getattr(tokenizer, 'name_or_path', '') or type(tokenizer).__name__} does not say which characters its tokens "
                "stand for. Save its fast form (a tokenizer.json) beside the model, and give that folder as --tokenizer"
            )
        self._tokenizer = tokenizer

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Encode whole texts; the tokenizer spreads a batch of texts over all processor cores."""
        if not texts:
            return []
        out = self._tokenizer(
            list(texts),
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            return_offsets_mapping=True,
            padding=False,
            truncation=False,
            verbose=False,
        )
        return [_encoded(ids, offsets) for ids, offsets in zip(out["input_ids"], out["offset_mapping"], strict=True)]


def _encoded(ids: Sequence[int], offsets: Sequence[tuple[int, int]]) -> Encoded:
    pairs = np.fromiter(chain.from_iterable(offsets), np.int32, 2 * len(offsets)).reshape(-1, 2)
    starts, stops = pairs[:, 0], pairs[:, 1]
    if np.any(np.diff(starts) < 0) or np.any(np.diff(stops) < 0):
        raise TemplateError(
            "the tokenizer's tokens are in another order than their characters; labels cannot be placed"
        )
    return Encoded(np.array(ids, np.int32), starts, stops)


def texts_in(value: object) -> Iterator[str]:
    """All texts of a JSON value, also keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            yield key
            yield from texts_in(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from texts_in(item)
