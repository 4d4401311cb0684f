"""All runs of words of the evaluation sets, as sorted numbers, each with the first place that has it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from refinesynth.diversity.grams import hashes, parts, runs
from refinesynth.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SHORTEST = 8
"""Words that a text must have to be looked for as a whole, where it is shorter than a run."""

MAX_RUNS = 20_000_000
"""Most different runs that are kept, 16 bytes each."""

_PENDING = 1 << 20
"""Runs that are gathered before they are merged with the others."""

_ENTRY_BITS = 40


class RunIndex:
    """Runs of `words` words, and texts of fewer as a whole, if they have `SHORTEST` at least. `add` everything, then `finish`."""

    def __init__(self, words: int) -> None:
        import numpy as np

        self.words = words
        self.lengths: set[int] = set()
        """Of the runs that are here."""
        self._runs = np.empty(0, dtype=np.uint64)
        self._sources = np.empty(0, dtype=np.uint64)
        self._pending: list[tuple[NDArray[np.uint64], int]] = []
        self._gathered = 0

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, text: str, *, file: int, entry: int) -> None:
        """Learn a text of an evaluation set.

        Raises:
            InputError: There are more than `MAX_RUNS`.
        """
        for hashed in self._runs_of(text):
            self._pending.append((hashed, file << _ENTRY_BITS | min(entry, (1 << _ENTRY_BITS) - 1)))
            self._gathered += len(hashed)
            if self._gathered >= _PENDING:
                self.finish()

    def finish(self) -> None:
        """Make findable what was added.

        Raises:
            InputError: There are more than `MAX_RUNS`.
        """
        import numpy as np

        runs_ = np.concatenate([self._runs, *(found for found, _ in self._pending)])
        places = [np.full(len(found), source, dtype=np.uint64) for found, source in self._pending]
        sources = np.concatenate([self._sources, *places])
        # The index is that of the first of several that are equal: what was added first.
        self._runs, first = np.unique(runs_, return_index=True)
        self._sources = sources[first]
        self._pending.clear()
        self._gathered = 0
        if len(self) > MAX_RUNS:
            raise InputError(
                f"the evaluation sets hold more than {MAX_RUNS:,} different runs of {self.words} words; give fewer files at a time"
            )

    def find(self, hashed: "NDArray[np.uint64]") -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
        """Which of these runs are here, by their position, and for each of them its place for `source`."""
        import numpy as np

        if not len(self):
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        places = np.searchsorted(self._runs, hashed)
        places[places == len(self)] = 0
        (hits,) = np.nonzero(self._runs[places] == hashed)
        return hits, places[hits]

    def source(self, place: int) -> tuple[int, int]:
        """File and entry that were given with the run at a place."""
        packed = int(self._sources[place])
        return packed >> _ENTRY_BITS, packed & (1 << _ENTRY_BITS) - 1

    def _runs_of(self, text: str) -> "Iterator[NDArray[np.uint64]]":
        for _, part in parts(text, overlap=self.words - 1):
            length = min(self.words, len(part))
            if length < self.words and length < SHORTEST:
                continue
            for found, hashed in runs(hashes(part), length):
                if found == length:
                    self.lengths.add(length)
                    yield hashed
