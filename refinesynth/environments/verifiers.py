"""Grounded worlds as a taskset and an environment of verifiers 0.4, for prime-rl among others.

`vf-eval refinesynth-worlds --env.taskset.source runs/worlds` finds them by the module `refinesynth_worlds`. The model plays
in ReAct text, as `refinesynth.chat` writes it; the world answers as the user.
"""

# It is not installed where this is checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false
from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf

from refinesynth.chat import render_task
from refinesynth.environments.grounded import STEPS, GroundedEnvironment, read_worlds
from refinesynth.trajectory import Script


class WorldsConfig(vf.TasksetConfig):
    """Settings `--env.taskset.*`."""

    source: str = ""
    """A run folder of grounded play, or a file of its trajectories."""


class WorldData(vf.TaskData):
    script: dict[str, Any]


class WorldTask(vf.Task[WorldData, vf.State, vf.TaskConfig]):
    """A world to play."""


class WorldsTaskset(vf.Taskset[WorldTask, WorldsConfig]):
    """The worlds of a run, each once."""

    def load(self) -> Iterator[WorldTask]:
        """Tasks in the run's order; raises InputError if `source` cannot be read or holds no world."""
        for world in read_worlds(self.config.source):
            data = WorldData(
                id=world.id,
                name=world.id,
                prompt=render_task(world.script),
                script=world.script.model_dump(mode="json"),
            )
            yield WorldTask(data, self.config.task)


class WorldsEnvConfig(vf.EnvConfig):
    """Settings `--env.*`. The player needs no sandbox."""

    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})
    steps: int = STEPS
    """Most actions of a play."""
    slips: float = 0.0
    """Share of right actions that fail for a moment."""
    seed: int = 0
    """Seed of the slips."""
    success: float = 1.0
    """Weights of `GroundedEnvironment.reward`, with the next three."""
    progress: float = 0.0
    mistake: float = 0.0
    length: float = 0.0


class WorldsEnv(vf.Env[WorldsEnvConfig]):
    """One play: the model acts, the world answers."""

    async def run(self, task: WorldTask, agents: vf.Agents) -> None:
        """Play to the end, and record reward and metrics on the trace."""
        asked = self.config
        world = GroundedEnvironment(Script.model_validate(task.data.script), steps=asked.steps, slips=asked.slips)
        world.reset(asked.seed)
        async with agents.player.interaction(task) as play:
            segment = await play.turn()
            while not segment.terminated:
                observation = world.reply(segment.last_reply)
                if world.done:
                    break
                segment = await play.turn(observation)
        weights = {name: getattr(asked, name) for name in ("success", "progress", "mistake", "length")}
        play.trace.record_reward("world", world.reward(**weights), 1.0)
        play.trace.record_metrics(
            {
                "success": float(world.success),
                "progress": world.progress,
                "mistakes": float(world.mistakes),
                "steps": float(world.taken),
            }
        )
