"""Scripts without near-duplicates among those before them, compared by sketches of 256 bytes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from refinesynth.errors import InputError
from refinesynth.extras import check_installed
from refinesynth.trajectory import Script

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from refinesynth.diversity.structure import Structure

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


PARTS = {"world": 128, "actions": 80, "goal": 48}
"""How many bytes of a sketch each part of a structure has: its weight."""

SIZE = sum(PARTS.values())
"""Bytes of a sketch."""

_MAX_COUNT = 64
"""A feature that is there more often than this counts as if it were there so often."""


def sketch(script: Script) -> "NDArray[np.uint8]":
    """The sketch of a script, `SIZE` bytes, always the same for the same script.

    MinHash by parts: a byte of a part is equal in two sketches with the probability that is the Jaccard similarity of
    the two parts (of features with their counts), and by chance in one of 256 cases besides. So the share of equal
    bytes is the mean of the parts' similarities, weighted by `PARTS`, with a standard error of 0.03 at most.
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

    return MinHash(num_perm=size, seed=size, hashfunc=_as_it_is, scheme="affine32")


def _as_it_is(hashed: int) -> int:
    return hashed


def _hashes(features: Counter[str]) -> Iterator[int]:
    """32 bits for each feature, and others for each time that it is there again."""
    for feature, count in features.items():
        first = int(feature, 16)
        for again in range(min(count, _MAX_COUNT)):
            yield (first + again * 0x9E3779B1) & 0xFFFFFFFF


NEAR_DUPLICATE = "NearDuplicate"
"""The rule in whose name a script is refused that resembles another."""

NEAR = 0.85
"""Threshold that separates copies from other scripts, see docs/diversity.md for how it was measured."""

_BLOCK = 4_096
"""Sketches that are compared at a time: a megabyte, which a processor's cache holds."""


@dataclass(frozen=True, kw_only=True)
class NearDuplicate:
    """What a script resembles most, of all that were admitted before; of several that it resembles alike, the first."""

    of: str
    """Name under which the other script was admitted."""
    similarity: float
    """0 to 1: that of world, actions and goal, weighted 8 : 5 : 3."""
    world: float
    """Similarity of the environments' facts, independent of names."""
    actions: float
    """Similarity of what the actions look like, and in a grounded script of what they do."""
    goal: float
    """Similarity of the goals, independent of names."""


class Novelty:
    """Admits scripts that resemble none that it admitted before. What it answers depends on their order alone.

    It remembers `SIZE` (256) bytes a script and its name. A comparison with 32,000 scripts takes a millisecond
    or two.
    """

    def __init__(self, threshold: float = NEAR) -> None:
        """Refuse what has at least this similarity to something, more than 0 and at most 1.

        Raises:
            InputError: It is not in this range.
            ConfigurationError: A package is missing (extra `diversity`).
        """
        check_installed("diversity", "datasketch", "numpy")
        if not 0 < threshold <= 1:
            raise InputError(f"a threshold of similarity is {threshold!r}; expected more than 0 and at most 1")
        self.threshold = threshold
        self._names: list[str] = []
        self._blocks: list[NDArray[np.uint8]] = []
        """Of `SIZE` rows and `_BLOCK` columns, a column for each script."""

    def __len__(self) -> int:
        return len(self._names)

    def admits(self, script: Script, name: str) -> NearDuplicate | None:
        """What the script resembles too much; None if there is nothing, and then it is remembered under `name`.

        Never raises, for any script.
        """
        known = sketch(script)
        found = self._nearest(known)
        if found is not None and found.similarity >= self.threshold:
            return found
        self._remember(known, name)
        return None

    def learn(self, scripts: Iterable[tuple[str, Script]]) -> None:
        """Remember scripts, with their names, that were admitted before; in the same order."""
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
