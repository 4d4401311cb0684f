"""The worked examples that the prompts show, of our own writing and from different domains: scripts, trajectories,
rulebooks.

There are more of them than a prompt shows. Which ones, and in which order, is drawn for each episode by its seed, so
that thousands of scripts are not all written after the same three.
"""

from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TypeVar, cast

import orjson
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from refinesynth.trajectory import Draft, Script, read_turns

SHOWN = 3
"""Scripts that a prompt shows at a time, with rulebooks or without, as far as there are so many."""

_Item = TypeVar("_Item")

_DRAWS = 64
"""Bytes of chance: enough to put 98 examples in any order."""


class Kind(StrEnum):
    """Which examples are drawn from. Draws of one kind say nothing about those of another."""

    SCRIPTS = "scripts"
    TRAJECTORIES = "trajectories"
    GROUNDED = "grounded"


class Examples(BaseModel):
    """What is shown to a model before it writes itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scripts: tuple[Script, ...]
    """Shown to the ScriptWriter, `SHOWN` at a time."""
    trajectories: tuple[Draft, ...] = Field(min_length=1)
    """Shown to the Narrator with their scripts, one at a time."""
    grounded: tuple[Script, ...] = ()
    """Shown to the ScriptWriter in grounded play, `SHOWN` at a time: scripts with their rulebooks."""


def drawn(items: Sequence[_Item], kind: Kind, seed: int, *, most: int = SHOWN) -> tuple[_Item, ...]:
    """`most` of the items, or as many as there are, drawn and put in order by a seed: the same everywhere and
    always.
    """
    chance = int.from_bytes(blake2b(f"{seed}/{kind}".encode(), digest_size=_DRAWS).digest())
    left, chosen = list(items), list[_Item]()
    while left and len(chosen) < most:
        chance, at = divmod(chance, len(left))
        chosen.append(left.pop(at))
    return tuple(chosen)


@cache
def shipped_examples() -> Examples:
    """The examples in the package's folder `prompts/examples`."""
    folder = files("refinesynth.prompts") / "examples"
    scripts = {name: Script.from_json(text) for name, text in _texts(folder / "scripts")}
    return Examples(
        scripts=tuple(scripts.values()),
        # A trajectory is named after its script.
        trajectories=tuple(_played(scripts[name], text) for name, text in _texts(folder / "trajectories")),
        grounded=tuple(Script.from_json(text) for _, text in _texts(folder / "grounded")),
    )


def _played(script: Script, text: bytes) -> Draft:
    return Draft(script=script, turns=read_turns(cast("dict[str, JsonValue]", orjson.loads(text))["turns"]))


def _texts(folder: Traversable) -> list[tuple[str, bytes]]:
    """Names and contents of the files in a folder, by their names."""
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".json")]
    return [(entry.name, entry.read_bytes()) for entry in sorted(found, key=lambda entry: entry.name)]
