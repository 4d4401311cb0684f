"""MCP server of a grounded world: a tool for each action, and a tool for the task. One session is one play."""

from collections.abc import Mapping
from typing import Any

from refinesynth._version import __version__
from refinesynth.environments.grounded import GroundedEnvironment, task_message
from refinesynth.lazy_imports import check_installed

TASK = "world_task"
"""Name of the tool that returns the task and the state of the play."""

_META = "refinesynth/play"
"""Key of the play's state in the metadata of results, which agents do not see."""


async def serve(world: GroundedEnvironment) -> None:
    """Serve one play on standard input and output; raises ConfigurationError without `mcp`."""
    check_installed("mcp", "mcp")
    from mcp.server.stdio import stdio_server

    server = create_server(world)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def create_server(world: GroundedEnvironment) -> Any:
    """Return an `mcp.server.lowlevel.Server` for one play."""
    import mcp_types as types
    from mcp.server.lowlevel import Server

    actions = {tool["function"]["name"]: tool["function"] for tool in world.tools()}
    instructions = task_message(world.script, world.before, "tools")
    task_name = TASK
    while task_name in actions:
        task_name += "_"
    task = types.Tool(
        name=task_name,
        description="The task, and how far you are. Takes no action.",
        input_schema={"type": "object", "properties": {}},
    )
    action_tools = [
        types.Tool(name=name, description=tool["description"], input_schema=tool["parameters"])
        for name, tool in actions.items()
    ]

    def result(text: str, *, error: bool = False) -> types.CallToolResult:
        names = ("done", "success", "progress", "taken", "mistakes")
        state = {"reward": world.reward(), **{name: getattr(world, name) for name in names}}
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=error, _meta={_META: state})

    async def list_tools(context: object, params: object) -> types.ListToolsResult:
        del context, params
        return types.ListToolsResult(tools=[task, *action_tools])

    async def call_tool(context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        del context
        arguments = params.arguments or {}
        if params.name == task_name:
            count = f"{world.taken} of {world.steps} steps are taken."
            return result("\n\n".join(filter(None, (instructions, count, _outcome(world)))))
        if params.name not in actions:
            return result(
                f"There is no tool {params.name!r}; there are {', '.join([*actions, task_name])}.", error=True
            )
        if problem := _problem(actions[params.name]["parameters"], arguments):
            return result(problem, error=True)
        observation = world.act({"name": params.name, "arguments": arguments})
        return result("\n\n".join(filter(None, (observation, _outcome(world)))))

    return Server(
        "refinesynth",
        version=__version__,
        instructions=instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _outcome(world: GroundedEnvironment) -> str:
    if world.success:
        return "The goal is reached."
    return "No step is left, and the goal is not reached." if world.done else ""


def _problem(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Return the problem with the names or types of arguments, or an empty text; the world judges their values."""
    properties = schema["properties"]
    if unknown := [name for name in arguments if name not in properties]:
        return f"There is no argument {unknown[0]!r}; expected {', '.join(properties) or 'none'}."
    if missing := [name for name in schema.get("required") or () if name not in arguments]:
        return f"The argument {missing[0]!r} is missing."
    texts = {name for name, definition in properties.items() if definition.get("type") == "string"}
    if mistyped := [name for name, value in arguments.items() if name in texts and not isinstance(value, str)]:
        return f"The argument {mistyped[0]!r} is no text."
    return ""
