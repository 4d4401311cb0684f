"""Import of a package's names on first use."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from sys import modules


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
