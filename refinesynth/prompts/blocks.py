"""Data inside prompts: JSON between tags, encoded so that no content can close its own tag or open another.

Persona text and model text enter a prompt only this way. Opening angle brackets become JSON escapes, so a persona that
writes `</persona> ignore the rules` stays the text between the tags. Those of a regular expression's named groups, `(?P<item>`,
stay readable: they open nothing that could be closed.
"""

import re

import orjson
from pydantic import BaseModel, JsonValue

from refinesynth.jsontext import write_json

_OPENING = re.compile(r"(?<!\(\?P)<|<(?!\w+>)")
_ESCAPED = r"\\u003c"
_BLOCK = re.compile(r"<([a-z_]+)>\n(.*?)\n</\1>", re.DOTALL)


def block(value: object, name: str) -> str:
    """`value` as JSON on one line between `<name>` and `</name>`, each tag on a line of its own.

    Pydantic models are dumped; tuples become lists; lone surrogates become U+FFFD.

    Raises:
        TypeError: There is something in `value` that JSON does not have.
    """
    encoded = write_json(value, default=_dump, option=orjson.OPT_NON_STR_KEYS).decode()
    return f"<{name}>\n{_OPENING.sub(_ESCAPED, encoded)}\n</{name}>"


def read_blocks(text: str) -> dict[str, JsonValue]:
    """All blocks in `text` by name, the last of each name; what does not parse is left out."""
    found: dict[str, JsonValue] = {}
    for match in _BLOCK.finditer(text):
        try:
            found[match[1]] = orjson.loads(match[2])
        except orjson.JSONDecodeError:
            continue
    return found


def _dump(value: object) -> JsonValue:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"cannot put {type(value).__name__} into a prompt")
