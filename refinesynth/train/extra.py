"""The libraries that come with `refinesynth[train]`, and what is said where they are missing."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from refinesynth.errors import ConfigurationError


def require(name: str) -> ModuleType:
    """The library of that name, imported.

    Raises:
        ConfigurationError: It is not installed; the message says how to install it.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != name.partition(".")[0]:
            raise
        raise ConfigurationError(missing(name)) from error


def check_installed(*names: str) -> None:
    """Look for libraries without importing them, which takes seconds.

    Raises:
        ConfigurationError: One is not installed.
    """
    for name in names:
        if find_spec(name) is None:
            raise ConfigurationError(missing(name))


def missing(name: str) -> str:
    """What to do about a missing library."""
    extra = {"deepspeed": "deepspeed", "bitsandbytes": "quantize"}.get(name.partition(".")[0], "train")
    return f"training needs {name!r}, which is not installed; install it with: pip install 'refinesynth[{extra}]'"
