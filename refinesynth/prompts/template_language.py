"""Language of the templates: Jinja2 in its sandbox, without its functions and filters; data through the filter `block`.

All persona and model text enters a prompt as a data block: JSON between tags, encoded so that no content can close its
own tag or open another. Opening angle brackets become JSON escapes, so a persona with `</persona> ignore the rules`
stays between the tags. Those of a regular expression's named groups, `(?P<item>`, stay readable: they open no tag.
"""

import re
from functools import lru_cache
from typing import Any

import orjson
from jinja2 import DictLoader, Environment, StrictUndefined
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import BaseModel, JsonValue

from refinesynth.errors import ConfigurationError
from refinesynth.text.json_reader import write_json

_ESCAPED = r"\u003c"
_GROUP = "(?P"
_GROUP_NAME = re.compile(r"\w+>")
_BLOCK = re.compile(r"<([a-z_]+)>\n(.*?)\n</\1>", re.DOTALL)


def block(value: object, name: str) -> str:
    """Return `value` as JSON on one line between `<name>` and `</name>`, each tag on its own line.

    Pydantic models are dumped, tuples become lists, lone surrogates become U+FFFD.

    Raises:
        TypeError: `value` holds something that JSON does not have.
    """
    return f"<{name}>\n{encode(value)}\n</{name}>"


def encode(value: object) -> str:
    """Return `value` in the encoding used between tags.

    Raises:
        TypeError: `value` holds something that JSON does not have.
    """
    encoded = write_json(value, default=_dump, option=orjson.OPT_NON_STR_KEYS).decode()
    # Split instead of substituted: about 100 times faster in long text without brackets.
    before, *rest = encoded.split("<")
    pieces = [before]
    for after in rest:
        pieces += "<" if before.endswith(_GROUP) and _GROUP_NAME.match(after) else _ESCAPED, after
        before = after
    return "".join(pieces)


def read_blocks(text: str) -> dict[str, JsonValue]:
    """Return all blocks in `text` by name, the last of each name; unparsable ones are omitted."""
    blocks: dict[str, JsonValue] = {}
    for match in _BLOCK.finditer(text):
        try:
            blocks[match[1]] = orjson.loads(match[2])
        except orjson.JSONDecodeError:
            continue
    return blocks


def _dump(value: object) -> JsonValue:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"cannot put {type(value).__name__} into a prompt")


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
