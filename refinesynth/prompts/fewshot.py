"""The worked examples that the prompts show, of our own writing and from different domains: scripts, a trajectory, rulebooks."""

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import cast

import orjson
from pydantic import BaseModel, ConfigDict, JsonValue

from refinesynth.trajectory import Draft, Script, read_turns


class Examples(BaseModel):
    """What is shown to a model before it writes itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scripts: tuple[Script, ...]
    """Shown to the ScriptWriter."""
    trajectory: Draft
    """Shown to the Narrator, with its script."""
    grounded: tuple[Script, ...] = ()
    """Shown to the ScriptWriter in grounded play: scripts with their rulebooks."""


@cache
def shipped_examples() -> Examples:
    """The examples in the package's folder `prompts/examples`."""
    folder = files("refinesynth.prompts") / "examples"
    scripts = {
        entry.name: Script.from_json(entry.read_bytes())
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.startswith("script_")
    }
    told = cast("dict[str, JsonValue]", orjson.loads((folder / "trajectory.json").read_bytes()))
    script = scripts[cast("str", told["script"])]
    return Examples(
        scripts=tuple(scripts.values()),
        trajectory=Draft(script=script, turns=read_turns(told["turns"])),
        grounded=_grounded(folder / "grounded"),
    )


def _grounded(folder: Traversable) -> tuple[Script, ...]:
    """The grounded scripts in a folder, by their files' names; none if there is no such folder."""
    if not folder.is_dir():
        return ()
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".json")), key=lambda entry: entry.name)
    return tuple(Script.from_json(entry.read_bytes()) for entry in files)
