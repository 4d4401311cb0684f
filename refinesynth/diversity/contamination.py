"""Overlaps between trajectories and evaluation sets: what is trained on should not be what is measured with."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from refinesynth.diversity.evaluation_texts import texts_of
from refinesynth.diversity.shingles import runs, words
from refinesynth.errors import InputError
from refinesynth.extras import check_installed
from refinesynth.trajectory import PlayerTurn, Script, Trajectory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


CONTAMINATED = "Contaminated"
"""Name of the rule that refuses a trajectory which overlaps with an evaluation set."""

WORDS = 13
"""Default length of a run of words that counts as an overlap."""

_QUOTED = 300


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """A stretch of a trajectory's words that is covered by runs of an evaluation set."""

    where: str
    """Text of the trajectory: `goal`, `turn 4 observation`, ..."""
    start: int
    words: int
    text: str
    source: str
    """File and entry of the evaluation set that hold its beginning: `test.jsonl:17`; of several, the first."""


class Contamination:
    """Index of evaluation sets that finds their overlaps with trajectories.

    Matches all runs of `words` words, and shorter texts of at least `SHORTEST` words as a whole, 16 bytes each. Case and
    punctuation do not count. No run is missed; a false match has a probability of 2**-64 per run kept.
    """

    def __init__(self, files: Sequence[str | Path], *, words: int = WORDS) -> None:
        """Read the files (`evaluation.texts_of`); of a folder, all files in it.

        Raises InputError: a file cannot be read or is too long, all hold more than `MAX_RUNS` runs, or a package is missing.
        """
        check_installed("diversity", "datasketch", "numpy")
        if words < 1:
            raise InputError(f"words is {words!r}; expected the length of a run of words, 1 or more")
        self.words = words
        self.files = files_of(files)
        numbered = enumerate(self.files)
        self._index = RunIndex(
            words, ((number, entry, text) for number, path in numbered for entry, text in texts_of(path))
        )

    def __len__(self) -> int:
        return len(self._index)

    def overlaps(self, trajectory: Trajectory) -> tuple[Overlap, ...]:
        """Overlaps of a trajectory and its script, in the order of its texts. More evaluation sets never find less."""
        # Most texts are short, so they are looked at together, with an empty word after each: no run that goes over the
        # end of a text is in an evaluation set.
        row, starts, names = list[str](), list[int](), list[str]()
        for name, text in texts(trajectory):
            names.append(name)
            starts.append(len(row))
            row += (*words(text), "")
        found: list[Overlap] = []
        for start, end, place in self._stretches(row):
            number = bisect_right(starts, start) - 1
            file, entry = self._index.source(place)
            quoted = " ".join(row[start:end])
            found.append(
                Overlap(
                    where=names[number],
                    start=start - starts[number],
                    words=end - start,
                    text=quoted if len(quoted) <= _QUOTED else f"{quoted[:_QUOTED]}...",
                    source=f"{self.files[file]}:{entry}",
                )
            )
        return tuple(found)

    def _stretches(self, row: list[str]) -> Iterator[tuple[int, int, int]]:
        """Beginning and end of every maximal stretch that is covered by runs, and the place of its first run."""
        import numpy as np

        steps = np.zeros(len(row) + 1, dtype=np.int64)
        place_of = np.zeros(len(row), dtype=np.int64)
        for length, hashed in runs(row, self.words):
            if length in self._index.lengths:
                hits, places = self._index.find(hashed)
                steps[hits] += 1
                steps[hits + length] -= 1
                place_of[hits] = places
        covered = np.cumsum(steps[:-1]) > 0
        edges = np.flatnonzero(np.diff(covered, prepend=False, append=False)).tolist()
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            yield start, end, int(place_of[start])


def files_of(given: Iterable[str | Path]) -> tuple[Path, ...]:
    """Files of evaluation sets; of a folder, all files in it. Raises InputError for an empty folder."""
    found: list[Path] = []
    for path in map(Path, given):
        inside = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        if not inside:
            raise InputError(f"there is no file in the folder {str(path)!r}; expected evaluation sets")
        found += inside
    return tuple(found)


def digest_of(given: Iterable[str | Path]) -> str:
    """SHA-256 of the contents, in hexadecimal, independent of names and order; raises InputError for unreadable files."""
    digests: list[bytes] = []
    for path in files_of(given):
        try:
            with path.open("rb") as file:
                digests.append(file_digest(file, "sha256").digest())
        except OSError as error:
            raise InputError(f"the evaluation set {str(path)!r} cannot be read: {error.strerror or error}") from error
    return sha256(b"".join(sorted(digests))).hexdigest()


def texts(trajectory: Trajectory) -> Iterator[tuple[str, str]]:
    """Texts of a trajectory with their places, and the sequence of its actions."""
    yield from _script_texts(trajectory.script)
    for number, turn in enumerate(trajectory.turns, start=1):
        yield f"turn {number} thought", turn.thought
        if isinstance(turn, PlayerTurn):
            yield f"turn {number} action", turn.action
        else:
            yield f"turn {number} observation", turn.observation
    yield "actions", "\n".join(turn.action for turn in trajectory.turns if isinstance(turn, PlayerTurn))


def _script_texts(script: Script) -> Iterator[tuple[str, str]]:
    yield "introduction", script.introduction
    yield "goal", script.goal
    for number, condition in enumerate(script.completion_conditions, start=1):
        yield f"completion condition {number}", condition
    for action in script.actions:
        yield f"action {action.name}", f"{action.name}\n{action.description}"
    yield "environment", "\n".join(_words_in(script.environment))


def _words_in(environment: JsonValue) -> Iterator[str]:
    stack = [environment]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            for key, value in reversed(item.items()):
                stack += (value, key)
        elif isinstance(item, list):
            stack.extend(reversed(item))


SHORTEST = 8
"""Least words of a text shorter than a run that is matched as a whole."""

MAX_RUNS = 20_000_000
"""Most distinct runs, 16 bytes each."""

_PENDING = 1 << 20

_ENTRY_BITS = 40


class RunIndex:
    """Sorted hashes of runs of `length` words, and of shorter texts with at least `SHORTEST` words."""

    def __init__(self, length: int, texts: Iterable[tuple[int, int, str]]) -> None:
        """Add texts with the numbers of their file and entry; raises InputError for more than `MAX_RUNS` distinct runs."""
        import numpy as np

        self.length = length
        self.lengths: set[int] = set()
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
        """Positions of the given runs that are indexed, and the place of each for `source`."""
        import numpy as np

        if not len(self):
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        places = np.searchsorted(self._runs, hashed)
        places[places == len(self)] = 0
        (hits,) = np.nonzero(self._runs[places] == hashed)
        return hits, places[hits]

    def source(self, place: int) -> tuple[int, int]:
        packed = int(self._sources[place])
        return packed >> _ENTRY_BITS, packed & (1 << _ENTRY_BITS) - 1
