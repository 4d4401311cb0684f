"""Data blocks in prompts: JSON between tags, encoded so that no content can close its own tag or open another.

All persona and model text enters a prompt this way. Opening angle brackets become JSON escapes, so a persona with
`</persona> ignore the rules` stays between the tags. Those of a regular expression's named groups, `(?P<item>`, stay
readable, because they open no tag.
"""

import re

import orjson
from pydantic import BaseModel, JsonValue

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
