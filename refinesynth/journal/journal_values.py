"""Values of a journal: paid completions, ends of episodes, and sums over the run."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, TypeAlias

from pydantic import Field

ESTIMATED = " (tokens estimated)"
"""Suffix of a model's name where the server did not report the tokens of a completion."""
_UNUSED = re.compile(r" \((first|second) of two, not used\)$")
"""Suffix of a model's name in journals of versions that could send a request twice: the unused answer."""


def model_of(name: str) -> str:
    """Return the model's name without the journal's suffixes."""
    return _UNUSED.sub("", name).removesuffix(ESTIMATED)


DIGEST_SIZE = 16
"""Bytes of a digest."""

MOST = 2**62
"""Largest number that is kept."""

LARGEST = 256 * 1024 * 1024
"""Longest answer, line or records that are kept, in bytes."""

# What a journal may hold; values that come from elsewhere are checked when their rows are made.
Count: TypeAlias = Annotated[int, Field(strict=True, ge=0, le=MOST)]
Text: TypeAlias = Annotated[str, Field(strict=True)]
Blob: TypeAlias = Annotated[bytes, Field(strict=True, max_length=LARGEST)]
Usd: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Committed:
    """Part of the run's files that counts."""

    count: int
    """Episodes whose records are in the files: those with an index below this."""
    trajectories_end: int
    """Bytes of trajectories.jsonl that count."""
    rejected_end: int
    """Bytes of rejected.jsonl that count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentRow:
    """Usage of one model by one role."""

    role: Text
    model: Text
    requests: Count
    input_tokens: Count
    cached_tokens: Count
    cache_write_tokens: Count
    output_tokens: Count
    cost_usd: Usd
    """US dollars, of the requests whose price is known."""
    unpriced: Count
    """Requests whose price is unknown."""

    def __add__(self, other: "SpentRow") -> "SpentRow":
        sums = [one.name for one in fields(self) if one.name not in {"role", "model"}]
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in sums})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outstanding:
    """An episode that has begun and not ended: in flight while the run goes on, to be continued afterwards."""

    index: Count
    episode: Text
    requests: Count
    """Paid completions."""
    attempt: Count
    """Scripts and drafts begun, at the last completion; role and step are the last completion's too."""
    role: Text
    step: Count
    cost_usd: Usd = 0.0
    """US dollars, of the completions whose price is known."""

    def __add__(self, other: "Outstanding") -> "Outstanding":
        last = max(self, other, key=lambda one: (one.attempt, one.step))
        return replace(last, requests=self.requests + other.requests, cost_usd=self.cost_usd + other.cost_usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A finished episode. It is held until every earlier episode has ended, and committed once its records are in the
    files.
    """

    index: Count
    """The persona's position in the run's source, from 0."""
    id: Text
    persona: Text
    """Fingerprint of the persona."""
    accepted: bool
    """True if it gave a trajectory."""
    line: Blob
    """Counts, as JSON."""
    held: Blob | None = None
    """Records, as long as they are in no file; None once they are, or where they were not read."""
    trajectories_end: Count | None = None
    """Size of trajectories.jsonl after this episode, in bytes; None while it is held."""
    rejected_end: Count | None = None
    """Size of rejected.jsonl after this episode, in bytes; None while it is held."""

    @property
    def is_held(self) -> bool:
        """True if its records are still to be written to the run's files."""
        return self.trajectories_end is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paid:
    """A completion with its answer and cost."""

    episode: Text
    index: Count
    """The persona's position in the run's source, from 0."""
    attempt: Count
    """Scripts and drafts begun so far in the episode."""
    role: Text
    step: Count
    """Completions that this role of this episode had before."""
    digest: Annotated[bytes, Field(strict=True, min_length=DIGEST_SIZE, max_length=DIGEST_SIZE)]
    """Digest of the request, 16 bytes."""
    model: Text
    """Model, as its backend calls it."""
    answer: Blob
    input_tokens: Count
    cached_tokens: Count
    cache_write_tokens: Count
    output_tokens: Count
    cost_usd: Usd | None
    """US dollars; None where the price is unknown."""


class Recorded:
    """Snapshot of the paid completions of one episode, in the order of their commits."""

    def __init__(self, paid: Sequence[Paid] = ()) -> None:
        self._paid = {(one.role, one.step, one.digest): one for one in paid}
        self._unused: dict[bytes, dict[tuple[str, int], Paid]] = {}
        for one in self._paid.values():
            self._unused.setdefault(one.digest, {})[one.role, one.step] = one

    def __iter__(self) -> Iterator[Paid]:
        return iter(self._paid.values())

    def __len__(self) -> int:
        return len(self._paid)

    def get(self, role: str, step: int, digest: bytes) -> Paid | None:
        """Return the answer to this request at this place; None if it was not made."""
        return self._paid.get((role, step, digest))

    def take(self, role: str, step: int, digest: bytes) -> Paid | None:
        """Return the answer to this request at this place, or else the first unused one at any other place.

        Each is handed out once. For playing under other rules, where the same request may come earlier or later.
        """
        left = self._unused.get(digest)
        if not left:
            return None
        place = (role, step)
        return left.pop(place if place in left else next(iter(left)))
