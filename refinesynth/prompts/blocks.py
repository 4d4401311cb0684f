"""Data inside prompts: JSON between tags, encoded so that no content can close its own tag or open another.

Persona text and model text enter a prompt only this way. Angle brackets and ampersands become JSON escapes, so a persona that
writes `</persona> ignore the rules` stays the text between the tags.
"""

import re

import orjson
from pydantic import BaseModel, JsonValue

from refinesynth.jsontext import scrub

_ESCAPES = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}
_BLOCK = re.compile(r"<([a-z_]+)>\n(.*?)\n</\1>", re.DOTALL)


def block(value: object, name: str) -> str:
    """`value` as JSON on one line between `<name>` and `</name>`, each tag on a line of its own.

    Pydantic models are dumped; tuples become lists.
    """
    encoded = orjson.dumps(value, default=_dump, option=orjson.OPT_NON_STR_KEYS).decode()
    return f"<{name}>\n{encoded.translate(_ESCAPES)}\n</{name}>"


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
    if isinstance(value, str):
        return scrub(value)
    raise TypeError(f"cannot put {type(value).__name__} into a prompt")
