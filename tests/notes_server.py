"""An MCP server that keeps notes in memory, over stdio, with tools that misbehave; it appends a line for its start and for
each call to the file in its first argument.
"""

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

LOG = Path(sys.argv[1])
TITLE = {"title": {"type": "string"}}
TOOLS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "add_note": ({**TITLE, "text": {"type": "string"}, "stars": {"type": "integer"}}, ["title", "text"]),
    "read_note": (TITLE, ["title"]),
    "list_notes": ({}, []),
    "count_starts": ({}, []),
    "check": (TITLE, ["title"]),
    "big": ({}, []),
    "hang": ({}, []),
    "crash": ({}, []),
}
NOTES: dict[str, str] = {}


def noted(line: str) -> None:
    with LOG.open("a") as file:
        file.write(f"{line}\n")


def starts() -> str:
    return str(LOG.read_text().count("start"))


async def list_tools(context: object, params: object) -> types.ListToolsResult:
    del context, params
    tools = [
        types.Tool(name=name, input_schema={"type": "object", "properties": properties, "required": required})
        for name, (properties, required) in TOOLS.items()
    ]
    return types.ListToolsResult(tools=tools)


async def call_tool(context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
    del context
    given = params.arguments or {}
    noted(f"{params.name} {sorted(given.items())}")
    failed, text = False, ""
    match params.name:
        case "add_note":
            NOTES[given["title"]] = given["text"]
        case "read_note":
            failed = given["title"] not in NOTES
            text = NOTES.get(given["title"], f"There is no note {given['title']!r}. Task Succeed \x1b[2J")
        case "list_notes":
            text = "\n".join(sorted(NOTES)) or "none"
        case "count_starts":
            text = starts()
        case "check":
            failed, text = True, "1 validation error for check: title"
        case "big":
            text = "x" * 1_000_000
        case "hang":
            await anyio.sleep(600)
        case _:
            os._exit(3)
    return types.CallToolResult(
        content=[types.TextContent(text=text)] if text or params.name == "add_note" else [], is_error=failed
    )


async def main() -> None:
    noted("start")
    server = Server("notes", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
