"""Runs whose worlds have the tools of the user: from a list, a file or an MCP server."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
from tool_server import PAGES, SCHEMA
from typer.testing import CliRunner, Result

import refinesynth as rs
from refinesynth import rules
from refinesynth.actions.calls import tools_of
from refinesynth.cli import app
from refinesynth.errors import InputError
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.run import RunFolder
from refinesynth.synthesis.user_tools import list_tools

TOOLS: list[dict[str, Any]] = [
    {
        "name": "search",
        "description": "Search the\nrecords.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "Words: all of them must occur."},
                "fields": {"type": "array", "items": {"type": "string"}},
                "most": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": None},
            },
            "required": ["query"],
        },
    },
    {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}},
]
SERVER = f"{sys.executable} {Path(__file__).parents[1] / 'tool_server.py'}"


def written(folder: Path, tools: Any) -> Path:
    path = folder / "tools.json"
    path.write_bytes(orjson.dumps(tools))
    return path


def functions_of(trajectory: rs.Trajectory) -> list[dict[str, Any]]:
    return [tool.definition()["function"] for tool in tools_of(trajectory.script)]


@pytest.mark.parametrize(
    ("play", "more"),
    [("live", {}), ("live", {"player_form": "tools"}), ("narrated", {}), ("grounded", {"grounding": {"terse": True}})],
)
async def test_worlds_have_the_given_tools_word_for_word(tmp_path: Path, play: str, more: Any) -> None:
    found = await rs.synthesize(
        n=3, play=play, tools=TOOLS, output=tmp_path / "run", call=Rehearsal(Faults.none()), **more
    )
    assert found.reached
    for one in found:
        assert functions_of(one) == sorted(TOOLS, key=lambda tool: tool["name"])
        assert rules.verify(one.draft(), rules.grounded() if play == "grounded" else rules.strict()).accepted
        assert one.script.grounded == (play == "grounded")
    config = orjson.loads((found.path / "config.json").read_bytes())
    assert sorted(config["tools"]) == ["now", "search"]
    assert RunFolder.open(found.path).config.tools == config["tools"]


async def test_a_run_goes_on_with_the_same_tools_in_any_order_alone(tmp_path: Path) -> None:
    whole = await rs.synthesize(n=3, tools=TOOLS, output=tmp_path / "whole")
    await rs.synthesize(n=1, tools=written(tmp_path, {"tools": TOOLS}), output=tmp_path / "parts")
    parts = await rs.synthesize(n=3, tools=TOOLS[::-1], output=tmp_path / "parts")
    names = "trajectories.jsonl", "rejected.jsonl"
    assert [(parts.path / name).read_bytes() for name in names] == [(whole.path / name).read_bytes() for name in names]
    changed = [TOOLS[0], {**TOOLS[1], "description": "The time."}]
    with pytest.raises(InputError, match=r"tools\.now: .* -> "):
        await rs.synthesize(n=4, tools=changed, output=tmp_path / "parts")
    with pytest.raises(InputError, match=r"tools: .* -> null"):
        await rs.synthesize(n=4, output=tmp_path / "parts")


async def test_of_many_tools_each_episode_draws_its_own(tmp_path: Path) -> None:
    tools = [{"name": f"tool{at:02d}"} for at in range(50)]
    runs = [await rs.synthesize(n=2, tools=tools, seed=5, output=tmp_path / name) for name in ("one", "other")]
    drawn, again = ([[tool["name"] for tool in functions_of(one)] for one in run] for run in runs)
    assert drawn == again
    assert drawn[0] != drawn[1]
    assert all(len(set(names)) == len(names) == 40 and names == sorted(names) for names in drawn)


def altered(change: Callable[[dict[str, Any]], None]) -> Callable[..., Any]:
    """The rehearsal, with a ScriptWriter whose answers are changed."""
    rehearsal = Rehearsal(Faults.none())

    async def call(**request: Any) -> object:
        answer = await rehearsal(**request)
        message = answer["choices"][0]["message"]
        function = (
            message["tool_calls"][0]["function"] if message.get("tool_calls") else {"arguments": message["content"]}
        )
        if '"completion_conditions"' in str(function["arguments"]):
            script = orjson.loads(function["arguments"])
            change(script)
            function["arguments"] = message["content"] = orjson.dumps(script).decode()
        return answer

    return call


async def test_actions_that_a_model_writes_itself_do_not_count(tmp_path: Path) -> None:
    def change(script: dict[str, Any]) -> None:
        own = {
            "name": "now",
            "description": "Mine.",
            "pattern": ".*",
            "parameters": {"x": ["y"]},
            "effects": [{"op": 1}],
        }
        script["actions"] = [own, {"name": "cheat", "pattern": "cheat", "parameters": {}}]

    for one in await rs.synthesize(n=1, tools=TOOLS, output=tmp_path / "run", call=altered(change)):
        assert functions_of(one) == sorted(TOOLS, key=lambda tool: tool["name"])
        assert not any(action.effects for action in one.script.actions)


async def test_an_executed_world_needs_laws_for_each_tool(tmp_path: Path) -> None:
    def change(script: dict[str, Any]) -> None:
        script["actions"] = [action for action in script["actions"] if action["name"] != "search"]

    call = altered(change)
    found = await rs.synthesize(n=1, play="grounded", tools=TOOLS, output=tmp_path / "run", call=call, early_stop=1)
    assert not found.reached
    (line, *_) = RunFolder.open(found.path).episodes()
    assert "there are no laws for search" in str(line.reason)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


WRONG: dict[str, tuple[Any, tuple[str, ...], str]] = {
    "no list": ({"functions": TOOLS}, (), "expected a list of functions, or an object with the list `tools`"),
    "union": ([{"name": "a", "parameters": {"type": "object", "properties": {"x": {"type": ["string", "integer"]}}}}], (), "is a union"),
    "control": ([{"name": "a", "description": "\x1b[2J"}], (), "control character"),
    "values": ([{"name": "a", "parameters": {"type": "object", "properties": {"x": {"enum": [*map(str, range(600))]}}}}], (), "600 allowed values"),
    "unknown": (TOOLS, ("--allow-tool", "find"), 'there is no tool "find"; there are "now", "search"'),
    "both": (TOOLS, ("--mcp", "x"), "tools and mcp are given; give only one of them"),
    "scripts": (TOOLS, ("--scripts", "runs/x"), "tools and scripts are given; give only one of them"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_tools_are_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    tools, more, words = WRONG[name]
    done = invoke("run", "-n", 1, "--tools", written(tmp_path, tools), *more, "-o", tmp_path / "run")
    assert done.exit_code == 2
    assert words in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ("--tools", "/nowhere/tools.json"),
            "the tools '/nowhere/tools.json' cannot be read: No such file or directory",
        ),
        (("--tools", __file__), "test_user_tools.py' are no JSON"),
        (("--allow-tool", "now"), "allow_tool is now, and there are no tools to choose from; give tools or mcp too"),
        pytest.param(("--mcp", "/nowhere/server"), "No such file or directory", marks=pytest.mark.process),
        (("--mcp", "'"), "No closing quotation"),
        (("--mcp", ""), "--mcp is ''"),
        (("--mcp", "http://127.0.0.1:9/mcp"), "no MCP server listed them"),
    ],
)
def test_tools_that_cannot_be_read_are_refused(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    done = invoke("run", "-n", 1, *options, "-o", tmp_path / "run")
    assert (done.exit_code, words in done.stderr) == (2, True), done.stderr


def test_an_export_is_read_back_as_the_same_actions(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    for done in (
        invoke("run", "-n", 2, "--tools", written(tmp_path, TOOLS), "-o", tmp_path / "run"),
        invoke("export", tmp_path / "run", "--format", "openai", "--form", "tools", "-o", file),
        invoke("import", file, "--format", "openai", "-o", tmp_path / "again"),
    ):
        assert done.exit_code == 0, done.stderr
    found, again = (list(RunFolder.open(tmp_path / name).trajectories()) for name in ("run", "again"))
    assert [one.script.actions for one in again] == [one.script.actions for one in found] != []


@pytest.mark.process
def test_the_tools_of_a_server_are_those_of_a_file(tmp_path: Path) -> None:
    done = invoke(
        "run",
        "-n",
        2,
        "--mcp",
        SERVER,
        "--allow-tool",
        "list_files",
        "--allow-tool",
        "read_file",
        "-o",
        tmp_path / "run",
    )
    assert done.exit_code == 0, done.stderr
    for one in RunFolder.open(tmp_path / "run").trajectories():
        assert functions_of(one) == [
            {"name": name, "description": f"{name} at a path.", "parameters": SCHEMA}
            for name in ("list_files", "read_file")
        ]
    again = invoke("run", "-n", 3, "--mcp", SERVER, "-o", tmp_path / "run")
    assert again.exit_code == 2
    assert "tools.delete-file: null -> " in again.stderr


@pytest.mark.process
async def test_every_page_of_a_list_is_read_and_no_server_is_left() -> None:
    assert [tool["name"] for tool in await list_tools(SERVER)] == [name for page in PAGES for name in page]
    with pytest.raises(ValueError, match="Connection closed; it wrote there is no database"):
        await list_tools(f"{SERVER} fail")
    with pytest.raises(ValueError, match=r"no answer in 0\.5 s"):
        await list_tools(f"{SERVER} hang", seconds=0.5)
    assert not [one for one in psutil.Process().children(recursive=True) if "tool_server.py" in " ".join(one.cmdline())]
