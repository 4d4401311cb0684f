"""Control tokens: what a tokenizer makes of `<|im_end|>` and the like, and where text only looks like one."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
