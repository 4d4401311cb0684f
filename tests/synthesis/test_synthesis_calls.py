"""Runs whose player is asked with tool calls."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
from run_records import contents, events
from samples import SHED_GROUNDED
from server_manners import Mannered, bare

import refinesynth as rs
from refinesynth import rules
from refinesynth.chat import to_tool_messages
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.testing import ScriptedCompletion
from refinesynth.trajectory import ScriptedPersona


@pytest.mark.long
@pytest.mark.parametrize("play", ["live", "grounded"])
async def test_a_run_by_calls_is_accepted_and_says_so(tmp_path: Path, play: str) -> None:
    asked: list[dict[str, Any]] = []
    rehearsal = Rehearsal()

    async def call(**request: Any) -> object:
        asked.append(request)
        return await rehearsal(**request)

    found = await rs.synthesize(n=4, play=play, player_form="tools", call=call, output=tmp_path / "run")
    assert len(found) >= 4
    for one in found:
        assert one.provenance.player_form == "tools"
        assert rules.verify(one.draft(), rules.strict() if play == "live" else rules.grounded()).accepted
    by_calls = [request for request in asked if any("then call one function" in str(m) for m in request["messages"])]
    assert by_calls
    assert all(request["tools"] for request in by_calls)
    # A call is demanded only behind a thought without one.
    demanded = [request for request in by_calls if request["tool_choice"] == "required"]
    assert {request["tool_choice"] for request in by_calls} <= {"auto", "required"}
    assert len(demanded) < len(by_calls) / 4
    assert all(request["messages"][-1]["role"] == "user" for request in demanded)


@pytest.mark.long
async def test_every_mistake_that_was_asked_for_comes_about(tmp_path: Path) -> None:
    made = await rs.synthesize(n=8, player_form="tools", call=Rehearsal(Faults.none()), output=tmp_path / "calls")
    text = await rs.synthesize(n=8, call=Rehearsal(Faults.none()), output=tmp_path / "text")
    assert made.by_rule == {}
    ours, theirs = ([len(one.mistakes()) for one in run] for run in (made, text))
    assert ours == theirs


@pytest.mark.long
@pytest.mark.parametrize("play", ["live", "grounded"])
async def test_a_run_with_several_calls_in_a_message_goes_on(tmp_path: Path, play: str) -> None:
    asked: list[Any] = []
    rehearsal = Rehearsal()

    async def call(**request: Any) -> object:
        asked.append(request["messages"])
        return await rehearsal(**request)

    settings: dict[str, Any] = {"play": play, "player_form": "tools", "parallel_calls": True}
    whole = await rs.synthesize(n=6, call=call, output=tmp_path / "whole", **settings)
    await rs.synthesize(n=2, output=tmp_path / "parts", **settings)
    parts = await rs.synthesize(n=6, output=tmp_path / "parts", **settings)
    content = (whole.path / "trajectories.jsonl").read_bytes()
    assert (parts.path / "trajectories.jsonl").read_bytes() == content
    among = 0
    for one in whole:
        assert one.provenance.parallel_calls
        assert rules.verify(one.draft(), rules.strict() if play == "live" else rules.grounded()).accepted
        messages = to_tool_messages(one)
        among += sum({"mistake", "player"} <= {each.label for each in said.calls} for said in messages)
        # The player's last request held the same messages, in which a private note may have stood at the end.
        spoken = max(at for at, message in enumerate(messages) if message.role == "assistant")
        seen = [message.openai() for message in messages[:spoken]]
        assert any(before[:-1] == seen[:-1] and len(before) == len(seen) for before in map(_plain, asked))
    assert among
    with pytest.raises(rs.RunFolderError, match="parallel_calls: true -> null"):
        await rs.synthesize(n=7, output=tmp_path / "whole", play=play, player_form="tools")


def _plain(messages: list[Any]) -> list[dict[str, Any]]:
    return [{key: value for key, value in one.items() if key != "name"} for one in messages]


def message(*calls: str) -> dict[str, Any]:
    """An answer with a thought and these calls, each a name and the values of its arguments."""
    made: list[dict[str, Any]] = []
    for number, (name, *values) in enumerate(map(str.split, calls)):
        given = dict(zip(("thing", "place"), values, strict=False))
        function = {"name": name, "arguments": orjson.dumps(given).decode()}
        made.append({"id": f"x{number}", "type": "function", "function": function})
    return {"content": "That comes next, I think.", "tool_calls": made}


REST = message("put_on key bench", "take key", "open box")
"""The first call reaches the goal, so the others are not executed."""


@pytest.mark.parametrize(
    ("repairer", "answers", "played"),
    [
        (None, [message("open box", "take key"), REST], "open box|+take key|put key on bench"),
        # The rest of a message is executed behind a mistake, and is no answer to it.
        (
            None,
            [message("take key", "open box"), message("take key"), REST],
            "take key!|+open box|take key|put key on bench",
        ),
        (
            None,
            [message("open box", "take saw", "take key"), message("put_on key bench")],
            "open box|+take saw!|+take key|put key on bench",
        ),
        # A call that the rules refuse ends its message.
        (
            None,
            [message("take key", "take key", "open box"), message("open box", "take key"), REST],
            "take key!|open box|+take key|put key on bench",
        ),
        # The repairer follows on the whole message.
        ("planner", [message("take key", "open box"), REST], "take key!|+open box|take key^|put key on bench"),
    ],
)
async def test_calls_of_a_message_are_executed_in_order(
    tmp_path: Path, repairer: Any, answers: list[Any], played: str
) -> None:
    call = ScriptedCompletion(*answers)
    (one,) = await rs.synthesize(
        scripts=[ScriptedPersona(text="a gardener", script=SHED_GROUNDED)],
        n=1,
        play="grounded",
        grounding=rs.Grounding(terse=True),
        player_form="tools",
        parallel_calls=True,
        repairer=repairer,
        mistakes="natural",
        call=call,
        rules=rules.all_of(
            rules.parse("RealRefinement()"), rules.parse("NoRepeatedMistake()"), rules.parse("NothingBlank()")
        ),
        script_rules=rules.all_of(),
        output=tmp_path / "run",
    )
    told = [
        f"{'+' if act.parallel else ''}{act.action}{'!' if answer.flagged else ''}{'^' if act.by else ''}"
        for act, answer in pairwise(one.turns)
        if isinstance(act, rs.PlayerTurn) and isinstance(answer, rs.DungeonMasterTurn)
    ]
    assert told == played.split("|")
    assert not call.left
    spread = [turn.thought == "" for turn in one.turns if isinstance(turn, rs.PlayerTurn)]
    assert spread == [act.startswith("+") for act in told]
    # A plan speaks of the mistake, not of the right call behind it.
    repaired = [turn.thought for turn in one.turns if isinstance(turn, rs.PlayerTurn) and turn.by]
    assert all("There is no key here." in thought for thought in repaired)


async def test_several_calls_are_for_players_that_call(tmp_path: Path) -> None:
    with pytest.raises(rs.InputError, match="it is for player_form='tools' alone"):
        await rs.synthesize(n=1, parallel_calls=True, output=tmp_path / "run")
    run = await rs.synthesize(n=1, player_form="tools", output=tmp_path / "one")
    assert b"parallel" not in b"".join(one.read_bytes() for one in run.path.iterdir() if one.is_file())


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("workers", [1, 2])
async def test_a_player_without_tools_plays_in_text_and_its_provenance_says_so(tmp_path: Path, workers: int) -> None:
    call = Mannered(bare)
    found = await rs.synthesize(
        n=4, player_form="tools", call=call, concurrency=1, workers=workers, output=tmp_path / "run"
    )
    assert [one.provenance.player_form for one in found] == [None] * 4
    text = await rs.synthesize(n=4, call=Mannered(bare), output=tmp_path / "text")
    assert contents(found.path) == contents(text.path)
    assert {one["lacks"] for one in events(found.path, "goes_without")} == {"tools", "response_format"}
    # Once for the backend: the script writer finds out both.
    assert workers > 1 or call.refused == 2


@pytest.mark.long
@pytest.mark.parametrize("form", ["tools", "react"])
async def test_a_run_that_goes_on_knows_what_the_server_lacks(tmp_path: Path, form: str) -> None:
    settings: dict[str, Any] = {"player_form": form, "concurrency": 3}
    whole = await rs.synthesize(n=6, call=Mannered(bare), output=tmp_path / "whole", **settings)
    await rs.synthesize(n=2, call=Mannered(bare), output=tmp_path / "parts", **settings)
    later = Mannered(bare)
    parts = await rs.synthesize(n=6, call=later, output=tmp_path / "parts", **settings)
    assert contents(parts.path) == contents(whole.path)
    assert later.refused == 0
