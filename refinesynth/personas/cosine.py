"""Near-duplicates by the cosine of embeddings: each with all that were kept before, exactly."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from refinesynth.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_CHUNK = 8192
"""Kept vectors that are compared at a time."""


def unit(vectors: Sequence[Sequence[float]]) -> "NDArray[np.float16]":
    """The vectors at length 1, in half precision; one of zeros stays so, and is like nothing.

    Raises:
        ValueError: They are of different lengths, or hold something that is no finite number.
    """
    import numpy as np

    try:
        given = np.asarray(vectors, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError("embeddings are not lists of numbers of one length") from error
    if given.ndim != 2 or not given.shape[1]:  # noqa: PLR2004
        raise ValueError("embeddings are not lists of numbers of one length")
    if not np.isfinite(given).all():
        raise ValueError("an embedding holds something that is no finite number")
    # The largest first: squares of large numbers are infinite.
    given = given / np.maximum(np.abs(given).max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    norms = np.linalg.norm(given, axis=1, keepdims=True)
    return (given / np.where(norms == 0, 1, norms)).astype(np.float16)


class CosineIndex:
    """Admits vectors whose cosine with every one admitted before is below the threshold.

    Exact but for the rounding to half precision (about 0.0005), so time grows with the square of what is kept: 200,000 of 384 numbers
    take about 15 trillion multiplications, minutes on a few cores. Memory: 2 bytes for each number of each admitted vector.
    """

    def __init__(self, threshold: float = 0.9) -> None:
        """An empty index.

        Raises:
            InputError: The threshold is no cosine above 0.
        """
        if not 0 < threshold <= 1:
            raise InputError(f"a threshold is above 0 and at most 1, got {threshold!r}; Persona Hub's is 0.9")
        self.threshold = threshold
        self._chunks: list[NDArray[np.float16]] = []
        self._count = 0

    def __len__(self) -> int:
        """How many were admitted."""
        return self._count

    def admit(self, vectors: "NDArray[np.float16]") -> list[tuple[int, float] | None]:
        """Admit vectors in their order; of each that is refused, which admitted one it repeats (from 0) and the cosine.

        Raises:
            InputError: They have another length than those before.
        """
        import numpy as np

        batch = vectors.astype(np.float32)
        if self._chunks and self._chunks[0].shape[1] != batch.shape[1]:
            raise InputError(
                f"embeddings of {batch.shape[1]} numbers came after ones of {self._chunks[0].shape[1]}; "
                f"a model gives one length, so name another model, or another cache"
            )
        best, nearest = self._nearest(batch)
        among = batch @ batch.T
        verdicts: list[tuple[int, float] | None] = []
        kept: list[int] = []
        for row in range(len(batch)):
            cosine, of = float(best[row]), int(nearest[row])
            if kept:
                here = int(np.argmax(among[row, kept]))
                if float(among[row, kept[here]]) > cosine:
                    cosine, of = float(among[row, kept[here]]), self._count + here
            if cosine >= self.threshold:
                verdicts.append((of, min(1.0, cosine)))
            else:
                verdicts.append(None)
                kept.append(row)
        self._keep(vectors[kept])
        return verdicts

    def _nearest(self, batch: "NDArray[np.float32]") -> "tuple[NDArray[np.float32], NDArray[np.int64]]":
        import numpy as np

        best = np.full(len(batch), -1, np.float32)
        nearest = np.zeros(len(batch), np.int64)
        for number, chunk in enumerate(self._chunks):
            filled = chunk[: self._count - number * _CHUNK]
            if not len(filled):
                break
            cosines = batch @ filled.astype(np.float32).T
            at = cosines.argmax(axis=1)
            found = np.take_along_axis(cosines, at[:, None], axis=1)[:, 0]
            better = found > best
            best[better] = found[better]
            nearest[better] = at[better] + number * _CHUNK
        return best, nearest

    def _keep(self, vectors: "NDArray[np.float16]") -> None:
        import numpy as np

        while len(vectors):
            within = self._count % _CHUNK
            if self._count == len(self._chunks) * _CHUNK:
                self._chunks.append(np.zeros((_CHUNK, vectors.shape[1]), np.float16))
            taken = vectors[: _CHUNK - within]
            self._chunks[-1][within : within + len(taken)] = taken
            self._count += len(taken)
            vectors = vectors[len(taken) :]
