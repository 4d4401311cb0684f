"""The audit of flags: samples, answers that survive, agreement, and a page that gives no verdict away."""

import json
import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from aiohttp.test_utils import TestClient, TestServer
from command_line import cli
from hypothesis import given
from hypothesis import strategies as st
from test_report import HOSTILE, altered

from refinesynth.errors import InputError, RunFolderError, StorageError
from refinesynth.report.audited_turns import (
    Answers,
    AuditedTurn,
    Rating,
    agreement,
    audit_app,
    labelled_turns,
    sample_turns,
    turns_of_run,
)
from refinesynth.run import RunFolder


def turns(run: Path) -> list[AuditedTurn]:
    return list(turns_of_run(RunFolder.open(run)))


audit = partial(cli, "audit")


@given(few=st.integers(1, 8), more=st.integers(0, 20), seed=st.integers())
def test_a_larger_sample_contains_the_smaller_one(run: Path, few: int, more: int, seed: int) -> None:
    every = turns(run)
    small, large = (sample_turns(every, count, seed) for count in (few, few + more))
    assert {turn.id for turn in small} <= {turn.id for turn in large}
    sizes = Counter(turn.cell for turn in every)
    assert Counter(turn.cell for turn in small) == {cell: min(few, size) for cell, size in sizes.items()}
    assert [turn.id for turn in sample_turns(reversed(every), few, seed)] == [turn.id for turn in small]
    assert len(sample_turns([*every, *every], few, seed)) == len(small)
    kept = {turn.id for turn in small}
    assert [turn.id for turn in large if turn.id in kept] == [turn.id for turn in small]


Verdicts = st.dictionaries(st.sampled_from([f"{a}#{b}" for a in "xyz" for b in range(6)]), st.booleans())


@given(Verdicts, Verdicts)
def test_agreement_is_symmetric_and_its_interval_holds_kappa_bounds(
    first: dict[str, bool], second: dict[str, bool]
) -> None:
    found, other = agreement(first, second), agreement(second, first)
    assert found.turns == len(first.keys() & second.keys())
    assert found.agreed == sum(first[turn] == second[turn] for turn in first.keys() & second.keys())
    assert found.kappa == other.kappa
    if found.low is not None and found.high is not None:
        assert -1 <= found.low <= found.high <= 1


def test_kappa_is_that_of_the_textbook() -> None:
    # 20 both right, 5 first alone, 10 second alone, 15 both wrong: kappa 0.4.
    verdicts = [(True, True)] * 20 + [(True, False)] * 5 + [(False, True)] * 10 + [(False, False)] * 15
    first = {f"{at}#1": pair[0] for at, pair in enumerate(verdicts)}
    second = {f"{at}#1": pair[1] for at, pair in enumerate(verdicts)}
    found = agreement(first, second)
    assert found.kappa == pytest.approx(0.4)
    # The large-sample interval is 0.4 ± 1.96 · 0.13.
    assert found.low == pytest.approx(0.15, abs=0.07)
    assert found.high == pytest.approx(0.65, abs=0.07)
    assert agreement(first, first)[2:] == (1, 1, 1)
    assert agreement({"a#1": True}, {"a#1": True}).kappa is None
    assert agreement({}, {}) == (0, 0, None, None, None)
    # Turns of one trajectory say less than turns of many.
    alike = agreement(
        {f"{at % 5}#{at}": pair[0] for at, pair in enumerate(verdicts)},
        {f"{at % 5}#{at}": pair[1] for at, pair in enumerate(verdicts)},
    )
    assert alike.kappa == found.kappa


def test_the_last_answer_counts_and_half_a_line_does_not(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    answers = Answers.read(path)
    with answers.open_for_writing():
        for right in (True, False):
            answers.append(Rating(turn="a#1", rater="ann", right=right))
    with path.open("ab") as file:
        file.write(b'{"turn":"b#1","ra')
    again = Answers.read(path)
    assert again.by_rater == {"ann": {"a#1": False}}
    with again.open_for_writing():
        again.append(Rating(turn="c#1", rater="ann", right=True))
        with pytest.raises(StorageError), Answers.read(tmp_path / "no folder" / "answers.jsonl").open_for_writing():
            pass
    assert Answers.read(path).by_rater == {"ann": {"a#1": False, "c#1": True}}
    path.write_text('{"turn": 1}\n')
    with pytest.raises(RunFolderError, match=r"line 1 of .* is no answer"):
        Answers.read(path)


async def test_the_page_takes_answers_about_its_turns_alone_and_shows_no_verdict(run: Path, tmp_path: Path) -> None:
    hostile = turns(altered(run, tmp_path / "hostile", id=HOSTILE))
    sample, answers = sample_turns(hostile, 3, 0), Answers.read(tmp_path / "answers.jsonl")
    first = next(turn for turn in hostile if turn.id.startswith(HOSTILE))
    sample.append(first)
    with answers.open_for_writing():
        async with TestClient(TestServer(audit_app(sample, answers, "<b>ann</b>"))) as client:
            page = await (await client.get("/")).text()
            assert "document.title" in page
            assert "<img" not in page
            assert "<b>ann" not in page
            assert page.count("<script>") == 1
            [block] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
            records = json.loads(block)
            assert [set(record) for record in records] == [{"id", "given", "parts"}] * len(sample)
            assert not {"parameter_error", "not flagged"} & set(re.findall(r"\w+", block))
            requests: list[tuple[Any, int]] = [
                ({"turn": sample[0].id, "right": False}, 204),
                ({"turn": "none#1", "right": False}, 404),
                ({"turn": sample[0].id}, 400),
                ([], 400),
            ]
            for body, status in requests:
                assert (await client.post("/answer", json=body)).status == status
            plain = {"Content-Type": "text/plain"}
            assert (await client.post("/answer", data=b"{}", headers=plain)).status == 415
            assert (await client.get("/", headers={"Host": "example.org"})).status == 403
    assert Answers.read(answers.path).by_rater == {"<b>ann</b>": {sample[0].id: False}}


def test_a_model_rates_each_turn_once_and_is_compared_with_people(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    assert audit(run, "--judge", "rehearsal", "--per-cell", 4, "-o", file).exit_code == 0
    rated = len(file.read_bytes().splitlines())
    assert rated == len(sample_turns(turns(run), 4, 0))
    assert audit(run, "--judge", "rehearsal", "--per-cell", 4, "-o", file).exit_code == 0
    assert len(file.read_bytes().splitlines()) == rated
    answers = Answers.read(file)
    verdicts = {turn.id: turn.right for turn in turns(run)}
    with answers.open_for_writing():
        for turn in answers.by_rater["rehearsal"]:
            answers.append(Rating(turn=turn, rater="ann", right=verdicts[turn]))
    found = json.loads(audit(run, "--results", "--json", "-o", file).stdout)
    kappas = {tuple(one["raters"]): one["kappa"] for one in found["agreement"]}
    assert kappas["flags", "ann"] == 1
    assert kappas["flags", "rehearsal"] == kappas["rehearsal", "ann"]
    cells = {(one["rater"], one["cell"]): (one["right"], one["wrong"]) for one in found["cells"]}
    assert cells["rehearsal", "parameter"] == cells["ann", "parameter"] == (0, 4)
    assert cells["ann", "not flagged"] == (4, 0)
    shown = audit(run, "--results", "-o", file).stdout
    assert "rehearsal and ann agree on" in shown
    assert re.search(r"ann +parameter +0 +4 +100\.0%", shown)


def test_a_spent_budget_stops_the_judge_and_keeps_what_was_paid(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    stopped = audit(run, "--judge", "rehearsal", "--budget", "40ktok", "-o", file)
    assert stopped.exit_code == 1
    assert "budget" in stopped.stderr
    first = Answers.read(file)
    assert 0 < first.paid["rehearsal"].tokens <= 40_000
    assert audit(run, "--judge", "rehearsal", "--budget", "40ktok", "-o", file).exit_code == 1
    assert Answers.read(file).paid["rehearsal"].tokens <= 40_000


def test_requests_without_a_usable_answer_are_counted(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    arguments = ("--judge", "rehearsal:invalid_json=1", "--per-cell", 1, "-o", file)
    assert audit(run, *arguments).exit_code == 1
    answers = Answers.read(file)
    assert not answers.by_rater
    (paid,) = answers.paid.values()
    assert paid.tokens > 0
    assert audit(run, *arguments, "--budget", f"{paid.tokens}tok").exit_code == 1
    assert list(Answers.read(file).paid.values()) == [paid]


CHAT: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": "Who wrote it?"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "search", "arguments": "{}"}}]},
        {"role": "tool", "content": "Nobody knows."},
        {"role": "assistant", "content": "Ann did."},
    ],
    "tools": [{"type": "function", "function": {"name": "search"}}],
    "step_labels": {"1": 0, "3": -1},
    "final_label": -1,
}


def test_labelled_steps_are_turns(tmp_path: Path) -> None:
    file = tmp_path / "steps.jsonl"
    file.write_bytes(orjson.dumps(CHAT) + b"\n\n" + orjson.dumps({**CHAT, "step_labels": {"3": 1}}))
    found = list(labelled_turns(file))
    assert [(turn.id, turn.cell, turn.right) for turn in found] == [
        ("steps:1#2", "neutral", True),
        ("steps:1#4", "erroneous", False),
        ("steps:3#4", "correct", True),
    ]
    shown = found[1].content()
    assert shown["task"] == {"tools": CHAT["tools"], "messages": CHAT["messages"][:1]}
    assert shown["history"] == CHAT["messages"][1:3]
    assert shown["turn"] == CHAT["messages"][3]
    assert audit("--truth", file, "--judge", "rehearsal").exit_code == 0
    assert len(Answers.read(tmp_path / "steps.audit.jsonl").by_rater["rehearsal"]) == 3


def test_a_message_with_keys_of_a_turn_is_shown_as_a_message(tmp_path: Path) -> None:
    file = tmp_path / "steps.jsonl"
    said = [
        {"role": "user", "content": "asked", "observation": 1},
        {"role": "assistant", "content": "told", "action": 2},
    ]
    file.write_bytes(orjson.dumps({"messages": said, "step_labels": {"1": 1}}))

    async def page() -> str:
        site = audit_app(list(labelled_turns(file)), Answers(tmp_path / "answers.jsonl"), "ann")
        async with TestClient(TestServer(site)) as client:
            return await (await client.get("/")).text()

    text = anyio.run(page)
    assert '["user","asked"]' in text
    assert '["turn","told"]' in text


def test_a_rater_with_the_name_of_the_verdicts_does_not_replace_them(run: Path, tmp_path: Path) -> None:
    file, (turn, *_) = tmp_path / "answers.jsonl", turns(run)
    given = [Rating(turn=turn.id, rater=rater, right=not turn.right) for rater in ("flags", "ann")]
    file.write_text("".join(f"{answer.model_dump_json()}\n" for answer in given))
    found = json.loads(audit(run, "--results", "-o", file, "--json").stdout)["agreement"]
    assert [(one["raters"], one["agreed"]) for one in found] == [
        (["flags", "flags"], 0),
        (["flags", "ann"], 0),
        (["flags", "ann"], 1),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        orjson.dumps({"messages": []}),
        orjson.dumps({**CHAT, "step_labels": {"3": 2}}),
        orjson.dumps({**CHAT, "step_labels": {"4": 1}}),
        orjson.dumps({**CHAT, "step_labels": {"one": 1}}),
    ],
)
def test_other_lines_are_named(tmp_path: Path, line: bytes) -> None:
    file = tmp_path / "steps.jsonl"
    file.write_bytes(orjson.dumps(CHAT) + b"\n" + line)
    with pytest.raises(InputError, match="line 2 of"):
        list(labelled_turns(file))


def test_the_command_refuses_contradictions(run: Path, tmp_path: Path) -> None:
    for arguments, said in (
        ([run], "give one of --rater"),
        ([run, "--rater", "ann", "--results"], "give one of --rater"),
        ([run, "--rater", " "], "no name of a rater"),
        ([run, "--rater", "ann", "--budget", "1usd"], "--judge BACKEND"),
        (["--results"], "--truth FILE"),
        ([run, "--truth", run, "--results"], "not both"),
        (["--truth", ".", "--judge", "rehearsal"], "no file"),
        ([run, "--results", "-o", tmp_path / "none"], "no answers"),
    ):
        result = audit(*arguments)
        assert result.exit_code == 2, (arguments, result.output)
        assert said in result.stderr.replace("\n", " ")
