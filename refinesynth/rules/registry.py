"""Rules by name: the built-in ones, and those of installed packages (entry points of the group `refinesynth.rules`)."""

import difflib
import inspect
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from refinesynth.actions.wording import quoted
from refinesynth.errors import InputError
from refinesynth.rules.rule import BUILT_IN, Factory

GROUP = "refinesynth.rules"
"""Entry-point group: `MyRule = "my_package.rules:MyRule"`, a class or a function that returns a rule."""


def available() -> dict[str, str]:
    """Every name that `parse` knows, with one line about it; other packages' rules are named but not loaded."""
    chains_first = sorted(BUILT_IN.items(), key=lambda item: isinstance(item[1], type))
    known = {name: _summary(factory) for name, factory in chains_first}
    for name, entry in _installed().items():
        known.setdefault(name, f"from {entry.value}")
    return known


def find(name: str) -> Factory:
    """The factory of that name; an entry point is loaded now.

    Raises:
        InputError: No such name, the entry point cannot be loaded, or it takes the name of a built-in rule, so that
            nobody knows which one is meant.
    """
    installed = _installed()
    if name in BUILT_IN:
        if (shadow := installed.get(name)) is not None:
            raise InputError(
                f"the rule {name!r} is built in, and {shadow.value!r} of {_package(shadow)} is registered under the same "
                f"name; register it under another one, or uninstall that package"
            )
        return BUILT_IN[name]
    if name not in installed:
        raise InputError(_unknown(name, [*BUILT_IN, *installed]))
    entry = installed[name]
    try:
        found = cast("object", entry.load())
    except Exception as error:  # Another package's import may raise anything.
        raise InputError(f"the rule {name!r} cannot be loaded from {entry.value!r}: {error!r}") from error
    if not callable(found):
        raise InputError(f"the rule {name!r} is {found!r} in {entry.value!r}; a class or a function is expected")
    return cast("Factory", found)


def _installed() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _package(entry: EntryPoint) -> str:
    return "an installed package" if entry.dist is None else f"the package {entry.dist.name!r}"


def _summary(factory: Factory) -> str:
    return " ".join((inspect.getdoc(factory) or "").partition("\n\n")[0].split())


def _unknown(name: str, names: list[str]) -> str:
    lower = {known.casefold(): known for known in names}
    near = [lower[match] for match in difflib.get_close_matches(name.casefold(), lower, n=3)]
    meant = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"there is no rule {quoted(name)}.{meant} Known rules: {', '.join(sorted(names, key=str.casefold))}."
