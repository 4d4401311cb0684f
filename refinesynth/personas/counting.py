"""Counts over any number of rows in bounded memory."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


class Frequent:
    """The most frequent of any number of names; exact as long as there are no more different ones than it holds.

    Beyond that the rarer half is forgotten, so that counts may be too low.
    """

    def __init__(self, hold: int = 200_000) -> None:
        self._counts: Counter[str] = Counter()
        self._hold = hold

    def __len__(self) -> int:
        """How many names are held."""
        return len(self._counts)

    def __contains__(self, name: str) -> bool:
        return name in self._counts

    def add(self, name: str) -> None:
        """Count one."""
        self._counts[name] += 1
        if len(self._counts) > self._hold:
            self._counts = Counter(dict(self._counts.most_common(self._hold // 2)))

    def top(self, most: int) -> dict[str, int]:
        """The most frequent names and their counts; equal counts in the order of the alphabet."""
        ranked = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        return dict(ranked[:most])


@dataclass(frozen=True)
class Lengths:
    """How lengths are spread."""

    least: int
    median: int
    mean: float
    longest_tenth: int
    """Length that one in ten reaches or exceeds."""
    most: int

    @classmethod
    def of(cls, counts: Counter[int]) -> "Lengths":
        """From how often each length comes; at least one does."""
        total = counts.total()
        ordered = sorted(counts.items())
        return cls(
            least=ordered[0][0],
            median=_at(ordered, total / 2),
            mean=round(sum(length * count for length, count in ordered) / total, 2),
            longest_tenth=_at(ordered, total * 0.9),
            most=ordered[-1][0],
        )


def _at(ordered: Iterable[tuple[int, int]], wanted: float) -> int:
    passed = length = 0
    for length, count in ordered:  # noqa: B007 - the last one is the answer too
        passed += count
        if passed > wanted:
            break
    return length
