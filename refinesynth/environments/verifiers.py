"""Grounded worlds as a taskset and an environment of verifiers 0.4, for prime-rl among others.

`vf-eval refinesynth-worlds --env.taskset.source runs/worlds` finds them through the module `refinesynth_worlds`. The model
plays in ReAct text, in the form of `refinesynth.chat`, and the world answers as the user; or it plays by native tool
calls, which a server for the play executes.
"""

# verifiers is not installed where pyright runs.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false
# pyright: reportUntypedFunctionDecorator=false
from collections.abc import Iterator
from typing import Any, Literal

import orjson
import verifiers.v1 as vf

from refinesynth.environments.grounded import STEPS, GroundedEnvironment, read_worlds, task_message
from refinesynth.trajectory import Draft, MalformedTurn, Script

_WEIGHTS = ("success", "progress", "mistake", "length", "recovered", "repeat")


class WorldTaskConfig(vf.TaskConfig):
    """Settings `--env.taskset.task.*`."""

    form: Literal["react", "tools"] = "react"
    """Form of the play: text or tool calls, as in the model's training."""


class WorldsConfig(vf.TasksetConfig):
    """Settings `--env.taskset.*`."""

    source: str = ""
    """Run folder of grounded play, or file of its trajectories."""
    task: WorldTaskConfig = WorldTaskConfig()
    start: str = "clean"
    """Beginning of the plays, as for `read_worlds`: `clean`, `mistakes` or `mixed:0.5`."""


class WorldData(vf.TaskData):
    script: dict[str, Any]
    before: list[dict[str, Any]]
    steps: int = STEPS
    slips: float = 0.0
    seed: int = 0

    def start_world(self) -> GroundedEnvironment:
        """Return the world at the beginning of a play."""
        world = GroundedEnvironment(Script.model_validate(self.script), steps=self.steps, slips=self.slips)
        before = Draft.model_validate({"script": self.script, "turns": self.before}).turns
        world.reset(self.seed, before=[turn for turn in before if not isinstance(turn, MalformedTurn)])
        return world

    def world_after(self, trace: Any) -> GroundedEnvironment:
        """Return the world after the calls of a trace, without malformed calls, which the harness refuses."""
        world = self.start_world()
        names = {tool["function"]["name"] for tool in world.tools()}
        for node in trace.nodes:
            for call in getattr(node.message, "tool_calls", None) or []:
                try:
                    arguments = orjson.loads(call.arguments or "{}")
                except orjson.JSONDecodeError:
                    continue
                if call.name in names and isinstance(arguments, dict):
                    world.act({"name": call.name, "arguments": arguments})
        return world


class WorldTools(vf.Toolset[vf.ToolsetConfig, vf.State]):
    """Functions of one world, executed by a separate process during one play."""

    TOOL_PREFIX = None

    async def setup_task(self, task: WorldData) -> None:
        self.world = task.start_world()

    def register(self, mcp: Any) -> None:
        # The handlers of MCPServer call these public methods; verifiers' own toolsets replace them as well.
        mcp.list_tools, mcp.call_tool = self.list_tools, self.call_tool

    async def list_tools(self) -> list[Any]:
        from mcp_types import Tool

        functions = [tool["function"] for tool in self.world.tools()]
        return [Tool(name=fn["name"], description=fn["description"], input_schema=fn["parameters"]) for fn in functions]

    async def call_tool(self, name: str, arguments: dict[str, Any], context: object = None) -> Any:
        from mcp_types import CallToolResult, TextContent

        del context
        return CallToolResult(content=[TextContent(text=self.world.act({"name": name, "arguments": arguments}))])


class WorldTask(vf.Task[WorldData, vf.State, WorldTaskConfig]):
    """A world to play."""

    @classmethod
    def toolsets(cls, config: WorldTaskConfig) -> list[vf.Toolset]:
        return [WorldTools(vf.ToolsetConfig())] if config.form == "tools" else []

    @vf.stop
    async def is_over(self, trace: vf.Trace) -> bool:
        """Return True if a play by calls has reached the goal or its last step."""
        return self.config.form == "tools" and self.data.world_after(trace).done


class WorldsTaskset(vf.Taskset[WorldTask, WorldsConfig]):
    """Tasks for the worlds of `read_worlds`."""

    def load(self) -> Iterator[WorldTask]:
        """Yield tasks in the run's order; raises InputError if `source` cannot be read or holds no world."""
        for world in read_worlds(self.config.source, self.config.start):
            data = WorldData(
                id=world.id,
                name=world.id,
                prompt=task_message(world.script, world.before, self.config.task.form),
                script=world.script.model_dump(mode="json"),
                before=[turn.model_dump(mode="json") for turn in world.before],
            )
            yield WorldTask(data, self.config.task)


class WorldsEnvConfig(vf.EnvConfig):
    """Settings `--env.*`. The player needs no sandbox."""

    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})
    steps: int = STEPS
    slips: float = 0.0
    """Share of right actions that fail transiently."""
    seed: int = 0
    success: float = 1.0
    """Weight of `GroundedEnvironment.reward`, like the next five settings."""
    progress: float = 0.0
    mistake: float = 0.0
    length: float = 0.0
    recovered: float = 0.0
    repeat: float = 0.0


class WorldsEnv(vf.Env[WorldsEnvConfig]):
    """One play: the model acts, the world answers."""

    async def run(self, task: WorldTask, agents: vf.Agents) -> None:
        """Play to the end, and record reward and metrics on the trace."""
        config = self.config
        data = task.data.model_copy(update={"steps": config.steps, "slips": config.slips, "seed": config.seed})
        world = data.start_world()
        async with agents.player.interaction(WorldTask(data, task.config)) as play:
            segment = await play.turn()
            if task.config.form == "tools":
                world = data.world_after(play.trace)
            while not segment.terminated and task.config.form == "react":
                observation = world.reply(segment.last_reply)
                if world.done:
                    break
                segment = await play.turn(observation)
        weights = {name: getattr(config, name) for name in _WEIGHTS}
        play.trace.record_reward("world", world.reward(**weights), 1.0)
        counts = {
            name: float(getattr(world, name)) for name in ("success", "progress", "mistakes", "recovered", "repeats")
        }
        play.trace.record_metrics({**counts, "steps": float(world.taken)})


if __name__ == "__main__":
    WorldTools.run()
