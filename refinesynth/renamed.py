"""Old names of public objects, valid for one release with a warning."""

import warnings
from collections.abc import Callable, Mapping
from sys import modules


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Return a `__getattr__` for a module whose old `names` stand for new ones."""

    def find(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is now {module}.{names[name]}", DeprecationWarning, stacklevel=2)
        return getattr(modules[module], names[name])

    return find
