"""Tools that the user has: read from a file, a list or an MCP server, as the actions of all scripts of a run."""

from os import PathLike
from typing import Any, cast

import anyio

from refinesynth.actions.functions import actions_of
from refinesynth.client.mcp import list_tools
from refinesynth.errors import InputError
from refinesynth.rules import chains, verify
from refinesynth.settings import RunSettings
from refinesynth.text.jsontext import load_json
from refinesynth.trajectory import ActionSpec, Draft, Script


async def actions_for(settings: RunSettings) -> tuple[ActionSpec, ...]:
    """Return the given tools as actions whose form the usual rules for scripts accept.

    Raises:
        InputError: They cannot be read, or cannot be actions; the message names the tools and the reasons.
    """
    source: Any = settings.tools
    shown = repr(settings.mcp or (str(source) if isinstance(source, str | PathLike) else "given"))
    try:
        if settings.mcp is not None:
            source = await list_tools(settings.mcp)
        elif isinstance(source, str | PathLike):
            source = load_json(await anyio.Path(cast("str", source)).read_bytes())
        actions = actions_of(source, settings.allow_tool)
    except OSError as error:
        raise InputError(f"the tools {shown} cannot be read: {error.strerror}; give a JSON file") from error
    except ValueError as error:
        raise InputError(f"the tools {shown}: {error}") from error
    script = Script(environment={"": ""}, goal="none", completion_conditions=("none",), actions=actions)
    if found := verify(Draft(script=script), chains.script()).violations:
        raise InputError(f"the tools {shown}: {found[0].message}")
    return actions
