"""The worked examples that the prompts show: three scripts and one trajectory, of our own writing, from different domains."""

from functools import cache
from importlib.resources import files
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
    return Examples(scripts=tuple(scripts.values()), trajectory=Draft(script=script, turns=read_turns(told["turns"])))
