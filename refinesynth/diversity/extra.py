"""What this room needs and the package does without."""

from importlib.util import find_spec

from refinesynth.errors import ConfigurationError

PACKAGES = ("datasketch", "numpy")


def check_installed(what: str) -> None:
    """Look for the packages, without importing them.

    Raises:
        ConfigurationError: One is not there; the message says what for, in the words given, and how to get it.
    """
    for package in PACKAGES:
        try:
            found = find_spec(package) is not None
        except ValueError:
            found = False
        if not found:
            raise ConfigurationError(f"{what} needs the package {package}: pip install 'refinesynth[diversity]'")
