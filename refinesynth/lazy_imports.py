"""Imports on first use: a package's own names, optional libraries, objects of installed packages."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from sys import modules
from types import ModuleType
from typing import Any

from refinesynth.errors import ConfigurationError, InputError


def lazy_names(package: str) -> Callable[[str], object]:
    """Return a `__getattr__` for a package that states the module of each name by imports under `if TYPE_CHECKING`."""

    @cache
    def owners() -> dict[str, str]:
        import ast
        from linecache import getlines  # which reads from archives, too

        source = "".join(getlines(str(modules[package].__file__), vars(modules[package])))
        if not source:
            raise ImportError(
                f"{package} finds its names in its source, which is not here; install it with its .py files"
            )
        imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
        return {alias.name: node.module or "" for node in imports for alias in node.names}

    def find(name: str) -> object:
        if (owner := owners().get(name)) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{name}" if owner == package else owner)
        # A submodule of that name takes precedence over an object of that name in it.
        return vars(modules[package]).get(name) or getattr(module, name)

    return find


def require(name: str, extra: str) -> ModuleType:
    """Import and return the library of that name.

    Raises:
        ConfigurationError: The library is not installed; the message states the installation command.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != name.partition(".")[0]:
            raise
        raise ConfigurationError(missing(name, extra)) from error


def check_installed(extra: str, *names: str) -> None:
    """Check that libraries are installed, without their imports, which take seconds.

    Raises:
        ConfigurationError: A library is not installed.
    """
    for name in names:
        try:
            is_installed = find_spec(name) is not None
        except ValueError:  # a module of this name without a spec is loaded
            is_installed = False
        if not is_installed:
            raise ConfigurationError(missing(name, extra))


def missing(name: str, extra: str) -> str:
    """Return the advice about a missing library."""
    return f"this needs the package {name!r}, which is not installed: pip install 'refinesynth[{extra}]'"


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
