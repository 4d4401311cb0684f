"""Live play on a real MCP server, which executes the calls."""

import sys
import time
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import refinesynth as rs
from refinesynth.cli import app
from refinesynth.episode import mcp_play
from refinesynth.errors import InputError, RunStopped
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.rehearsal.player import is_task
from refinesynth.rules.actions import SUCCESS
from refinesynth.run import RunFolder
from refinesynth.text.formatting import control_character
from refinesynth.trajectory import DungeonMasterTurn, MistakeKind, PlayerTurn
from refinesynth.trajectory.turns import MAX_OBSERVATION

SERVER = Path(__file__).parents[1] / "notes_server.py"
PYTHON = [sys.executable]
"""Runs the servers; a warm one starts at once."""
ADDED = [f"add_note title=n{at} text=t{at} stars=" for at in range(6)]


@pytest.fixture(autouse=True)
def warm_python(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("process"):
        PYTHON[:] = [str(request.getfixturevalue("warm") / "python")]


def acting(choose: Callable[[int, str], str], *, fails_at: int | None = None, seen: list[str] | None = None) -> Any:
    """The rehearsal with a Player that takes the action of its turn, a number from 0, given the last message."""
    rehearsal, asked = Rehearsal(Faults.none()), 0

    async def call(**request: Any) -> object:
        nonlocal asked
        messages = request["messages"]
        if seen is not None:
            seen.extend(str(message["content"]) for message in messages)
        if not any(is_task(str(message["content"])) for message in messages):
            return await rehearsal(**request)
        asked += 1
        if asked - 1 == fails_at:
            raise RuntimeError("the program ends here, as by a crash")
        turn = sum(message["role"] == "assistant" for message in messages)
        text = f"Thought: I do it.\nAction: {choose(turn, str(messages))}"
        return {"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": {}}

    return call


async def played(folder: Path, name: str, choose: Callable[[int, str], str], **more: Any) -> list[rs.Trajectory]:
    log = folder / f"{name}.log"
    tools = ("add_note", "read_note", "list_notes", "count_starts", "check", "big", "hang", "crash")
    call = acting(choose, fails_at=more.pop("fails_at", None), seen=more.pop("seen", None))
    given: dict[str, Any] = {"mistakes": "natural", "early_stop": 1, "mcp": f"{PYTHON[0]} {SERVER} {log}", **more}
    found = await rs.synthesize(n=1, real=True, allow_tool=tools, output=folder / name, call=call, **given)
    return list(found)


def lines(folder: Path, name: str) -> list[str]:
    return (folder / f"{name}.log").read_text().splitlines()[1:]  # the first start lists the tools


def in_order(actions: Sequence[str]) -> Callable[[int, str], str]:
    return lambda turn, _: actions[min(turn, len(actions) - 1)]


def answers(trajectory: rs.Trajectory) -> list[tuple[str, MistakeKind | None]]:
    return [(turn.observation, turn.mistake_kind) for turn in trajectory.turns if isinstance(turn, DungeonMasterTurn)]


@given(st.text(st.characters(codec="utf-8")) | st.just("task\tSUCCEED \x00"), st.booleans())
def test_a_result_is_text_that_every_rule_takes(text: str, failed: bool) -> None:
    found = mcp_play.Result.of(text * 300, failed=failed)
    assert 0 < len(found.text) <= MAX_OBSERVATION
    assert SUCCESS.casefold() not in found.text.casefold()
    assert found.text.strip() == found.text
    assert control_character(found.text) is None
    assert (found.kind is not None) == failed


def test_a_long_result_is_read_in_time_that_grows_with_it() -> None:
    begun = time.process_time()
    found = mcp_play.Result.of("missing " * 100_000, failed=True)
    assert (found.kind, time.process_time() - begun < 2) == (MistakeKind.LOGIC, True)


@pytest.mark.parametrize("command", ["", "  ", "''"])
async def test_an_empty_command_is_named(command: str) -> None:
    with pytest.raises(ValueError, match="the command is empty"):
        async with mcp_play.mcp_session(command):
            pass


@pytest.mark.process
@pytest.mark.parametrize("error", [ValueError("mine"), RuntimeError("mine"), OSError("mine"), TimeoutError("mine")])
async def test_an_error_of_the_caller_is_not_reported_as_one_of_the_server(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        async with mcp_play.mcp_session(f"{PYTHON[0]} {SERVER} {tmp_path / 'calls.log'}"):
            raise error
    assert raised.value is error


@pytest.mark.process
async def test_the_observations_are_the_results_of_the_server(tmp_path: Path) -> None:
    actions = [
        "list_notes", "read_note title=n0", *ADDED[:2], "add_note title=n0 text=t stars=many", "read_note title=n0",
        "check title=n0", "list_notes", "fly", "big",
    ]  # fmt: skip
    (one,) = await played(tmp_path, "run", in_order(actions), real_state="No notes.", rules="agentrefine(0)")
    none, missing, added, _, stars, text, check, listed, fly, big = answers(one)
    nothing = "The call returned nothing."
    assert (none, added, text, listed) == (("none", None), (nothing, None), ("t0", None), ("n0\nn1", None))
    # Only the engine reports success, and no control character is kept.
    assert missing == ("There is no note 'n0'. success \\u001b[2J", MistakeKind.LOGIC)
    assert (stars[1], fly[1], check[1]) == (MistakeKind.PARAMETER,) * 3
    assert big[0].endswith("...\nTask Succeed")
    assert len(big[0]) == MAX_OBSERVATION + len("\nTask Succeed")
    # What is no call of an allowed tool with valid values is not sent.
    assert [line.partition(" ")[0] for line in lines(tmp_path, "run")] == [
        "start", *(action.partition(" ")[0] for action in actions if "many" not in action and action != "fly"),
    ]  # fmt: skip
    assert one.provenance.models["tools"] == "MCP server"
    assert not [child for child in psutil.Process().children(recursive=True) if str(SERVER) in child.cmdline()]


@pytest.mark.process
@pytest.mark.parametrize(("tool", "reason"), [("hang", "no answer in 1 s"), ("crash", "the server has ended")])
async def test_without_a_result_the_play_goes_on_in_a_new_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, reason: str
) -> None:
    monkeypatch.setattr(mcp_play, "CALL_TIMEOUT", 1.0)

    def choose(turn: int, told: str) -> str:
        return tool if turn == 2 and reason not in told else ADDED[turn]

    (one,) = await played(tmp_path, "run", choose)
    assert [turn.action for turn in one.turns if isinstance(turn, PlayerTurn)] == ADDED
    assert one.provenance.attempts == 2
    assert [line.split()[0] for line in lines(tmp_path, "run")] == [
        "start", *["add_note"] * 2, tool, "start", *["add_note"] * 6,
    ]  # fmt: skip
    (refused,) = map(orjson.loads, (tmp_path / "run" / "rejected.jsonl").read_bytes().splitlines())
    assert reason in refused["violations"][0]["message"]


@pytest.mark.process
async def test_a_server_that_is_not_deterministic_is_not_gone_on_with(tmp_path: Path) -> None:
    actions = ["count_starts", "crash"]
    assert not await played(tmp_path, "run", in_order(actions), attempts="drafts=2")
    (_, second) = map(orjson.loads, (tmp_path / "run" / "rejected.jsonl").read_bytes().splitlines())
    assert "the server is not deterministic" in second["violations"][0]["message"]


@pytest.mark.process
@pytest.mark.parametrize("at", [1, 4])
async def test_a_run_goes_on_with_the_results_in_its_journal(tmp_path: Path, at: int) -> None:
    (whole,) = await played(tmp_path, "whole", in_order(ADDED))
    server = f"{PYTHON[0]} {SERVER} {tmp_path / 'parts.log'}"
    with pytest.raises(RunStopped):
        await played(tmp_path, "parts", in_order(ADDED), fails_at=at, mcp=server)
    (parts,) = await played(tmp_path, "parts", in_order(ADDED), mcp=server)
    assert parts == whole
    # The calls before are executed again for the state alone; the third process lists the tools again.
    assert [line.split()[0] for line in lines(tmp_path, "parts")] == [
        "start", *["add_note"] * at, "start", "start", *["add_note"] * 6,
    ]  # fmt: skip
    # What is whole is made again without any server.
    for name in ("trajectories.jsonl", "rejected.jsonl"):
        (tmp_path / "parts" / name).write_bytes(b"")
    (again,) = await played(tmp_path, "parts", in_order(ADDED), mcp=server)
    assert again == whole
    assert len(lines(tmp_path, "parts")) == at + 10


@pytest.mark.process
async def test_the_script_writer_knows_the_state_and_the_run_keeps_it(tmp_path: Path) -> None:
    seen: list[str] = []
    await played(tmp_path, "run", in_order(ADDED), seen=seen, real_state="Three notes about <owls>.")
    assert any("Three notes about \\u003cowls>." in text for text in seen)
    assert RunFolder.open(tmp_path / "run").config.real is not None
    with pytest.raises(InputError, match="real: "):
        await played(tmp_path, "run", in_order(ADDED), real_state="Another.")
    with pytest.raises(InputError, match="rules: "):
        await played(tmp_path, "run", in_order(ADDED), rules="strict()")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--real",), "real is given, with play 'live' and mcp None; it needs the server"),
        (("--real", "--mcp", "x", "--play", "narrated"), "real is given, with play 'narrated' and mcp 'x'"),
        (("--real-state", "x", "--mcp", "x"), "real_state is given without real"),
        pytest.param(
            ("--real", "--mcp", f"{PYTHON[0]} {SERVER} /dev/null"),
            "no tool may be called; name some with allow_tool. There are add_note, big",
            marks=pytest.mark.process,
        ),
    ],
)
def test_wrong_requests_are_refused(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    done = CliRunner().invoke(app, ["run", "-n", "1", *options, "-o", str(tmp_path / "run")])
    assert (done.exit_code, words in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.process
async def test_several_calls_of_a_message_are_executed_in_their_order(tmp_path: Path) -> None:
    rehearsal, messages = Rehearsal(Faults.none()), chain([["n0", "n1", ""], ["n2", "n3"]], repeat(["n4"]))

    async def call(**request: Any) -> object:
        if "add_note" not in [tool["function"]["name"] for tool in request.get("tools", ())]:
            return await rehearsal(**request)
        made: list[tuple[str, dict[str, Any]]] = [
            ("add_note", {"title": title, "text": "t", "stars": 3}) if title else ("fly", {})
            for title in next(messages)
        ]
        calls = [
            {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": orjson.dumps(given).decode()}}
            for at, (name, given) in enumerate(made)
        ]
        return {
            "choices": [{"message": {"content": "I do it.", "tool_calls": calls}, "finish_reason": "stop"}],
            "usage": {},
        }

    log = tmp_path / "run.log"
    given: dict[str, Any] = {"mistakes": "natural", "rules": "agentrefine(0)", "mcp": f"{PYTHON[0]} {SERVER} {log}"}
    asked: dict[str, Any] = {"player_form": "tools", "parallel_calls": True, "allow_tool": ("add_note",), **given}
    (one, *_) = await rs.synthesize(n=1, real=True, output=tmp_path / "run", call=call, **asked)
    acts = [turn for turn in one.turns if isinstance(turn, PlayerTurn)][:6]
    assert [act.parallel for act in acts] == [False, True, True, False, True, False]
    assert [kind for _, kind in answers(one)][:4] == [None, None, MistakeKind.PARAMETER, None]
    sent = [line for line in lines(tmp_path, "run") if "add_note" in line]
    assert all(f"('title', 'n{at}')" in line for at, line in enumerate(sent[:5]))
