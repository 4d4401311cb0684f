"""Tools of an MCP server: listed once, in words where that fails. The server is a process that the user asked for."""

import shlex
from tempfile import TemporaryFile
from typing import Any, cast

import anyio

from refinesynth.errors import InputError
from refinesynth.text.printable import one_line

SECONDS = 60.0
"""Time in which a server must have started and listed its tools."""
_MOST_TOOLS = 1_000
_LAST_WORDS = 500


async def list_tools(server: str, *, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Return the tools of the server behind a command or a URL, with `name`, `description` and `inputSchema`.

    The server's process gets no environment variable but HOME, PATH and a few like them, and has ended on return.

    Raises:
        InputError: The command cannot be read or started, or the server does not answer in time or as a server does.
    """
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    found: list[dict[str, Any]] = []
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            command, *args = shlex.split(server)
            is_url = server.startswith(("http://", "https://"))
            process = StdioServerParameters(command=command, args=args)
            with anyio.fail_after(seconds):
                async with Client(server if is_url else stdio_client(process, errlog=log), cache=None) as client:
                    cursor: str | None = None
                    while len(found) < _MOST_TOOLS:
                        page = await client.list_tools(cursor=cursor)
                        kept = {"name", "description", "input_schema"}
                        found += [tool.model_dump(mode="json", by_alias=True, include=kept) for tool in page.tools]
                        if not (cursor := page.next_cursor):
                            break
        except Exception as error:
            first: Any = error
            while isinstance(first, BaseExceptionGroup):
                first = cast("Any", first).exceptions[0]
            reason = f"no answer in {seconds:g} s" if isinstance(first, TimeoutError) else str(first) or repr(first)
            log.seek(0)
            said = one_line(log.read()[-_LAST_WORDS:].strip())
            raise InputError(
                f"the MCP server {server!r} did not list its tools: {one_line(reason, most=_LAST_WORDS)}"
                f"{f'; it wrote {said!r}' if said else ''}. Give a command that starts a server on standard input and output, or a URL"
            ) from error
    if not found:
        raise InputError(f"the MCP server {server!r} has no tools; give another one")
    return found
