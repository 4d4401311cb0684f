"""Personas without their near-duplicates: by MinHash, then by embeddings if wanted. Section 7 of the method."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import anyio.to_thread

from refinesynth.atomic_write import output_file, refuse_existing
from refinesynth.errors import InputError
from refinesynth.jsontext import write_json
from refinesynth.personas.cosine import CosineIndex
from refinesynth.personas.embedded import Embeddings, embed_in_order
from refinesynth.personas.embedding import Embedder, EmbeddingCache
from refinesynth.personas.near import NearDuplicates, Similar
from refinesynth.personas.records import Records, RecordSource
from refinesynth.personas.rows import Record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ROWS_AT_ONCE = 512
"""Rows that a thread works on before the event loop has its turn."""
_BATCHES_AHEAD = 64
"""Most batches that may be under way."""

Why = Literal["exact", "near", "embedding"]


@dataclass(frozen=True)
class DedupReport:
    """What `dedup` did."""

    output: Path
    read: int
    """Rows that were personas."""
    bad: int
    """Rows that were none; they are not in the output."""
    problems: tuple[str, ...]
    """The first few of these."""
    kept: int
    exact: int
    """Left out: the words of an earlier persona in its order."""
    near: int
    """Left out: near-duplicates by their words."""
    alike: int
    """Left out: near-duplicates by their embeddings."""
    index_bytes: int
    """Memory that the index of words took at the end."""
    asked: int = 0
    """Texts that were embedded."""
    cached: int = 0
    """Texts whose embedding was in the cache."""
    tokens: int = 0
    """Tokens billed for embeddings."""
    cost_usd: float | None = 0.0
    """US dollars for embeddings; None where no price is known."""


async def dedup(
    source: RecordSource | None,
    output: str | PathLike[str],
    *,
    similar: Similar | None = None,
    embedder: Embedder | None = None,
    cosine: float = 0.9,
    cache: str | PathLike[str] | None = None,
    batch: int = 256,
    concurrency: int = 8,
    removed: str | PathLike[str] | None = None,
    overwrite: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> DedupReport:
    """Write the personas of `source`, each with its other fields, without near-duplicates; the first of several is kept.

    The output is JSONL, compressed if its name ends in `.gz` or `.zst`; it appears whole or not at all. The same input and
    settings give the same bytes, and running it on its own output leaves nothing more out. Rows are read once and not held.

    Args:
        source: What to read; the personas that ship with the package if None.
        output: File to write.
        similar: What counts as a near-duplicate by words; Persona Hub's settings if None.
        embedder: Compare what is left by embeddings too, such as `refinesynth.backends.open_embedder` gives.
        cosine: Cosine of two embeddings from which on they are near-duplicates.
        cache: File for embeddings, so that a second run, or one after an interruption, pays for none twice;
            `OUTPUT.embeddings` if None.
        batch: Texts that are embedded at once.
        concurrency: Batches that are embedded at the same time.
        removed: File to list what was left out, and why.
        overwrite: Replace `output` and `removed` if they are there.
        on_progress: Called now and then with how many personas were read and how many of these are kept so far.

    Raises:
        InputError: A file cannot be read, holds no persona, cannot be written or is there; a setting makes no sense.
        ConfigurationError: datasketch is not installed.
        BackendError: The embedder gave up. What it had given is in the cache.
        StorageError: The cache is damaged, or its disk full.
    """
    target, listing = Path(output), None if removed is None else Path(removed)
    for path in filter(None, (target, listing)):
        _check_output(path, source, overwrite=overwrite)
    if target == listing:
        raise InputError(f"{str(target)!r} cannot hold both what is kept and what is removed; name two files")
    stored = Path(cache) if cache is not None else target.with_name(f"{target.name}.embeddings")
    if stored in (target, listing):
        raise InputError(f"{str(stored)!r} cannot hold both embeddings and personas; name two files")
    if batch < 1 or not 1 <= concurrency <= _BATCHES_AHEAD:
        raise InputError(
            f"a batch has at least 1 text, and 1 to {_BATCHES_AHEAD} are sent at once; got {batch} and {concurrency}"
        )
    records = Records(source)
    with ExitStack() as files:
        kept = files.enter_context(output_file(target, overwrite=overwrite))
        left_out = None if listing is None else files.enter_context(output_file(listing, overwrite=overwrite))
        sieve = _Sieve(NearDuplicates(similar), CosineIndex(cosine), kept, left_out)
        embeddings: Embeddings | None = None
        if embedder is None:
            await _by_words(records, sieve, on_progress)
        else:
            store = EmbeddingCache(stored, embedder.name)
            files.callback(store.close)
            embeddings = Embeddings(embedder, store)
            await _by_embeddings(records, sieve, embeddings, on_progress, batch=batch, concurrency=concurrency)
        records.check()
    return sieve.report(target, records, embeddings)


def _check_output(path: Path, source: RecordSource | None, *, overwrite: bool) -> None:
    refuse_existing(path, overwrite=overwrite)
    given: Iterable[object] = (
        (Path(source),) if isinstance(source, str | PathLike) else source if isinstance(source, list | tuple) else ()
    )
    for each in given:
        if isinstance(each, PathLike) and path.exists() and Path(each).exists() and path.samefile(Path(each)):
            raise InputError(f"{str(path)!r} is what is read, and would be replaced; name another output")


async def _by_words(records: Records, sieve: "_Sieve", on_progress: Callable[[int, int], None] | None) -> None:
    fresh = sieve.fresh(records)

    def some() -> bool:
        rows = 0
        for record in islice(fresh, _ROWS_AT_ONCE):
            sieve.keep(record)
            rows += 1
        return rows > 0

    while await anyio.to_thread.run_sync(some):
        if on_progress is not None:
            on_progress(records.read, sieve.kept)


async def _by_embeddings(
    records: Records,
    sieve: "_Sieve",
    embeddings: Embeddings,
    on_progress: Callable[[int, int], None] | None,
    *,
    batch: int,
    concurrency: int,
) -> None:
    def use(rows: Sequence[Record], vectors: "NDArray[np.float16]") -> None:
        sieve.keep_unlike(rows, vectors)
        if on_progress is not None:
            on_progress(records.read, sieve.kept)

    await embed_in_order(sieve.fresh(records), embeddings, use, batch=batch, concurrency=concurrency)


class _Sieve:
    """Decides on rows, writes them, and counts. Rows are numbered among those that are personas, from 1."""

    def __init__(self, near: NearDuplicates, alike: CosineIndex, kept: IO[bytes], removed: IO[bytes] | None) -> None:
        self._near, self._alike = near, alike
        self._kept, self._removed = kept, removed
        self._read = 0
        self._count: dict[Why, int] = {"exact": 0, "near": 0, "embedding": 0}
        self.kept = 0
        """Rows written so far."""
        self._admitted = array("Q")
        """Numbers of the rows that the words admitted; what follows them is found by position."""
        self._looked_at = 0
        """How many of these were compared by embedding."""
        self._final = array("Q")
        """Numbers of the rows that the embeddings admitted too."""

    def fresh(self, records: Iterable[Record]) -> Iterator[Record]:
        """The rows that are no near-duplicates by their words."""
        for record in records:
            self._read += 1
            twin = self._near.admit(record.persona.text)
            if twin is None:
                if self._removed is not None:
                    self._admitted.append(self._read)
                yield record
            else:
                of = self._admitted[twin.of] if self._removed is not None else 0
                self._remove(record, self._read, of, "exact" if twin.exact else "near", twin.similarity)

    def keep(self, record: Record) -> None:
        """Write a row."""
        self._kept.write(record.as_json() + b"\n")
        self.kept += 1

    def keep_unlike(self, records: Sequence[Record], vectors: "NDArray[np.float16]") -> None:
        """Write the rows whose embeddings are unlike all those before. In the order in which `fresh` gave them."""
        for record, found in zip(records, self._alike.admit(vectors), strict=True):
            number = self._admitted[self._looked_at] if self._removed is not None else 0
            self._looked_at += 1
            if found is None:
                if self._removed is not None:
                    self._final.append(number)
                self.keep(record)
            else:
                of = self._final[found[0]] if self._removed is not None else 0
                self._remove(record, number, of, "embedding", found[1])

    def _remove(self, record: Record, number: int, of: int, why: Why, similarity: float) -> None:
        self._count[why] += 1
        if self._removed is not None:
            said: dict[str, Any] = {"persona": record.persona.text, "row": number, "of": of}
            line = write_json({**said, "by": why, "similarity": round(similarity, 4)})
            self._removed.write(line + b"\n")

    def report(self, output: Path, records: Records, embeddings: Embeddings | None) -> DedupReport:
        """What was done."""
        report = DedupReport(
            output=output,
            read=records.read,
            bad=records.bad,
            problems=records.problems,
            kept=self.kept,
            exact=self._count["exact"],
            near=self._count["near"],
            alike=self._count["embedding"],
            index_bytes=self._near.bytes_held,
        )
        if embeddings is None:
            return report
        return replace(
            report,
            asked=embeddings.asked,
            cached=embeddings.cached,
            tokens=embeddings.tokens,
            cost_usd=embeddings.cost_usd,
        )
