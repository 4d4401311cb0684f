"""Overlaps between trajectories and evaluation sets, which training data should not contain."""

import zlib
from bisect import bisect_right
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b, file_digest, sha256
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from pydantic import JsonValue

from refinesynth.diversity.novelty import WORD, normalized
from refinesynth.errors import InputError
from refinesynth.files.compressed import COMPRESSIONS, open_binary, refuse_other_encodings
from refinesynth.lazy_imports import check_installed
from refinesynth.trajectory import PlayerTurn, Trajectory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


MAX_BYTES = 1 << 30
"""Maximum size of an unpacked file, in bytes."""

MAX_DOCUMENT = 1 << 26
"""Maximum size of a JSON document or line, in bytes; its values take about 20 times the memory. Longer lines are split
into plain texts."""

_MAX_START = 1 << 16
_LINE_SUFFIXES = (".jsonl", ".ndjson")
_SEPARATORS = b"\n\r\t ,"


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield every text of a file, also of `.gz`, with the number of its line or JSON list item, from 1.

    A file is JSONL (`.jsonl`, `.ndjson`), one JSON document, or plain text. The texts of JSON exclude keys. Other content
    counts as plain text, line by line.

    Raises:
        InputError: The file cannot be read, is longer than `MAX_BYTES`, or its first line is no UTF-8.
    """
    suffix = Path(path.stem if path.suffix.lower() in COMPRESSIONS else path.name).suffix.lower()
    document: JsonValue = None
    try:
        with open_binary(path) as file:
            start = file.readline(_MAX_START)
        refuse_other_encodings(start)
        getincrementaldecoder("utf-8")().decode(start)
        if suffix not in _LINE_SUFFIXES:
            with open_binary(path) as file:
                document = _parse_json(file.read(MAX_DOCUMENT + 1))
        if document is not None:
            for number, item in enumerate(document if isinstance(document, list) else [document], start=1):
                for text in _texts(item):
                    yield number, text
            return
        read = 0
        with open_binary(path) as file:
            for number, line in enumerate(iter(lambda: file.readline(MAX_DOCUMENT + 1), b""), start=1):
                read += len(line)
                if read > MAX_BYTES:
                    raise InputError(
                        f"the evaluation set {str(path)!r} holds more than {MAX_BYTES:,} bytes; give it in several files"
                    )
                if line.strip():
                    value = _parse_json(line)
                    for text in _texts(line.decode("utf-8", "replace").rstrip("\r\n") if value is None else value):
                        yield number, text
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise InputError(f"the evaluation set {str(path)!r} cannot be read: {error}") from error


def _parse_json(data: bytes) -> JsonValue:
    """Return the JSON object or list in `data`; None for other data, or if it is longer than `MAX_DOCUMENT`."""
    data = data.removeprefix(b"\xef\xbb\xbf").strip(_SEPARATORS) if len(data) <= MAX_DOCUMENT else b""
    if data[:1] not in (b"{", b"["):
        return None
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def _texts(value: JsonValue, *, keys: bool = False) -> Iterator[str]:
    """Yield all texts in a JSON value in order. `keys` adds its keys; otherwise, lists of texts (such as a walkthrough) are
    also yielded as one text.
    """
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack.extend(reversed([part for pair in item.items() for part in pair[not keys :]]))
        elif isinstance(item, list):
            stack.extend(reversed(item))
            if not keys and (item_texts := [text for text in item if isinstance(text, str)]):
                yield "\n".join(item_texts)


_FACTOR = 0x9E3779B97F4A7C15


def words_of(text: str) -> list[str]:
    """Return the words of a text: runs of letters, digits and underscores; single characters in scripts without spaces."""
    return WORD.findall(normalized(text))


def runs(text_words: list[str], max_length: int) -> "Iterator[tuple[int, NDArray[np.uint64]]]":
    """Yield each length from 1 to `max_length` with the hashes of all runs of that length, ignoring case.

    The i-th hash belongs to the run from the i-th word on. Two runs collide with a probability of 2**-64.
    """
    import numpy as np

    hashes = np.fromiter(map(_hash, text_words), dtype=np.uint64, count=len(text_words))
    current = hashes
    for length in range(1, min(max_length, len(hashes)) + 1):
        if length > 1:
            # The product overflows on purpose, modulo 2**64.
            current = current[:-1] * np.uint64(_FACTOR) + hashes[length - 1 :]
        yield length, _mix(current, length)


def _mix(values: "NDArray[np.uint64]", length: int) -> "NDArray[np.uint64]":
    """Return hashes with small differences spread over all bits, and different for different lengths."""
    import numpy as np

    mixed = values ^ np.uint64(length * 0xD6E8FEB86659FD93 & (1 << 64) - 1)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return mixed ^ (mixed >> np.uint64(32))


@lru_cache(maxsize=1 << 16)
def _hash(word: str) -> int:
    return int.from_bytes(blake2b(word.casefold().encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


CONTAMINATED = "Contaminated"
"""Name of the rule that refuses trajectories with an overlap."""

WORDS = 13
"""Default length of a run that counts as an overlap, in words."""

_MAX_QUOTED = 300


MIN_WORDS = 8
"""Minimum length of a text that is matched as a whole because it is shorter than a run, in words."""

MAX_RUNS = 20_000_000
"""Maximum number of distinct runs, 16 bytes each."""

_PENDING = 1 << 20

_ENTRY_BITS = 40
_MAX_ENTRY = (1 << _ENTRY_BITS) - 1


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Stretch of a trajectory's words that runs of evaluation sets cover."""

    where: str
    """Name of the text in the trajectory: `goal`, `turn 4 observation`, ..."""
    start: int
    words: int
    text: str
    source: str
    """First file and entry of the evaluation sets with the beginning of the stretch, such as `test.jsonl:17`."""


class Contamination:
    """Index of evaluation sets that finds overlaps with trajectories.

    It matches all runs of `words` words, and shorter texts of at least `MIN_WORDS` words as a whole, ignoring case and
    punctuation; each takes 16 bytes. It misses no run; the probability of a false match is 2**-64 per run in the index.
    """

    def __init__(self, files: Sequence[str | Path], *, words: int = WORDS) -> None:
        """Read the files (`texts_of`), and of a folder all files in it.

        Hidden files in a folder, such as those of git, are left out. Raises InputError: a file is unreadable or too long, a
        set has no text with enough words, the total exceeds `MAX_RUNS`, or a package is missing.
        """
        check_installed("diversity", "datasketch", "numpy")
        if words < 1:
            raise InputError(f"words is {words!r}; expected the length of a run of words, 1 or more")
        import numpy as np

        self.words = words
        self.files: tuple[Path, ...] = ()
        self._lengths: set[int] = set()
        self._runs = np.empty(0, dtype=np.uint64)
        """Sorted hashes of the runs."""
        self._sources = np.empty(0, dtype=np.uint64)
        """First file and entry of each run, packed."""
        pending: list[tuple[NDArray[np.uint64], int]] = []
        pending_runs = 0
        for path in map(Path, files):
            is_empty, first = True, len(self.files)
            self.files += tuple(
                file for file in files_of([path]) if not any(part[0] == "." for part in file.relative_to(path).parts)
            )
            for number, file in enumerate(self.files[first:], first):
                for entry, text in texts_of(file):
                    text_words = words_of(text)
                    length = min(words, len(text_words))
                    if length < min(words, MIN_WORDS):
                        continue
                    is_empty = False
                    self._lengths.add(length)
                    # `runs` yields the longest runs last.
                    *_, (_, hashed) = runs(text_words, length)
                    pending.append((hashed, number << _ENTRY_BITS | min(entry, _MAX_ENTRY)))
                    pending_runs += len(hashed)
                    if pending_runs >= _PENDING:
                        self._merge(pending)
                        pending, pending_runs = [], 0
            if is_empty:
                raise InputError(
                    f"no text in the evaluation set {str(path)!r} has {min(words, MIN_WORDS)} words, so nothing would be "
                    "compared with it; give a file with longer texts, or leave it out"
                )
        self._merge(pending)

    def __len__(self) -> int:
        return len(self._runs)

    def _merge(self, pending: "list[tuple[NDArray[np.uint64], int]]") -> None:
        import numpy as np

        hashes = np.concatenate([self._runs, *(hashed for hashed, _ in pending)])
        packed_sources = [np.full(len(hashed), source, dtype=np.uint64) for hashed, source in pending]
        sources = np.concatenate([self._sources, *packed_sources])
        # `unique` returns the index of the first of equal runs, which is the one added first.
        self._runs, first = np.unique(hashes, return_index=True)
        self._sources = sources[first]
        if len(self) > MAX_RUNS:
            raise InputError(
                f"the evaluation sets hold more than {MAX_RUNS:,} different runs of {self.words} words; give fewer files at a time"
            )

    def overlaps(self, trajectory: Trajectory) -> tuple[Overlap, ...]:
        """Return the overlaps of a trajectory and its script, in the order of its texts."""
        # Most texts are short: one search covers all of them. The empty word after each text occurs in no evaluation set,
        # which excludes runs beyond the end of a text.
        all_words, starts, names = list[str](), list[int](), list[str]()
        for name, text in texts(trajectory):
            names.append(name)
            starts.append(len(all_words))
            all_words += (*words_of(text), "")
        result: list[Overlap] = []
        for start, end, place in self._stretches(all_words):
            number = bisect_right(starts, start) - 1
            packed = int(self._sources[place])
            quoted = " ".join(all_words[start:end])
            result.append(
                Overlap(
                    where=names[number],
                    start=start - starts[number],
                    words=end - start,
                    text=quoted if len(quoted) <= _MAX_QUOTED else f"{quoted[:_MAX_QUOTED]}...",
                    source=f"{self.files[packed >> _ENTRY_BITS]}:{packed & _MAX_ENTRY}",
                )
            )
        return tuple(result)

    def _stretches(self, all_words: list[str]) -> Iterator[tuple[int, int, int]]:
        """Yield beginning and end of every maximal covered stretch, and the position of its first run in the index."""
        import numpy as np

        steps = np.zeros(len(all_words) + 1, dtype=np.int64)
        first_runs = np.zeros(len(all_words), dtype=np.int64)
        for length, hashed in runs(all_words, self.words):
            if length in self._lengths and len(self):
                positions = np.searchsorted(self._runs, hashed)
                positions[positions == len(self)] = 0
                (hits,) = np.nonzero(self._runs[positions] == hashed)
                steps[hits] += 1
                steps[hits + length] -= 1
                first_runs[hits] = positions[hits]
        covered = np.cumsum(steps[:-1]) > 0
        edges = np.flatnonzero(np.diff(covered, prepend=False, append=False)).tolist()
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            yield start, end, int(first_runs[start])


def files_of(paths: Iterable[str | Path]) -> tuple[Path, ...]:
    """Return the files of evaluation sets, and of a folder all files in it. Raises InputError: a folder is empty."""
    files: list[Path] = []
    for path in map(Path, paths):
        contents = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        if not contents:
            raise InputError(f"there is no file in the folder {str(path)!r}; expected evaluation sets")
        files += contents
    return tuple(files)


def digest_of(paths: Iterable[str | Path]) -> str:
    """Return a SHA-256 of the contents in hexadecimal, independent of names and order. Raises InputError: unreadable."""
    digests: list[bytes] = []
    for path in files_of(paths):
        try:
            with path.open("rb") as file:
                digests.append(file_digest(file, "sha256").digest())
        except OSError as error:
            raise InputError(f"the evaluation set {str(path)!r} cannot be read: {error.strerror or error}") from error
    return sha256(b"".join(sorted(digests))).hexdigest()


def texts(trajectory: Trajectory) -> Iterator[tuple[str, str]]:
    """Yield the texts of a trajectory with their names, and the sequence of its actions as one text."""
    script = trajectory.script
    yield "introduction", script.introduction
    yield "goal", script.goal
    for number, condition in enumerate(script.completion_conditions, start=1):
        yield f"completion condition {number}", condition
    for action in script.actions:
        yield f"action {action.name}", f"{action.name}\n{action.description}"
    yield "environment", "\n".join(_texts({**script.environment}, keys=True))
    for number, turn in enumerate(trajectory.turns, start=1):
        yield f"turn {number} thought", turn.thought
        if isinstance(turn, PlayerTurn):
            yield f"turn {number} action", turn.action
        else:
            yield f"turn {number} observation", turn.observation
    yield "actions", "\n".join(turn.action for turn in trajectory.turns if isinstance(turn, PlayerTurn))
