"""Tools that the user has: read from a file, a list or an MCP server, as the actions of all scripts of a run."""

import logging
import shlex
from os import PathLike
from tempfile import TemporaryFile
from typing import Any, cast

import anyio
import orjson

from refinesynth.actions.functions import actions_of
from refinesynth.errors import InputError
from refinesynth.extras import check_installed
from refinesynth.rules import chains, verify
from refinesynth.settings import RunSettings
from refinesynth.text.json_reader import load_json
from refinesynth.text.printable import one_line
from refinesynth.trajectory import ActionSpec, Draft, Script

SECONDS = 60.0
"""Time in which a server must have started and listed its tools."""
_MOST_TOOLS = 1_000
_SHOWN = 500


async def actions_for(settings: RunSettings) -> tuple[ActionSpec, ...]:
    """Return the given tools as actions whose form the usual rules for scripts accept.

    Raises:
        InputError: They cannot be read, or cannot be actions; the message names the tools and the reasons.
    """
    source: Any = settings.tools
    is_path = isinstance(cast("object", source), str | PathLike)
    shown = "that are given" if settings.mcp is None and not is_path else repr(str(settings.mcp or source))
    try:
        if settings.mcp is not None:
            source = await list_tools(settings.mcp)
        elif is_path:
            source = load_json(await anyio.Path(source).read_bytes())
        actions = actions_of(source, settings.allow_tool)
    except OSError as error:
        raise InputError(f"the tools {shown} cannot be read: {error.strerror}; give a JSON file") from error
    except ValueError as error:
        says = " are no JSON" if isinstance(error, orjson.JSONDecodeError) else ""
        raise InputError(f"the tools {shown}{says}: {error}") from error
    script = Script(environment={"": ""}, goal="none", completion_conditions=("none",), actions=actions)
    if found := verify(Draft(script=script), chains.script()).violations:
        raise InputError(f"the tools {shown}: {found[0].message}")
    return actions


async def list_tools(server: str, *, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Return the tools of the MCP server behind a command or a URL.

    Its process gets no environment variables but HOME, PATH and a few like them, and has ended on return.

    Raises ValueError: it cannot be started, or does not answer in time or as such a server does; with its last words.
    """
    if not server.strip():
        raise ValueError("the command is empty; give one that starts an MCP server, or a URL")
    check_installed("mcp", "mcp")
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    # What a server prints beside its messages is in the error, if it comes to one.
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    found: list[Any] = []
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            is_url = server.startswith(("http://", "https://"))
            command, *args = [server] if is_url else shlex.split(server)
            process = stdio_client(StdioServerParameters(command=command, args=args), errlog=log)
            with anyio.fail_after(seconds):
                async with Client(server if is_url else process) as client:
                    page = await client.list_tools()
                    found += page.tools
                    while page.next_cursor and len(found) < _MOST_TOOLS:
                        page = await client.list_tools(cursor=page.next_cursor)
                        found += page.tools
        except Exception as error:
            first: Any = error
            while isinstance(first, BaseExceptionGroup):
                first = cast("Any", first).exceptions[0]
            reason = f"no answer in {seconds:g} s" if isinstance(first, TimeoutError) else str(first) or repr(first)
            log.seek(0)
            wrote = log.read()[-_SHOWN:].strip()
            raise ValueError(
                f"no MCP server listed them: {one_line(reason, most=_SHOWN)}{f'; it wrote {one_line(wrote)}' if wrote else ''}. "
                "Give a command that starts a server on standard input and output, or a URL"
            ) from error
    return [
        tool.model_dump(mode="json", by_alias=True, include={"name", "description", "input_schema"}) for tool in found
    ]
