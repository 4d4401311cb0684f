"""Embeddings of texts: what gives them, and a cache on disk so that nothing is paid for twice."""

import hashlib
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from refinesynth.errors import InputError, StorageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Embedded:
    """Embeddings of some texts, in their order."""

    vectors: Sequence[Sequence[float]]
    """One for each text, all of one length; need not be normalised."""
    tokens: int = 0
    """Tokens billed."""
    cost_usd: float | None = 0.0
    """US dollars; None where no price is known."""


class Embedder(Protocol):
    """A model that turns texts into vectors."""

    @property
    def name(self) -> str:
        """What tells its vectors from another model's; the key of the cache."""
        ...

    async def __call__(self, texts: Sequence[str], /) -> Embedded:
        """Embed some texts at once. Several calls may be under way at a time.

        Raises:
            RefinesynthError: It cannot be done, after the retries that it allows itself.
        """
        ...


class EmbeddingCache:
    """Vectors on disk by model and text: half precision, normalised to length 1. One process at a time."""

    def __init__(self, path: Path, model: str) -> None:
        """Open the file, or begin it.

        Raises:
            InputError: It is something else, or cannot be opened.
        """
        self.path = path
        self._model = model
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with ExitStack() as opened:
                self._file = opened.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
                self._file.execute("PRAGMA journal_mode = WAL")
                self._file.execute("PRAGMA synchronous = NORMAL")
                self._file.execute(
                    "CREATE TABLE IF NOT EXISTS embeddings (key BLOB PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID"
                )
                opened.pop_all()
        except (sqlite3.Error, OSError) as error:
            raise InputError(
                f"{str(path)!r} cannot be used as a cache of embeddings ({error}); delete it, or name another file"
            ) from error

    def get(self, texts: Sequence[str]) -> "list[NDArray[np.float16] | None]":
        """The vectors of those texts that are there.

        Raises:
            StorageError: The file is damaged.
        """
        import numpy as np

        found: list[NDArray[np.float16] | None] = []
        with self._in_plain_words():
            for text in texts:
                row = self._file.execute("SELECT vector FROM embeddings WHERE key = ?", (self._key(text),)).fetchone()
                found.append(None if row is None else np.frombuffer(row[0], np.float16))
        return found

    def put(self, texts: Sequence[str], vectors: "Sequence[NDArray[np.float16]]") -> None:
        """Keep vectors, all or none.

        Raises:
            StorageError: The disk is full, or the file damaged.
        """
        rows = [(self._key(text), vector.tobytes()) for text, vector in zip(texts, vectors, strict=True)]
        with self._in_plain_words():
            self._file.execute("BEGIN IMMEDIATE")
            self._file.executemany("INSERT OR REPLACE INTO embeddings VALUES (?, ?)", rows)
            self._file.execute("COMMIT")

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _key(self, text: str) -> bytes:
        return hashlib.blake2b(f"{self._model}\0{text}".encode("utf-8", "replace"), digest_size=16).digest()

    @contextmanager
    def _in_plain_words(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StorageError(f"the cache of embeddings {str(self.path)!r} cannot be used: {error}") from error
