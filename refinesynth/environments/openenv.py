"""Grounded worlds as an environment of OpenEnv 0.10: a package that `openenv` validates, builds and pushes.

`write_package` writes it. Its server plays any of the worlds, one in each session; `reset(index=3)` chooses, else the
seed does.
"""

# It is not installed where this is checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false
import json
from functools import partial
from os import PathLike
from pathlib import Path
from string import Template
from typing import Any
from uuid import uuid4

from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

from refinesynth.chat import render_task
from refinesynth.environments.grounded import STEPS, GroundedEnvironment
from refinesynth.environments.worlds import NamedWorld, read_worlds
from refinesynth.errors import InputError
from refinesynth.text.jsontext import write_json
from refinesynth.trajectory import Script

SPLIT = "train"
WORLDS = "worlds.jsonl"
"""Of a package: a line of JSON for each world, its `id` and `script`."""


class WorldAction(Action):
    """What a player does."""

    action: str


class WorldObservation(Observation):
    """What comes of it; `reward` is that of the play so far."""

    text: str


class WorldState(State):
    """How far a play is."""

    world: str = ""
    progress: float = 0.0
    success: bool = False
    mistakes: int = 0


class WorldsEnvironment(Environment[WorldAction, WorldObservation, WorldState]):
    """Plays one of the worlds at a time."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, worlds: list[NamedWorld], *, steps: int = STEPS) -> None:
        super().__init__()
        self._worlds = worlds
        self._steps = steps
        self._begin(0, None, None)

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, *, index: int | None = None, **_: Any
    ) -> WorldObservation:
        """Begin a play in the world of that index, or of that seed; the task.

        Raises:
            IndexError: There is no such world.
        """
        return self._begin(seed or 0, episode_id, index)

    def step(self, action: WorldAction, timeout_s: float | None = None, **_: Any) -> WorldObservation:
        """Take an action, as text; a world needs no time to speak of."""
        del timeout_s
        return self._observed(self._world.act(action.action))

    @property
    def state(self) -> WorldState:
        """How far the play is."""
        world = self._world
        return WorldState(
            episode_id=self._episode,
            step_count=world.taken,
            world=self._id,
            progress=world.progress,
            success=world.success,
            mistakes=world.mistakes,
        )

    def list_splits(self) -> list[str]:
        """One: the run's own."""
        return [SPLIT]

    def num_tasks(self, split: str) -> int:
        """How many worlds."""
        return len(self._worlds) if split == SPLIT else 0

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """Their ids and goals."""
        return [self.get_task(split, at) for at in range(self.num_tasks(split))]

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """One of them.

        Raises:
            IndexError: There is none.
        """
        if not 0 <= index < self.num_tasks(split):
            raise IndexError(f"there is no task {index} in the split {split!r}; it has {self.num_tasks(split)}")
        world = self._worlds[index]
        return {"id": world.id, "index": index, "goal": world.script.goal}

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        """Some of them."""
        return self.list_tasks(split)[start:stop]

    def _begin(self, seed: int, episode: str | None, index: int | None) -> WorldObservation:
        at = self.get_task(SPLIT, seed % len(self._worlds) if index is None else index)["index"]
        self._id, script = self._worlds[at]
        self._episode = episode or str(uuid4())
        self._world = GroundedEnvironment(script, steps=self._steps)
        self._world.reset(seed)
        return self._observed(render_task(script))

    def _observed(self, text: str) -> WorldObservation:
        return WorldObservation(text=text, done=self._world.done, reward=self._world.reward())


def app_of(folder: str | PathLike[str], *, steps: int = STEPS) -> Any:
    """The FastAPI application of a package that `write_package` wrote."""
    lines = (Path(folder) / WORLDS).read_bytes().splitlines()
    worlds = [NamedWorld(one["id"], Script.model_validate(one["script"])) for one in map(json.loads, lines)]
    make = partial(WorldsEnvironment, worlds, steps=steps)
    return create_app(
        make, WorldAction, WorldObservation, env_name="refinesynth", max_concurrent_envs=64, state_cls=WorldState
    )


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
        folder: A new one.
        name: The environment's, on a hub.
        steps: Actions until a play is over.

    Raises:
        InputError: `source` cannot be read or holds no world, or `folder` is there.
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
dependencies = ["openenv>=0.10", "refinesynth"]

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
