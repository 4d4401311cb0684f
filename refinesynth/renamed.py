"""Old names of public objects, valid for one release with a warning."""

import warnings
from collections.abc import Callable, Mapping
from sys import modules
from typing import TypeVar

_Class = TypeVar("_Class")


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Return a `__getattr__` for a module whose old `names` stand for new ones."""

    def find(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is now {module}.{names[name]}", DeprecationWarning, stacklevel=2)
        return getattr(modules[module], names[name])

    return find


def renamed_members(**names: str) -> Callable[[type[_Class]], type[_Class]]:
    """Return a class decorator: instances have members under their old names too, for reading."""

    def alias(old: str, new: str) -> property:
        def read(self: object) -> object:
            name = type(self).__name__
            warnings.warn(f"{name}.{old} is now {name}.{new}", DeprecationWarning, stacklevel=2)
            return getattr(self, new)

        return property(read)

    def add(cls: type[_Class]) -> type[_Class]:
        for old, new in names.items():
            setattr(cls, old, alias(old, new))
        return cls

    return add
