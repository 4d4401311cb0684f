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
"""File with one line of JSON per world, its `id` and `script`."""


def write_package(
    source: str | PathLike[str],
    folder: str | PathLike[str],
    *,
    name: str = "refinesynth_worlds_env",
    steps: int = STEPS,
) -> Path:
    """Write the worlds of a run as a package for `openenv validate`, `build` and `push`.

    Args:
       source: A run folder of grounded play, or a file of its trajectories.
       folder: A new folder.
       name: Name of the environment on a hub.
       steps: Most actions of a play.

    Raises:
       InputError: `source` cannot be read or holds no world, or `folder` exists.
    """
    folder = Path(folder)
    worlds = list(read_worlds(source))
    if folder.exists():
        raise InputError(f"{str(folder)!r} is there already; name a new folder")
    values = {"name": name, "steps": steps, "count": len(worlds), "split": SPLIT}
    for path, text in _FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(Template(text).substitute(values), encoding="utf-8")
    with (folder / WORLDS).open("wb") as file:
        for world in worlds:
            file.write(write_json({"id": world.id, "script": world.script.model_dump(mode="json")}) + b"\n")
    return folder


_FILES = {
    "openenv.yaml": """\
spec_version: 1
name: $name
version: 0.1.0
type: space
runtime: fastapi
app: server.app:app
port: 8000
validation:
  reward:
    range: [0.0, 1.0]
    oracle_tolerance: 0.0
    floor_margin: 0.5
  resources:
    cpu: 1.0
    memory_mb: 1024
    disk_mb: 512
    episode_timeout_s: 60.0
  capabilities:
    verifier:
      kind: reward_channel
    oracle:
      form: script
      location: solution/solve.sh
    task_api: true
    declared_task_count:
      $split: $count
  types:
    tags: [text-world, agents]
""",
    "pyproject.toml": """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "$name"
version = "0.1.0"
description = "Text worlds with a goal that is checked"
requires-python = ">=3.11"
dependencies = ["refinesynth[openenv]"]

[project.scripts]
server = "server.app:main"

[tool.setuptools]
packages = ["server"]
""",
    "server/__init__.py": "",
    "server/app.py": '''\
"""The environment as a server: `python -m server.app`."""

from pathlib import Path

from refinesynth.environments.openenv import app_of

app = app_of(Path(__file__).parents[1], steps=$steps)


def main(host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve it."""
    import uvicorn

    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
''',
    "solution/solve.sh": '#!/bin/sh\n# Plays every world\'s own solution on a running server and checks that each is worth 1.\nexec python "$$(dirname "$$0")/solve.py" "$$@"\n',
    "solution/solve.py": '''\
"""solve.py [http://localhost:8000]: the reward of each world's own solution, which is 1."""

# It is not installed where this is checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false
import json
import sys
from pathlib import Path

from openenv.core.generic_client import GenericEnvClient

url = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"
worlds = [json.loads(line) for line in (Path(__file__).parents[1] / "worlds.jsonl").read_bytes().splitlines()]
with GenericEnvClient(base_url=url).sync() as client:
    for index, world in enumerate(worlds):
        result = client.reset(index=index)
        for action in world["script"]["rulebook"]["solution"]:
            result = client.step({"action": action})
        print(world["id"], result.reward, result.done)
        assert result.reward == 1.0 and result.done, world["id"]
''',
}
