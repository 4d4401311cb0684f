"""Tables of named objects of this package and of installed packages, which register theirs as entry points."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from refinesynth.errors import InputError


@dataclass(frozen=True)
class Table:
    """Objects of one kind by name; an object is imported when it is loaded."""

    kind: str
    """Name of the kind in messages: `play`."""
    group: str
    """Entry-point group of installed packages: `refinesynth.plays`."""
    built_in: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name to `module:object` in the package. An entry point of the same name does not replace it."""

    def entries(self) -> dict[str, EntryPoint]:
        """Return all entries: built-in ones in their order, then entries of installed packages by name."""
        built_in = {name: EntryPoint(name, target, self.group) for name, target in self.built_in.items()}
        installed = sorted(entry_points(group=self.group), key=lambda entry: entry.name)
        return {**built_in, **{entry.name: entry for entry in installed if entry.name not in built_in}}

    def entry(self, name: str) -> EntryPoint:
        """Return the entry of that name; raises InputError for an unknown name."""
        entries = self.entries()
        # Untyped callers may pass anything.
        entry = entries.get(name) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if entry is None:
            raise InputError(f"{self.kind} is {name!r}; expected one of {', '.join(map(repr, entries))}")
        return entry

    def load(self, name: str, fits: Callable[[Any], bool], expected: str) -> Any:
        """Import and return the object of that name.

        Raises:
            InputError: The name is unknown, or the object cannot be loaded or does not fit; `expected` describes fitting objects.
        """
        entry = self.entry(name)
        try:
            loaded = entry.load()
        except Exception as error:  # Another package's import may raise anything.
            raise InputError(f"the {self.kind} {name!r} cannot be loaded from {entry.value!r}: {error!r}") from error
        if not fits(loaded):
            raise InputError(f"the {self.kind} {name!r} is {loaded!r} in {entry.value!r}; {expected} is expected")
        return loaded
