"""How much of each source is taken, and what sources are called.

A weight is the share of a source's own conversations that is taken: `runs/b:0.3` is 30 % of what is in `runs/b`, with
any other sources. Above 1 they are repeated: `runs/b:2.5` is every conversation twice, and half of them a third time.
It is not the share of the mix. Trainers put data together one after the other by default, and a share of the source
goes on from there: it needs no rule for a source that runs out, and what is taken of one does not change when another
is added.

Which ones are taken depends on the seed and on what they say: not on their order, on where the file lies, or on the
other sources. So what a smaller weight takes is part of what a larger one takes.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, Final, cast

from refinesynth.errors import InputError
from refinesynth.train.conversation import Conversation

type_of_source = str | Path | Iterable[object]
_MOST: Final = 1000
"""The largest weight: more passes are most likely a mistake."""


@dataclass(slots=True)
class Taken:
    """What became of one source; whole once all is read."""

    name: str
    """Its label: the end of its path that no other source has."""
    weight: float
    found: int = 0
    """Conversations in it."""
    taken: int = 0
    """Conversations that the weight takes of them, repeated ones counted each time."""
    unmarked: int = 0
    """Of those found, the ones that do not say which turns are to be learned."""


def weighed(source: Any) -> tuple[type_of_source, float]:
    """A source without its weight, and the weight: of text `SOURCE:WEIGHT`, of a pair `(source, weight)`; 1 where none
    is given.

    What is there by its whole name is a path, even if that ends as a weight would.

    Raises:
        InputError: The weight is no number above 0.
    """
    if isinstance(source, tuple):
        pair = cast("tuple[Any, ...]", source)
        if len(pair) == 2 and isinstance(pair[1], int | float):  # noqa: PLR2004 - a source and its weight
            return pair[0], _sound(pair[1], f"source {pair[0]!r}" if isinstance(pair[0], str | Path) else "a source")
        return pair, 1.0
    if not isinstance(source, str) or ":" not in source or Path(source).exists():
        return source, 1.0
    name, _, text = source.rpartition(":")
    if "/" in text or "\\" in text:
        return source, 1.0
    try:
        weight = float(text)
    except ValueError:
        raise InputError(
            f"there is no file or folder {source!r}, and {text!r} is no weight for {name!r}; write a number above 0, as in "
            "runs/b:0.3 for 30 % of its conversations"
        ) from None
    return name, _sound(weight, repr(source))


def _sound(weight: float, where: str) -> float:
    if not (math.isfinite(weight) and 0 < weight <= _MOST):
        raise InputError(
            f"{where} has the weight {weight:g}; expected a share of its conversations (0.3: 30 %) or a number of passes over them (2), "
            f"above 0 and up to {_MOST:,}. Leave a source out instead of giving it 0"
        )
    return float(weight)


def labels(sources: Sequence[Any]) -> list[str]:
    """A name for each source, all distinct: as much of the end of its path as distinguishes it from the others."""
    parts = [
        PurePath(source).parts if isinstance(source, str | Path) else (f"source {number}",)
        for number, source in enumerate(sources, start=1)
    ]
    found = [PurePath(*part[len(part) - _telling(part, parts) :]).as_posix() for part in parts]
    before = Counter[str]()
    for at, name in enumerate(found):
        before[name] += 1
        if before[name] > 1:
            found[at] = f"{name} ({before[name]})"
    return found


def _telling(part: tuple[str, ...], parts: Sequence[tuple[str, ...]]) -> int:
    """How many parts from the end on distinguish a path from all others that are not the same."""
    others = [other for other in parts if other != part]
    return next((n for n in range(1, len(part)) if all(other[-n:] != part[-n:] for other in others)), len(part))


def take_share(conversations: Sequence[Conversation], weight: float, seed: int) -> list[Conversation]:
    """What a weight takes of a source, in the source's order, pass by pass; one at least, where there is one."""
    if not conversations:
        return []
    passes, rest = divmod(max(1, round(weight * len(conversations))), len(conversations))
    keys = _keys(conversations, seed)
    last = set(sorted(range(len(keys)), key=keys.__getitem__)[:rest])
    whole = [replace(one, again=number) for number in range(passes) for one in conversations]
    return [*whole, *(replace(one, again=passes) for at, one in enumerate(conversations) if at in last)]


def _keys(conversations: Iterable[Conversation], seed: int) -> list[bytes]:
    """Lots: of the seed and the text; of conversations that say the same, also of how many of them came before."""
    same = Counter[bytes]()
    keys: list[bytes] = []
    for one in conversations:
        # Without the thinking where there is none, as before there was a place for it: lots stay what they were.
        said = [tuple(turn) if turn.thinking else tuple(turn)[:-1] for turn in one.turns]
        text = hashlib.sha256(repr(said).encode()).digest()
        keys.append(hashlib.sha256(b"%d:%d:%b" % (seed, same[text], text)).digest())
        same[text] += 1
    return keys
