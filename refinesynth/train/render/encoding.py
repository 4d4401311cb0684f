"""Text to token ids, and for each token the characters that it stands for.

What only reads like a control token is kept text: it is encoded apart, by the tokenizer's model without its added
tokens. The ids are those of transformers' `apply_chat_template(..., tokenize=True)`, and with such text those of its
`sanitize_control_tokens=True`.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinesynth.train.render.template import TemplateError

_NEVER = "(?!)"


class Forged(NamedTuple):
    """Characters of a message that read like a control token and are to stay text."""

    start: int
    stop: int


class Controls:
    """The added tokens of one tokenizer that mean something to its chat template.

    Special ones always do. Others, such as `<think>`, do if the template itself writes or reads them; a model may write
    those, so they are forged only in what a user or system says. Tokens of blanks alone (as Gemma has) are ordinary
    text.
    """

    def __init__(self, tokenizer: Any, template: str) -> None:
        named: set[str] = {str(text) for text in tokenizer.all_special_tokens}
        added: list[tuple[int, str, bool]] = [
            (int(number), str(token.content), bool(token.special) or str(token.content) in named)
            for number, token in tokenizer.added_tokens_decoder.items()
            if not str(token.content).isspace()
        ]
        special = {text: number for number, text, is_special in added if is_special}
        every = special | {text: number for number, text, _ in added if text in template}
        self._any = _any_of(every)
        self._special = _any_of(special)
        self._kind = np.zeros(max([len(tokenizer) - 1, *every.values()]) + 1, np.int8)
        self._kind[list(every.values())] = 1
        self._kind[list(special.values())] = 2
        unknown: int | None = getattr(tokenizer, "unk_token_id", None)
        eos: int | None = getattr(tokenizer, "eos_token_id", None)
        if unknown is not None and unknown != eos:
            self._kind[unknown] = 0  # What ordinary text becomes where the vocabulary has nothing for it.
        self.eos = str(getattr(tokenizer, "eos_token", None) or "")
        """What generation stops at; empty where the tokenizer names none."""

    def kinds(self, ids: NDArray[np.int32]) -> NDArray[np.int8]:
        """(tokens,) 0: no control token, 1: one that is not special, 2: a special one."""
        return self._kind[ids]

    def first(self, text: str, start: int, stop: int) -> tuple[int, int] | None:
        """Where the first control token in `text[start:stop]` stands; None if there is none."""
        found = self._any.search(text, start, stop)
        return found.span() if found else None

    def end(self, text: str, start: int, stop: int) -> tuple[int, int] | None:
        """The first control token in `text[start:stop]`; with those that follow at once up to the end-of-sequence
        token, if it is one of them, because a model that does not write it does not stop.
        """
        found = self.first(text, start, stop)
        at = found
        while at is not None and text[slice(*at)] != self.eos:
            following = self._any.match(text, at[1], stop)
            at = following.span() if following else None
        return (found[0], at[1]) if found and at else found

    def closing(self, text: str, start: int, stop: int) -> tuple[int, int] | None:
        """The last special token of `text[start:stop]`, if nothing but blanks is behind it."""
        found = [*self._special.finditer(text, start, stop)]
        return found[-1].span() if found and not text[found[-1].end() : stop].strip() else None

    def opening(self, text: str, start: int) -> tuple[int, int] | None:
        """The special token that `text[start:]` begins with, blanks left out."""
        blank = len(text[start:]) - len(text[start:].lstrip())
        found = self._special.match(text, start + blank)
        return found.span() if found else None

    def forged(self, text: str, start: int, stop: int, *, assistant: bool) -> Iterator[Forged]:
        """What in a message, which is `text[start:stop]`, would become a control token."""
        pattern = self._special if assistant else self._any
        return (Forged(*found.span()) for found in pattern.finditer(text, start, stop))


def _any_of(texts: dict[str, int]) -> re.Pattern[str]:
    # Longest first: a token goes before those that it begins with.
    return re.compile("|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True)) or _NEVER)


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
