"""Text to token ids, and for each token the characters that it stands for.

What only reads like a control token is kept text: it is encoded apart, by the tokenizer's model without its added
tokens. The ids are those of transformers' `apply_chat_template(..., tokenize=True)`, and with such text those of its
`sanitize_control_tokens=True`.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinesynth.train.render.controls import Controls, Forged
from refinesynth.train.render.errors import TemplateError

_NEWLINE = "\n"


class Encoded(NamedTuple):
    """Tokens of one text."""

    ids: NDArray[np.int32]
    """(tokens,)"""
    starts: NDArray[np.int32]
    """(tokens,) First character of each. Blanks may belong to no token, and a character to several (its bytes)."""
    stops: NDArray[np.int32]
    """(tokens,) One past its last character."""

    def at(self, character: int) -> int:
        """The first token that holds this character or what follows it; `len(ids)` if there is none."""
        return int(np.searchsorted(self.stops, character, side="right"))

    def behind(self, character: int) -> int:
        """The first token that begins at this character or later; `len(ids)` if there is none."""
        return int(np.searchsorted(self.starts, character, side="left"))


class Encoder:
    """One tokenizer."""

    def __init__(self, tokenizer: Any, controls: Controls) -> None:
        self._tokenizer = tokenizer
        self._controls = controls
        self._fast = bool(getattr(tokenizer, "is_fast", False))

    def encode(self, texts: Sequence[str], cuts: Sequence[Sequence[int]]) -> list[Encoded]:
        """Each text whole. Quicker with many: a fast tokenizer uses all processor cores for them.

        `cuts` are the characters of each text, in order, at which tokens will be asked for. A slow tokenizer, which
        gives no positions, is asked for the text up to there, and these tokens must be the first ones of the whole.

        Raises:
            TemplateError: The tokenizer gives no positions, and they cannot be found by comparing either.
        """
        if not texts:
            return []
        if not self._fast:
            return [self._compared(text, where) for text, where in zip(texts, cuts, strict=True)]
        made = self._tokenizer(
            list(texts),
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            return_offsets_mapping=True,
            padding=False,
            truncation=False,
            verbose=False,
        )
        return [_encoded(ids, offsets) for ids, offsets in zip(made["input_ids"], made["offset_mapping"], strict=True)]

    def encode_forged(self, text: str, cuts: Sequence[int], forged: Sequence[Forged]) -> Encoded:
        """A text in which some places, in order, only read like control tokens; `cuts` as for `encode`.

        Raises:
            TemplateError: The tokenizer makes control tokens of them all the same.
        """
        newline: list[int] = self._tokenizer.encode(_NEWLINE, add_special_tokens=False)
        parts: list[Encoded] = []
        at = 0
        for place in (*forged, Forged(len(text), len(text))):
            if place.start > at:
                parts.append(self._part(text[at : place.start], at, cuts, newline))
            if place.stop > place.start:
                parts.append(self._as_text(text, place, newline))
            at = place.stop
        return Encoded(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _part(self, text: str, at: int, cuts: Sequence[int], newline: Sequence[int]) -> Encoded:
        """A part of a text, `at` characters in. Behind a newline, or a tokenizer would put a blank before it."""
        inside = [cut - at for cut in cuts if at < cut < at + len(text)]
        if at:
            whole = self.encode([_NEWLINE + text], [[1, *(cut + 1 for cut in inside)]])[0]
            count = len(newline)
            if whole.ids[:count].tolist() == list(newline):
                return Encoded(whole.ids[count:], *(np.maximum(part[count:] + (at - 1), at) for part in whole[1:]))
        whole = self.encode([text], [inside])[0]
        return Encoded(whole.ids, whole.starts + at, whole.stops + at)

    def _as_text(self, text: str, place: Forged, newline: Sequence[int]) -> Encoded:
        written = text[place.start : place.stop]
        ids = self._plain(_NEWLINE + written)
        ids = ids[len(newline) :] if ids[: len(newline)] == list(newline) else self._plain(written)
        if self._controls.kinds(np.array(ids, np.int32)).any():
            raise TemplateError(
                f"a message holds the text {written!r}, and the tokenizer always makes a control token of it; "
                "leave this conversation out"
            )
        # Which of its characters a token stands for does not matter: all are inside one message.
        return Encoded(
            np.array(ids, np.int32), np.full(len(ids), place.start, np.int32), np.full(len(ids), place.stop, np.int32)
        )

    def _plain(self, text: str) -> list[int]:
        """`text` without any added token."""
        if not self._fast:
            return list(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))
        backend = self._tokenizer.backend_tokenizer
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        words = [text]
        if backend.pre_tokenizer is not None:
            words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
        return [token.id for word in words for token in backend.model.tokenize(word)]

    def _compared(self, text: str, cuts: Sequence[int]) -> Encoded:
        """Positions from a tokenizer that gives none: right at `cuts`, and between two of them the same for all tokens.

        Raises:
            TemplateError: The tokens of a beginning are not the first tokens of the whole.
        """
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(text)}), len(text)]
        counts = [0]
        for cut in edges[1:-1]:
            begun: list[int] = self._tokenizer.encode(text[:cut], add_special_tokens=False)
            if ids[: len(begun)] != begun:
                raise TemplateError(
                    "this tokenizer does not say which characters its tokens stand for, and its tokens for the beginning "
                    f"{text[max(0, cut - 40) : cut]!r} are not the first ones of the whole; use its fast form (a tokenizer.json)"
                )
            counts.append(len(begun))
        each = np.diff([*counts, len(ids)])
        return Encoded(
            np.array(ids, np.int32),
            np.repeat(np.array(edges[:-1], np.int32), each),
            np.repeat(np.array(edges[1:], np.int32), each),
        )


def _encoded(ids: Sequence[int], offsets: Sequence[tuple[int, int]]) -> Encoded:
    places = np.fromiter(chain.from_iterable(offsets), np.int32, 2 * len(offsets)).reshape(-1, 2)
    starts, stops = places[:, 0], places[:, 1]
    if np.any(np.diff(starts) < 0) or np.any(np.diff(stops) < 0):
        raise TemplateError(
            "the tokenizer says that its tokens stand for characters in another order than they follow each other in; "
            "labels cannot be placed with it"
        )
    return Encoded(np.array(ids, np.int32), starts, stops)
