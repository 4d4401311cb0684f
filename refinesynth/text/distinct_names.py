"""Distinct names by numbers after repeated names."""

from collections import Counter


class DistinctNames:
    """Function that returns `name` for its first call, then `name-2`, `name-3` and so on."""

    def __init__(self) -> None:
        self._uses = Counter[str]()
        """Number of uses of each name."""

    def __call__(self, name: str) -> str:
        self._uses[name] += 1
        candidate = name
        while self._uses[name] > 1 and self._uses[candidate := f"{name}-{self._uses[name]}"]:
            self._uses[name] += 1
        if candidate != name:
            self._uses[candidate] = 1
        return candidate
