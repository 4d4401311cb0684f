"""Optional libraries, installed with the package's extras: `pip install 'refinesynth[train]'`."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from refinesynth.errors import ConfigurationError


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
