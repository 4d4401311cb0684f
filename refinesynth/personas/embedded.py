"""Rows with their embeddings, in order: cached ones from disk, the others asked for several batches at a time."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from refinesynth.errors import BackendError
from refinesynth.personas.cosine import unit
from refinesynth.personas.embedding import Embedder, EmbeddingCache
from refinesynth.personas.rows import Record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Embeddings:
    """Asks an embedder, through the cache, and counts what that took."""

    def __init__(self, embedder: Embedder, cache: EmbeddingCache | None) -> None:
        """Nothing is asked yet; without a cache, everything is asked for."""
        self._embedder = embedder
        self._cache = cache
        self.asked = 0
        """Texts that were embedded."""
        self.cached = 0
        """Texts whose embedding was there already."""
        self.tokens = 0
        self.cost_usd: float | None = 0.0
        """US dollars; None where no price is known."""

    async def of(self, texts: Sequence[str]) -> "NDArray[np.float16]":
        """The unit vectors of some texts, one row each; what had to be paid for is on disk before this returns.

        Raises:
            RefinesynthError: The embedder gave up, or the cache cannot be used.
        """
        import numpy as np

        vectors = self._cache.get(texts) if self._cache is not None else [None] * len(texts)
        # A text that comes twice is asked for once.
        missing = list(dict.fromkeys(text for text, vector in zip(texts, vectors, strict=True) if vector is None))
        fresh: dict[str, NDArray[np.float16]] = {}
        if missing:
            fresh = dict(zip(missing, await self._ask(missing), strict=True))
            if self._cache is not None:
                self._cache.put(missing, list(fresh.values()))
        self.asked += len(missing)
        self.cached += len(texts) - sum(vector is None for vector in vectors)
        found = [fresh[text] if vector is None else vector for text, vector in zip(texts, vectors, strict=True)]
        try:
            return np.stack(found)
        except ValueError:
            raise BackendError(
                f"{self._embedder.name} gives embeddings of {len({len(each) for each in found})} different lengths; "
                f"name another model, or another cache"
            ) from None

    async def _ask(self, texts: Sequence[str]) -> "NDArray[np.float16]":
        answer = await self._embedder(texts)
        self.tokens += answer.tokens
        self.cost_usd = None if self.cost_usd is None or answer.cost_usd is None else self.cost_usd + answer.cost_usd
        try:
            vectors = unit(answer.vectors)
        except ValueError as error:
            raise BackendError(f"{self._embedder.name}: {error}") from error
        if len(vectors) != len(texts):
            raise BackendError(f"{self._embedder.name} gave {len(vectors):,} embeddings for {len(texts):,} texts")
        return vectors


Use = Callable[[Sequence[Record], "NDArray[np.float16]"], None]
"""Gets a batch of rows and their unit vectors, one row each."""


class _Batch:
    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.vectors: NDArray[np.float16] | None = None
        self.done = anyio.Event()


async def embed_in_order(
    records: Iterable[Record], embeddings: Embeddings, use: Use, *, batch: int, concurrency: int
) -> None:
    """Call `use` with one batch of rows after the other, in order, while the next `concurrency` are being embedded.

    Rows are read and used in a thread, as far ahead as that. Cancelling loses no embedding that has come. When one batch
    fails, those under way are waited for, because they are paid for.

    Raises:
        RefinesynthError: As `Embeddings.of`, or `records` and `use` raise it; the first of several.
    """
    window = _Window(iter(records), embeddings, batch, concurrency)
    async with anyio.create_task_group() as tasks:
        try:
            while (first := await window.next(tasks)) is not None:
                await anyio.to_thread.run_sync(partial(use, *first))
        except Exception as error:  # noqa: BLE001
            # Raised below, as those of the tasks are: out of a task group they would come wrapped in a group.
            window.failures.append(error)
    if window.failures:
        raise window.failures[0]


class _Window:
    """The batches that are being embedded, the first of which is used next."""

    def __init__(self, rows: Iterator[Record], embeddings: Embeddings, batch: int, concurrency: int) -> None:
        self._rows, self._embeddings = rows, embeddings
        self._batch, self._concurrency = batch, concurrency
        self._ahead: deque[_Batch] = deque()
        self._more = True
        self.failures: list[Exception] = []

    async def next(self, tasks: TaskGroup) -> "tuple[list[Record], NDArray[np.float16]] | None":
        """The next batch in order, after as many as there may be behind it were begun; None at the end, or after a failure."""
        while self._more and len(self._ahead) < self._concurrency and not self.failures:
            read = await anyio.to_thread.run_sync(lambda: list(islice(self._rows, self._batch)))
            self._more = bool(read)
            if read:
                self._ahead.append(_Batch(read))
                tasks.start_soon(self._fetch, self._ahead[-1])
        if not self._ahead or self.failures:
            return None
        first = self._ahead.popleft()
        await first.done.wait()
        return None if first.vectors is None or self.failures else (first.records, first.vectors)

    async def _fetch(self, batch: _Batch) -> None:
        try:
            batch.vectors = await self._embeddings.of([record.persona.text for record in batch.records])
        except Exception as error:  # noqa: BLE001
            self.failures.append(error)
        batch.done.set()
