"""Grounded worlds as a package for `openenv` 0.10, served by `refinesynth.environments.openenv`."""

from os import PathLike
from pathlib import Path
from string import Template

from refinesynth.environments.grounded import STEPS, read_worlds
from refinesynth.errors import InputError
from refinesynth.text.jsontext import write_json

SPLIT = "train"
"""Split that holds the worlds."""
WORLDS = "worlds.jsonl"
"""File with one line of JSON per world, its `id`, `script` and, where the play begins behind a mistake, the turns `before`."""


_TEMPLATES = Path(__file__).with_name("openenv_files")
"""Files of a package, with `$name` and the like for what differs."""


def write_package(
    source: str | PathLike[str],
    folder: str | PathLike[str],
    *,
    name: str = "refinesynth_worlds_env",
    steps: int = STEPS,
    start: str = "clean",
) -> Path:
    """Write the worlds of a run as a package for `openenv validate`, `build` and `push`.

    Args:
        source: A run folder of grounded play, or a file of its trajectories.
        folder: A new folder.
        name: Name of the environment on a hub.
        steps: Most actions of a play.
        start: Beginning of the plays: `clean`, `mistakes` or `mixed:0.5`, see `read_worlds`.

    Raises:
        InputError: `source` cannot be read or holds no world, or `folder` exists.
    """
    folder = Path(folder)
    worlds = list(read_worlds(source, start))
    if folder.exists():
        raise InputError(f"{str(folder)!r} is there already; name a new folder")
    values = {"name": name, "steps": steps, "count": len(worlds), "split": SPLIT}
    for template in _TEMPLATES.rglob("*.template"):
        path = folder / template.relative_to(_TEMPLATES).with_suffix("")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template(template.read_text(encoding="utf-8")).substitute(values), encoding="utf-8")
    (folder / "server" / "__init__.py").touch()
    with (folder / WORLDS).open("wb") as file:
        for world in worlds:
            before = [turn.model_dump(mode="json") for turn in world.before]
            script = world.script.model_dump(mode="json")
            file.write(write_json({"id": world.id, "script": script, **({"before": before} if before else {})}) + b"\n")
    return folder
