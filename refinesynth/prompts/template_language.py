"""Language of the templates: blocks, conditions, loops over data, other templates, and data through the filter `block`.

Templates cannot call, assign or multiply, and the size of a filled one is bounded, so a user's template can be wrong
but cannot exhaust the machine.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined, TemplateSyntaxError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from refinesynth.errors import ConfigurationError
from refinesynth.prompts.data_blocks import block

MAX_CHARACTERS = 10_000_000
"""Longest filled section in characters, far above any model's context."""
_MAX_PIECES = 1_000_000
"""Maximum number of pieces in a section; each iteration of a loop is at least one."""
_MAX_LOOPS = 3
"""Maximum nesting of loops."""

_STATEMENTS = (nodes.Output, nodes.Block, nodes.If, nodes.For, nodes.Include)
_EXPRESSIONS = (nodes.Call, nodes.Mul, nodes.Pow, nodes.Mod)
"""Syntax that templates may not use."""
_TAG = re.compile(r"[a-z_]+")


class Inserted(str):
    """Text from the filter `block`, the only text that an expression in a template may print."""

    __slots__ = ()


class _Language(ImmutableSandboxedEnvironment):
    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for node in tree.find_all((nodes.Stmt, *_EXPRESSIONS)):
            if not isinstance(node, _STATEMENTS):
                said = type(node).__name__.lower()
                raise TemplateSyntaxError(f"{said!r} is not part of the language of templates", node.lineno, name)
        _bound_loops(tree, name, 0)
        return tree


def _bound_loops(node: nodes.Node, name: str | None, depth: int) -> None:
    for child in node.iter_child_nodes():
        if isinstance(child, nodes.For):
            if depth == _MAX_LOOPS or child.recursive:
                raise TemplateSyntaxError(f"more than {_MAX_LOOPS} loops inside each other", child.lineno, name)
            # `joined` must see each iteration, even an empty one.
            child.body.insert(0, nodes.Output([nodes.TemplateData("")], lineno=child.lineno))
        _bound_loops(child, name, depth + isinstance(child, nodes.For))


def joined(pieces: Iterable[str]) -> str:
    """Return a section of a filled template.

    Raises:
        ConfigurationError: It is longer than any prompt, or has too many pieces.
    """
    found, characters = list[str](), 0
    for piece in pieces:
        found.append(piece)
        characters += len(piece)
        if characters > MAX_CHARACTERS or len(found) > _MAX_PIECES:
            raise ConfigurationError(
                f"what it gives is longer than {MAX_CHARACTERS:,} characters or {_MAX_PIECES:,} pieces; mind its loops"
            )
    return "".join(found)


@lru_cache(maxsize=4)
def environment_of(sources: frozenset[tuple[str, str]]) -> Environment:
    """Return the environment of these templates, cached with its compiled templates."""
    environment = _Language(
        loader=DictLoader(dict(sources)),
        undefined=StrictUndefined,
        autoescape=False,  # no HTML; the filter `block` escapes data
        finalize=_only_inserted,
    )
    environment.globals.clear()
    environment.filters.clear()
    environment.filters["block"] = _insert
    return environment


def _insert(value: object, name: str) -> Inserted:
    _must_be_there(value)
    if not _TAG.fullmatch(name):
        raise ConfigurationError(f"a block's name is made of a-z and _, got {name!r}")
    return Inserted(block(value, name))


def _only_inserted(value: Any) -> Any:
    _must_be_there(value)
    if isinstance(value, Inserted) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ConfigurationError('data is printed through the filter "block" only: {{ name | block("name") }}')


def _must_be_there(value: object) -> None:
    if isinstance(value, StrictUndefined):
        str(value)  # raises an error that names the variable
