"""All runs of words of the evaluation sets, as sorted numbers, each with the first place that has it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from refinesynth.diversity.grams import runs, words
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
    """Runs of `length` words, and texts of fewer as a whole, if they have `SHORTEST` at least."""

    def __init__(self, length: int, texts: Iterable[tuple[int, int, str]]) -> None:
        """Learn texts, each with the numbers of its file and its entry there.

        Raises:
            InputError: They hold more than `MAX_RUNS` different runs.
        """
        import numpy as np

        self.length = length
        self.lengths: set[int] = set()
        """Of the runs that are here."""
        self._runs = np.empty(0, dtype=np.uint64)
        self._sources = np.empty(0, dtype=np.uint64)
        pending: list[tuple[NDArray[np.uint64], int]] = []
        gathered = 0
        for file, entry, text in texts:
            found = words(text)
            mine = min(length, len(found))
            if mine < min(length, SHORTEST):
                continue
            self.lengths.add(mine)
            for size, hashed in runs(found, mine):
                if size == mine:
                    pending.append((hashed, file << _ENTRY_BITS | min(entry, (1 << _ENTRY_BITS) - 1)))
                    gathered += len(hashed)
            if gathered >= _PENDING:
                self._merge(pending)
                pending, gathered = [], 0
        self._merge(pending)

    def __len__(self) -> int:
        return len(self._runs)

    def _merge(self, pending: "list[tuple[NDArray[np.uint64], int]]") -> None:
        import numpy as np

        found = np.concatenate([self._runs, *(hashed for hashed, _ in pending)])
        places = [np.full(len(hashed), source, dtype=np.uint64) for hashed, source in pending]
        sources = np.concatenate([self._sources, *places])
        # The index is that of the first of several that are equal: what was added first.
        self._runs, first = np.unique(found, return_index=True)
        self._sources = sources[first]
        if len(self) > MAX_RUNS:
            raise InputError(
                f"the evaluation sets hold more than {MAX_RUNS:,} different runs of {self.length} words; give fewer files at a time"
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
