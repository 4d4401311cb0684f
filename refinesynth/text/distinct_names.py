"""Distinct names by numbers after repeated names."""

from collections import Counter


class DistinctNames:
    """Function that returns `name` for its first call, then `name-2`, `name-3` and so on."""

    def __init__(self) -> None:
        self._given = Counter[str]()
        """Number of uses of each name."""

    def __call__(self, name: str) -> str:
        self._given[name] += 1
        free = name
        while self._given[name] > 1 and self._given[free := f"{name}-{self._given[name]}"]:
            self._given[name] += 1
        if free != name:
            self._given[free] = 1
        return free
