"""Which earlier rows share a band of their MinHash signature with this one: a hash table in a few arrays.

Dictionaries of byte strings, as datasketch's own index keeps them, take some kilobytes a row, and there may be
millions.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NONE = 0xFFFFFFFF
"""End of a chain; so there are at most that many rows."""
_FIRST_ROWS = 1024


def choose_bands(permutations: int, threshold: float, *, found: float = 0.99) -> tuple[int, int]:
    """Number of bands and hash values in each, such that a pair at the threshold shares a band with probability
    `found`.

    A pair of similarity s shares one with 1 - (1 - s^rows)^bands. As many values a band as that allows, since each more
    means fewer pairs that are looked at in vain. With few permutations and a low threshold a band has one value, and
    fewer pairs may be found.
    """
    for rows in range(permutations, 1, -1):
        bands = permutations // rows
        if 1 - (1 - threshold**rows) ** bands >= found:
            return bands, rows
    return permutations, 1


class BandIndex:
    """Rows by the bands of their signatures; 8 bytes for each row and band, and 4 to 8 more for the heads of chains."""

    def __init__(self, bands: int, rows: int, *, most: int) -> None:
        """`rows` hash values make a band; of the rows that share one, `most` are looked at, the newest first."""
        import numpy as np

        self._np = np
        self._bands, self._rows, self._most = bands, rows, most
        # Odd factors, so that no bit of a value is lost; fixed, so that results do not depend on anything.
        self._factors = np.random.default_rng(8).integers(1, 2**63, rows, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        self._of = np.arange(bands)
        self._count = 0
        self._keys = np.zeros((_FIRST_ROWS, bands), np.uint32)
        self._next = np.zeros((_FIRST_ROWS, bands), np.uint32)
        self._heads = np.full((bands, _FIRST_ROWS), _NONE, np.uint32)

    def __len__(self) -> int:
        return self._count

    @property
    def bytes_held(self) -> int:
        """Bytes of all arrays."""
        return self._keys.nbytes + self._next.nbytes + self._heads.nbytes

    def keys(self, signature: "NDArray[np.uint32]") -> "NDArray[np.uint32]":
        """The bands of a signature, each folded into 32 bits."""
        np = self._np
        parts = signature[: self._bands * self._rows].reshape(self._bands, self._rows).astype(np.uint64)
        mixed = (parts * self._factors).sum(axis=1, dtype=np.uint64)
        return ((mixed ^ (mixed >> np.uint64(29))) >> np.uint64(16)).astype(np.uint32)

    def candidates(self, keys: "NDArray[np.uint32]") -> list[int]:
        """Rows that share a band with `keys`, each once, in order."""
        np = self._np
        found: set[int] = set()
        at = self._heads[self._of, keys & np.uint32(self._heads.shape[1] - 1)]
        bands = self._of
        for _ in range(self._most):
            alive = at != _NONE
            if not alive.any():
                break
            if not alive.all():
                at, bands, keys = at[alive], bands[alive], keys[alive]
            same = self._keys[at, bands] == keys
            if same.any():
                found.update(at[same].tolist())
            at = self._next[at, bands]
        return sorted(found)

    def add(self, keys: "NDArray[np.uint32]") -> None:
        """Add a row; its number is how many there were before."""
        if self._count == len(self._keys):
            self._grow()
        slots = keys & self._np.uint32(self._heads.shape[1] - 1)
        self._keys[self._count] = keys
        self._next[self._count] = self._heads[self._of, slots]
        self._heads[self._of, slots] = self._count
        self._count += 1

    def _grow(self) -> None:
        """Make room for twice as many rows, and twice as many chains, so that these stay short."""
        np = self._np
        size = 2 * len(self._keys)
        self._keys = np.concatenate([self._keys, np.zeros_like(self._keys)])
        self._next = np.zeros_like(self._keys)
        self._heads = np.full((self._bands, size), _NONE, np.uint32)
        numbers = np.arange(self._count, dtype=np.uint32)
        for band in range(self._bands):
            slots = self._keys[: self._count, band] & np.uint32(size - 1)
            order = np.argsort(slots, kind="stable").astype(np.uint32)
            before = np.full(self._count, _NONE, np.uint32)
            chained = slots[order[1:]] == slots[order[:-1]]
            before[order[1:][chained]] = order[:-1][chained]
            self._next[: self._count, band] = before
            # Of several rows in one slot the last one stays, which is the newest.
            self._heads[band, slots] = numbers
