"""Near-duplicates among scripts, compared by sketches of 256 bytes."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from refinesynth.diversity.structure import Structure
from refinesynth.errors import InputError
from refinesynth.extras import check_installed
from refinesynth.trajectory import Script

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


PARTS = {"world": 128, "actions": 80, "goal": 48}
"""Bytes of a sketch for each part of a structure, which are its weight."""

SIZE = sum(PARTS.values())

_MAX_COUNT = 64
"""Most occurrences of a feature that count."""


def sketch(script: Script) -> "NDArray[np.uint8]":
    """Sketch of a script, `SIZE` bytes, deterministic.

    MinHash by parts: a byte of a part is equal in two sketches with the probability that is the Jaccard similarity of the
    two multisets of features, and by chance in 1 of 256 cases. The share of equal bytes is the mean of the parts'
    similarities weighted by `PARTS`, with a standard error of at most 0.03.
    """
    import numpy as np

    structure = Structure.of(script)
    parts: list[Any] = []
    for part, size in PARTS.items():
        minhash = _empty(size).copy()
        if hashes := list(_hashes(getattr(structure, part))):
            minhash.update_batch(hashes)
        parts.append(minhash.hashvalues)
    # The lowest bits are as good as any: the hash is a bijection of well-mixed bits.
    return np.concatenate(parts).astype(np.uint8)


@cache
def _empty(size: int) -> Any:
    from datasketch import MinHash

    return MinHash(num_perm=size, seed=size, hashfunc=int, scheme="affine32")


def _hashes(features: Counter[str]) -> Iterator[int]:
    """One 32-bit hash for each occurrence of a feature."""
    for feature, count in features.items():
        first = int(feature, 16)
        for again in range(min(count, _MAX_COUNT)):
            yield (first + again * 0x9E3779B1) & 0xFFFFFFFF


NEAR_DUPLICATE = "NearDuplicate"
"""Name of the rule that refuses a script which resembles another."""

NEAR = 0.85
"""Threshold that separates copies from other scripts, measured in docs/diversity.md."""

_BLOCK = 4_096
"""Sketches compared at a time: 1 MiB, which fits a processor's cache."""


@dataclass(frozen=True, kw_only=True)
class NearDuplicate:
    """The most similar script that was admitted before; of several, the first."""

    of: str
    similarity: float
    """0 to 1, the mean of world, actions and goal, weighted 8 : 5 : 3."""
    world: float
    """Similarity of the environments' facts, independent of names."""
    actions: float
    """Similarity of the actions' wording, and in grounded scripts of their effects."""
    goal: float
    """Similarity of the goals, independent of names."""


class Novelty:
    """Index that admits scripts which resemble no earlier one. Results depend on the order alone.

    Memory: 256 bytes per script and its name. A comparison with 32,000 scripts takes one or two milliseconds.
    """

    def __init__(self, threshold: float = NEAR) -> None:
        """Refuse scripts of at least this similarity, above 0 and at most 1.

        Raises InputError: `threshold` is out of range, or a package is missing (extra `diversity`).
        """
        check_installed("diversity", "datasketch", "numpy")
        if not 0 < threshold <= 1:
            raise InputError(f"a threshold of similarity is {threshold!r}; expected more than 0 and at most 1")
        self.threshold = threshold
        self._names: list[str] = []
        self._blocks: list[NDArray[np.uint8]] = []
        """Arrays of `SIZE` rows and `_BLOCK` columns, one column per script."""

    def __len__(self) -> int:
        return len(self._names)

    def admits(self, script: Script, name: str) -> NearDuplicate | None:
        """The script that this one resembles too much; None admits it as `name`. Never raises."""
        known = sketch(script)
        found = self._nearest(known)
        if found is not None and found.similarity >= self.threshold:
            return found
        self._remember(known, name)
        return None

    def learn(self, scripts: Iterable[tuple[str, Script]]) -> None:
        """Add scripts with their names that were admitted before, in the same order."""
        for name, script in scripts:
            self._remember(sketch(script), name)

    def _nearest(self, known: "NDArray[np.uint8]") -> NearDuplicate | None:
        import numpy as np

        best, where = -1, -1
        for number, block in enumerate(self._blocks):
            used = min(_BLOCK, len(self) - number * _BLOCK)
            equal = (block[:, :used] == known[:, None]).sum(axis=0, dtype=np.uint16)
            at = int(equal.argmax())
            if equal[at] > best:
                best, where = int(equal[at]), number * _BLOCK + at
        if where < 0:
            return None
        same = self._blocks[where // _BLOCK][:, where % _BLOCK] == known
        ends = np.cumsum([0, *PARTS.values()]).tolist()
        parts = {
            name: round(float(same[start:end].mean()), 3)
            for name, start, end in zip(PARTS, ends, ends[1:], strict=False)
        }
        return NearDuplicate(of=self._names[where], similarity=round(best / SIZE, 3), **parts)

    def _remember(self, known: "NDArray[np.uint8]", name: str) -> None:
        import numpy as np

        number, at = divmod(len(self), _BLOCK)
        if number == len(self._blocks):
            self._blocks.append(np.zeros((SIZE, _BLOCK), dtype=np.uint8))
        self._blocks[number][:, at] = known
        self._names.append(name)
