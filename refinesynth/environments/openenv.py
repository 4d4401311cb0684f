"""Grounded worlds as an environment of OpenEnv 0.10, served by `app_of`.

Each play takes place in one of the worlds, chosen by `reset(index=3)`, by the seed, or at random.
"""

# OpenEnv is not installed where pyright runs.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false
from functools import partial
from os import PathLike
from random import randrange
from typing import Any
from uuid import uuid4

from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

from refinesynth.environments.grounded import STEPS, GroundedEnvironment, NamedWorld, read_worlds

SPLIT = "train"
"""Name of the split with the worlds."""
_SEEDS = 2**31


class WorldAction(Action):
    action: str


class WorldObservation(Observation):
    """Observation, with the present reward of the play."""

    text: str


class WorldState(State):
    world: str = ""
    progress: float = 0.0
    success: bool = False
    mistakes: int = 0


class WorldsEnvironment(Environment[WorldAction, WorldObservation, WorldState]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, worlds: list[NamedWorld], *, steps: int = STEPS) -> None:
        super().__init__()
        self._worlds = worlds
        self._steps = steps
        self._begin(0, None, None)

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, *, index: int | None = None, **_: Any
    ) -> WorldObservation:
        """Begin a play in the world of that index, or in one chosen by the seed, at random without one.

        Raises IndexError: there is no world of that index.
        """
        return self._begin(randrange(_SEEDS) if seed is None else seed, episode_id, index)

    def step(self, action: WorldAction, timeout_s: float | None = None, **_: Any) -> WorldObservation:
        del timeout_s
        return self._observation(self._world.act(action.action))

    @property
    def state(self) -> WorldState:
        world = self._world
        counts = {name: getattr(world, name) for name in ("progress", "success", "mistakes")}
        return WorldState(episode_id=self._episode, step_count=world.taken, world=self._id, **counts)

    def list_splits(self) -> list[str]:
        return [SPLIT]

    def num_tasks(self, split: str) -> int:
        return len(self._worlds) if split == SPLIT else 0

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        return [self.get_task(split, index) for index in range(self.num_tasks(split))]

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Return id, index and goal of a world; raises IndexError for an unknown world."""
        if not 0 <= index < self.num_tasks(split):
            raise IndexError(f"there is no task {index} in the split {split!r}; it has {self.num_tasks(split)}")
        world = self._worlds[index]
        return {"id": world.id, "index": index, "goal": world.script.goal}

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        return self.list_tasks(split)[start:stop]

    def _begin(self, seed: int, episode: str | None, index: int | None) -> WorldObservation:
        task_index = self.get_task(SPLIT, seed % len(self._worlds) if index is None else index)["index"]
        self._id, script, before = self._worlds[task_index]
        self._episode = episode or str(uuid4())
        self._world = GroundedEnvironment(script, steps=self._steps)
        return self._observation(self._world.reset(seed, before=before))

    def _observation(self, text: str) -> WorldObservation:
        return WorldObservation(text=text, done=self._world.done, reward=self._world.reward())


def app_of(source: str | PathLike[str], *, steps: int = STEPS, start: str = "clean") -> Any:
    """Return a FastAPI application for the worlds of a run folder or a file of trajectories (`read_worlds`)."""
    make = partial(WorldsEnvironment, list(read_worlds(source, start)), steps=steps)
    return create_app(
        make, WorldAction, WorldObservation, env_name="refinesynth", max_concurrent_envs=64, state_cls=WorldState
    )
