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

from refinesynth.environments.grounded import STEPS, GroundedEnvironment, read_worlds, tell_task
from refinesynth.trajectory import Draft, MalformedTurn, Script

_WEIGHTS = ("success", "progress", "mistake", "length", "recovered", "repeat")


class WorldsConfig(vf.TasksetConfig):
    """Settings `--env.taskset.*`."""

    source: str = ""
    """A run folder of grounded play, or a file of its trajectories."""
    start: str = "clean"
    """Beginning of the plays: `clean`, `mistakes` or `mixed:0.5`, see `read_worlds`."""


class WorldData(vf.TaskData):
    script: dict[str, Any]
    before: list[dict[str, Any]]


class WorldTask(vf.Task[WorldData, vf.State, vf.TaskConfig]):
    """A world to play."""


class WorldsTaskset(vf.Taskset[WorldTask, WorldsConfig]):
    """The worlds of a run, each once."""

    def load(self) -> Iterator[WorldTask]:
        """Tasks in the run's order; raises InputError if `source` cannot be read or holds no world."""
        for world in read_worlds(self.config.source, self.config.start):
            data = WorldData(
                id=world.id,
                name=world.id,
                prompt=tell_task(world.script, world.before),
                script=world.script.model_dump(mode="json"),
                before=[turn.model_dump(mode="json") for turn in world.before],
            )
            yield WorldTask(data, self.config.task)


class WorldsEnvConfig(vf.EnvConfig):
    """Settings `--env.*`. The player needs no sandbox."""

    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})
    steps: int = STEPS
    slips: float = 0.0
    """Share of right actions that fail for a moment."""
    seed: int = 0
    success: float = 1.0
    """Weights of `GroundedEnvironment.reward`, with the next five."""
    progress: float = 0.0
    mistake: float = 0.0
    length: float = 0.0
    recovered: float = 0.0
    repeat: float = 0.0


class WorldsEnv(vf.Env[WorldsEnvConfig]):
    """One play: the model acts, the world answers."""

    async def run(self, task: WorldTask, agents: vf.Agents) -> None:
        """Play to the end, and record reward and metrics on the trace."""
        asked = self.config
        world = GroundedEnvironment(Script.model_validate(task.data.script), steps=asked.steps, slips=asked.slips)
        before = Draft.model_validate({"script": task.data.script, "turns": task.data.before}).turns
        world.reset(asked.seed, before=[turn for turn in before if not isinstance(turn, MalformedTurn)])
        async with agents.player.interaction(task) as play:
            segment = await play.turn()
            while not segment.terminated:
                observation = world.reply(segment.last_reply)
                if world.done:
                    break
                segment = await play.turn(observation)
        weights = {name: getattr(asked, name) for name in _WEIGHTS}
        play.trace.record_reward("world", world.reward(**weights), 1.0)
        play.trace.record_metrics(
            {
                "success": float(world.success),
                "progress": world.progress,
                "mistakes": float(world.mistakes),
                "steps": float(world.taken),
                "recovered": float(world.recovered),
                "repeats": float(world.repeats),
            }
        )
