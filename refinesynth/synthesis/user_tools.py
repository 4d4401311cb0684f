"""The user's tools, from a file, a list or an MCP server, as the actions of all scripts of a run."""

from os import PathLike
from typing import Any, cast

import anyio
import orjson

from refinesynth.actions.functions import actions_of
from refinesynth.episode.mcp_play import START_TIMEOUT, mcp_session
from refinesynth.errors import InputError
from refinesynth.rules import chains, verify
from refinesynth.settings import RunSettings
from refinesynth.text.json_reader import load_json
from refinesynth.trajectory import ActionSpec, Draft, Script

_MAX_TOOLS = 1_000


async def actions_for(settings: RunSettings) -> tuple[ActionSpec, ...]:
    """Return the given tools as actions that satisfy the default script rules.

    Raises:
        InputError: The tools cannot be read, or cannot be actions; the message names tools and reasons.
    """
    source: Any = settings.tools
    is_path = isinstance(cast("object", source), str | PathLike)
    source_name = "that are given" if settings.mcp is None and not is_path else repr(str(settings.mcp or source))
    try:
        if settings.mcp is not None:
            source = await list_tools(settings.mcp)
        elif is_path:
            source = load_json(await anyio.Path(source).read_bytes())
        actions = actions_of(source, settings.allow_tool)
    except OSError as error:
        raise InputError(f"the tools {source_name} cannot be read: {error.strerror}; give a JSON file") from error
    except ValueError as error:
        problem = " are no JSON" if isinstance(error, orjson.JSONDecodeError) else ""
        raise InputError(f"the tools {source_name}{problem}: {error}") from error
    if settings.real and not settings.allow_tool:
        names = ", ".join(action.name.partition(" ")[0] for action in actions)
        raise InputError(f"real is given, and no tool may be called; name some with allow_tool. There are {names}")
    script = Script(environment={"": ""}, goal="none", completion_conditions=("none",), actions=actions)
    if violations := verify(Draft(script=script), chains.script()).violations:
        raise InputError(f"the tools {source_name}: {violations[0].message}")
    return actions


async def list_tools(server: str, *, seconds: float = START_TIMEOUT) -> list[dict[str, Any]]:
    """Return the tools of an MCP server, given by a command or a URL; a command's process has ended on return.

    Raises ValueError: the server cannot be started, or does not answer in time or in MCP; quotes its last output.
    """
    tools: list[Any] = []
    try:
        async with mcp_session(server, seconds=seconds) as (client, _):
            page = await client.list_tools()
            tools += page.tools
            while page.next_cursor and len(tools) < _MAX_TOOLS:
                page = await client.list_tools(cursor=page.next_cursor)
                tools += page.tools
    except ValueError as error:
        raise ValueError(
            f"no MCP server listed them: {error}. Give a command that starts a server on standard input and output, or a URL"
        ) from error
    return [
        tool.model_dump(mode="json", by_alias=True, include={"name", "description", "input_schema"}) for tool in tools
    ]
