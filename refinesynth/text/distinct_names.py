"""Distinct names: a repeated name gets a number."""

from collections import Counter


class DistinctNames:
    """Returns `name`, then `name-2`, `name-3`, ..."""

    def __init__(self) -> None:
        self._given = Counter[str]()
        """Number of times each name was given."""

    def __call__(self, name: str) -> str:
        self._given[name] += 1
        free = name
        while self._given[name] > 1 and self._given[free := f"{name}-{self._given[name]}"]:
            self._given[name] += 1
        if free != name:
            self._given[free] = 1
        return free
