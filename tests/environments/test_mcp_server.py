"""A world over MCP: the official client plays it to its end, and what is no action is answered, not counted."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from samples import SHED_GROUNDED, trajectory

from refinesynth.actions.calls import call_of
from refinesynth.environments import GroundedEnvironment
from refinesynth.environments.mcp import TASK, create_server
from refinesynth.settings import Grounding
from refinesynth.synthesis import synthesize
from refinesynth.trajectory import ActionSpec

SOLUTION: tuple[str, ...] = SHED_GROUNDED.rulebook.solution if SHED_GROUNDED.rulebook else ()


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "trajectories.jsonl"
    path.write_bytes(trajectory(script=SHED_GROUNDED).to_json() + b"\n")
    return path


def text(result: Any) -> str:
    (content,) = result.content
    return content.text


async def play(client: Client, actions: Sequence[str]) -> list[Any]:
    calls = [call_of(SHED_GROUNDED, action) for action in actions]
    return [await client.call_tool(call.name, dict(call.arguments)) for call in calls]


@pytest.mark.process
async def test_the_official_client_plays_a_world_to_its_end(stored: Path) -> None:
    command = StdioServerParameters(command=sys.executable, args=["-m", "refinesynth", "serve-world", str(stored)])
    world = GroundedEnvironment(SHED_GROUNDED)
    async with Client(command) as client:
        assert client.instructions == world.reset(form="tools")
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        functions = [tool["function"] for tool in world.tools()]
        assert list(listed) == [TASK, *(one["name"] for one in functions)]
        assert [listed[one["name"]].input_schema for one in functions] == [one["parameters"] for one in functions]
        *before, last = await play(client, SOLUTION)
        assert [text(one) for one in before] == [world.act(action) for action in SOLUTION[:-1]]
        assert text(last) == f"{world.act(SOLUTION[-1])}\n\nThe goal is reached."
        assert (last.is_error, last.meta["refinesynth/play"]["reward"]) == (False, 1.0)
        told = text(await client.call_tool(TASK, {}))
        assert told.endswith(f"{len(SOLUTION)} of 30 steps are taken.\n\nThe goal is reached.")


async def test_bad_input_is_an_error_in_words_and_costs_no_step() -> None:
    world = GroundedEnvironment(SHED_GROUNDED, steps=2)
    name = call_of(SHED_GROUNDED, SOLUTION[0]).name
    async with Client(create_server(world)) as client:
        for tool, arguments, said in (
            ("fly", {}, f"There is no tool 'fly'; there are {name}, "),
            (name, {}, "The argument 'thing' is missing."),
            (name, {"thing": 3}, "The argument 'thing' is no text."),
            (name, {"thing": "box", "how": "fast"}, "There is no argument 'how'; expected thing."),
        ):
            result = await client.call_tool(tool, arguments)
            assert (result.is_error, text(result)[: len(said)]) == (True, said)
        assert world.taken == 0
        for _ in range(2):
            result = await client.call_tool(name, {"thing": "moon"})
        assert world.mistakes == 2
        assert text(result).endswith("No step is left, and the goal is not reached.")


async def test_the_tasks_tool_gives_way_to_an_action_of_its_name() -> None:
    actions = (*SHED_GROUNDED.actions, ActionSpec(name=TASK, pattern=TASK, reveals="Nothing."))
    world = GroundedEnvironment(SHED_GROUNDED.model_copy(update={"actions": actions}))
    async with Client(create_server(world)) as client:
        assert text(await client.call_tool(TASK, {})) == "Nothing."
        assert "Goal:" in text(await client.call_tool(f"{TASK}_", {}))


async def test_typed_arguments_are_no_texts_and_optional_ones_may_be_missing(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"level": {"type": "integer"}, "why": {"type": "string"}},
        "required": ["level"],
    }
    tools = [{"name": "fill", "parameters": schema}]
    (found,) = await synthesize(
        n=1, play="grounded", tools=tools, output=tmp_path / "run", grounding=Grounding(terse=True)
    )
    async with Client(create_server(GroundedEnvironment(found.script))) as client:
        assert text(await client.call_tool("fill", {"level": 3})) == "Call 1 has succeeded."
        assert text(await client.call_tool("fill", {"why": "x"})) == "The argument 'level' is missing."
