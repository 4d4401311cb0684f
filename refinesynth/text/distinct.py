"""Names that are all distinct: of one that was there before, another with a number behind it."""

from collections import Counter


class DistinctNames:
    """Gives `name`, then `name-2`, `name-3`, ...; knows every name that it gave."""

    def __init__(self) -> None:
        self._given = Counter[str]()
        """How often each name was asked for, or given."""

    def __call__(self, name: str) -> str:
        """The name, or a numbered one where it was given before."""
        self._given[name] += 1
        free = name
        while self._given[name] > 1 and self._given[free := f"{name}-{self._given[name]}"]:
            self._given[name] += 1
        if free != name:
            self._given[free] = 1
        return free
