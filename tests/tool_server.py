"""An MCP server of three tools on two pages, over stdio; with an argument, one that misbehaves in this way."""

import sys
import time
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "depth": {"type": "integer", "minimum": 1}},
    "required": ["path"],
}
PAGES = (("read_file", "list_files"), ("delete-file",))


async def list_tools(context: object, params: Any) -> types.ListToolsResult:
    del context
    at = int((params and params.cursor) or 0)
    tools = [types.Tool(name=name, description=f"{name} at a path.", input_schema=SCHEMA) for name in PAGES[at]]
    return types.ListToolsResult(tools=tools, next_cursor=None if at + 1 == len(PAGES) else str(at + 1))


async def main() -> None:
    server = Server("files", version="1", on_list_tools=list_tools)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["hang"]:
            time.sleep(600)
        case ["fail"]:
            sys.exit("there is no database")
        case _:
            anyio.run(main)
