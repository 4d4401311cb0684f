"""Language of the templates: Jinja2 in its sandbox, without its functions and filters; data through the filter `block`."""

import re
from functools import lru_cache
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from refinesynth.errors import ConfigurationError
from refinesynth.prompts.data_blocks import block

_TAG = re.compile(r"[a-z_]+")


class Inserted(str):
    """Text from the filter `block`, the only text that an expression in a template may print."""

    __slots__ = ()


class _Language(ImmutableSandboxedEnvironment):
    def is_safe_callable(self, obj: object) -> bool:
        _check_defined(obj)
        # `{% call "{}".format(name) %}` would print data without a block.
        return isinstance(obj, Macro)


@lru_cache(maxsize=4)
def environment_of(sources: frozenset[tuple[str, str]]) -> Environment:
    """Return the environment of these templates, cached with its compiled templates."""
    environment = _Language(
        loader=DictLoader(dict(sources)),
        undefined=StrictUndefined,
        autoescape=False,  # no HTML; the filter `block` escapes data
        finalize=_check_inserted,
    )
    environment.globals.clear()
    environment.filters.clear()
    environment.filters["block"] = _insert
    return environment


def _insert(value: object, name: str) -> Inserted:
    _check_defined(value)
    if not _TAG.fullmatch(name):
        raise ConfigurationError(f"a block's name is made of a-z and _, got {name!r}")
    return Inserted(block(value, name))


def _check_inserted(value: Any) -> Any:
    _check_defined(value)
    if isinstance(value, Inserted) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ConfigurationError('data is printed through the filter "block" only: {{ name | block("name") }}')


def _check_defined(value: object) -> None:
    if isinstance(value, StrictUndefined):
        str(value)  # raises an error that names the variable
