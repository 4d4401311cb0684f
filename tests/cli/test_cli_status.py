"""`refinesynth status`: where a run stands, whoever works on it, and however that one ended."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from command_line import cli, unwrapped

from refinesynth.cli.status import variety_rows
from refinesynth.diversity import Contamination, Novelty
from refinesynth.outcome import EpisodeOutcome
from refinesynth.rehearsal import Rehearsal
from refinesynth.run import CompletedEpisode, RunConfig, RunFolder, RunWriter
from refinesynth.run.status import DiversityStats
from refinesynth.serve import create_app, running
from refinesynth.synthesis import Progress, synthesize
from refinesynth.synthesis.curator import Curator
from refinesynth.trajectory import DungeonMasterTurn, Trajectory

PATIENCE = 120


# Wide enough for whatever is in a table to stand on one line.
status = partial(cli, "status", env={"COLUMNS": "160"})


def as_json(folder: Path) -> dict[str, Any]:
    result = status(folder, "--json")
    assert result.exit_code == 0, result.output
    return orjson.loads(result.stdout)


def made(folder: Path, backend: str, n: int = 4, *, play: str = "narrated", **settings: Any) -> Path:
    """A run in `folder`."""
    anyio.run(partial(synthesize, n=n, backend=backend, play=play, output=folder / "run", **settings))
    return folder / "run"


@pytest.fixture
def complete(tmp_path: Path) -> Path:
    return made(tmp_path, "rehearsal:no_success=0.3")


def test_a_complete_run_says_what_came_of_it(complete: Path) -> None:
    result = status(complete)
    assert result.exit_code == 0, result.output
    lines = [unwrapped(line) for line in result.stdout.splitlines()]
    assert "state complete" in lines
    assert "accepted 4 of 4" in lines
    assert any(line.endswith("by TaskSucceed") for line in lines)
    assert any(line.startswith("last event run_ended reached") for line in lines)
    assert any(line.startswith("narrator rehearsal:no_success=0.3") for line in lines)
    assert any(line.startswith("all ") for line in lines)
    assert "\x1b" not in result.output
    found = as_json(complete)
    assert (found["state"], found["n"], found["accepted"], found["in_flight"]) == ("complete", 4, 4, [])
    assert found["cost_usd"] == 0
    assert {row["role"] for row in found["spent"]} == {"script_writer", "narrator"}
    assert found["process"]["pid"] == os.getpid()


def test_a_run_that_was_interrupted_says_so_and_what_it_had_begun(tmp_path: Path) -> None:
    async def run() -> None:
        rehearsal = Rehearsal()

        with anyio.CancelScope() as scope:

            async def call(**request: Any) -> object:
                if not str(request["messages"]).count("A"):
                    raise AssertionError("every request has words")
                return await rehearsal(**request)

            def interrupt(progress: Progress) -> None:
                if progress.finished == 2:
                    scope.cancel()

            await synthesize(
                None, 30, "openai/any", output=tmp_path / "run", call=call, on_progress=interrupt, concurrency=4
            )

    anyio.run(run)
    found = as_json(tmp_path / "run")
    assert (found["state"], found["why"]) == ("stopped", "interrupted")
    assert found["episodes"] >= 2
    assert found["cost_usd"] is None
    result = status(tmp_path / "run")
    assert "stopped: interrupted; the same command goes on with it" in unwrapped(result.stdout)
    assert "unknown" in result.stdout


@pytest.mark.process
def test_it_works_beside_a_running_process_and_after_that_one_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with running(create_app(Rehearsal(), latency=0.2)) as address:
        command = ["run", "-n", "50", "-o", str(folder), "--backend", "hosted_vllm/rehearsal", "--concurrency", "3"]
        with subprocess.Popen(
            [sys.executable, "-m", "refinesynth", *command],
            env={**os.environ, "HOSTED_VLLM_API_BASE": f"{address}/v1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            deadline = time.monotonic() + PATIENCE
            alive: dict[str, Any] = {}
            while not (alive.get("in_flight") and alive.get("spent")) and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.05)
                if (folder / "config.json").exists():
                    alive = as_json(folder)
            assert (alive["state"], alive["process"]["pid"]) == ("running", process.pid)
            assert 1 <= len(alive["in_flight"]) <= 3
            assert alive["spent"]
            text = unwrapped(status(folder).stdout)
            assert f"running, by process {process.pid} on" in text
            assert "in flight" in text
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE)
    dead = as_json(folder)
    assert dead["state"] == "died"
    assert sum(row["requests"] for row in dead["spent"]) >= sum(row["requests"] for row in alive["spent"])
    assert "the same command goes on with it and pays for no completion twice" in " ".join(
        status(folder).stdout.split()
    )


@pytest.mark.parametrize(
    ("personas", "words"),
    [
        (None, "nothing was accepted"),
        (["A potter from Fez"], "stopped: the personas ran out; the same command with more of them"),
    ],
)
def test_a_run_without_anything_accepted_says_what_would_continue_it(
    tmp_path: Path, personas: list[str] | None, words: str
) -> None:
    said = unwrapped(status(made(tmp_path, "rehearsal:no_success=1.0", personas=personas, early_stop=2)).stdout)
    assert words in said
    assert re.search(r"why none (\d) of \1 episodes? without a trajectory: no draft was accepted", said)
    assert ("with --early-stop 0 goes on" in said) == (personas is None)


def test_a_process_of_another_host_may_live(complete: Path) -> None:
    holder = orjson.loads((complete / "run.lock").read_bytes())
    events = complete / "events.jsonl"
    lines = events.read_bytes().splitlines(keepends=True)
    events.write_bytes(b"".join(lines[:-1]))
    for host, pid, state in (("elsewhere", 1, "running"), (holder["host"], 2**22 + 1, "complete")):
        (complete / "run.lock").write_bytes(orjson.dumps({**holder, "host": host, "pid": pid}))
        assert as_json(complete)["state"] == state


@pytest.mark.parametrize("said", [b"", b"{\n", b"[]\n", b'{"event": "\\u001b[2J", "timestamp": 5}\n', b"\0\0\0\n"])
def test_whatever_is_in_its_files_is_shown_and_not_obeyed(complete: Path, said: bytes) -> None:
    (complete / "events.jsonl").write_bytes(said)
    (complete / "run.lock").write_bytes(said)
    for arguments in ([complete], [complete, "--json"]):
        result = status(*arguments)
        assert result.exit_code == 0, result.output
        assert "\x1b" not in result.output


def test_lines_without_a_journal_are_counted(complete: Path) -> None:
    for file in complete.glob("journal.sqlite*"):
        file.unlink()
    found = as_json(complete)
    assert (found["accepted"], found["spent"]) == (4, [])


def test_what_is_no_run_is_2_and_a_damaged_journal_3(tmp_path: Path, complete: Path) -> None:
    assert status(tmp_path).exit_code == 2
    (complete / "journal.sqlite").write_bytes(b"no database" * 1000)
    result = status(complete)
    assert result.exit_code == 3
    assert "is damaged" in result.stderr


def trajectories_of(folder: Path) -> list[Trajectory]:
    return [Trajectory.from_json(line) for line in (folder / "trajectories.jsonl").read_bytes().splitlines()]


def test_how_various_it_is_is_what_its_trajectories_say(complete: Path) -> None:
    trajectories = trajectories_of(complete)
    answers = [turn for one in trajectories for turn in one.turns if isinstance(turn, DungeonMasterTurn)]
    mistakes = [turn.mistake_kind.value for turn in answers if turn.mistake_kind is not None]
    found = as_json(complete)["variety"]
    lengths = sorted(len(one.turns) for one in trajectories)
    assert found["trajectories"] == 4
    assert found["environments"] == len({one.script.digest for one in trajectories})
    assert found["action_names"] == len({action.name for one in trajectories for action in one.script.actions})
    assert found["turns"] == {"min": lengths[0], "median": (lengths[1] + lengths[2]) / 2, "max": lengths[3]}
    assert found["mistakes"] == {kind: mistakes.count(kind) for kind in set(mistakes)}
    assert (found["refinements"], found["unanswered"]) == (sum(map(len, (one.mistakes() for one in trajectories))), 0)
    assert sum(found["mistakes_by_tenth"]) == pytest.approx(len(mistakes), abs=0.5)
    assert found["clean"] == sum(not one.mistakes() for one in trajectories)
    assert (found["near_duplicates"], found["contaminated"], found["transient"]) == (0, 0, 0)
    text = unwrapped(status(complete).stdout)
    assert f"{found['environments']} environments and {found['action_names']} action names in 4 trajectories" in text
    assert f"turns {lengths[0]} to {lengths[3]}, median" in text
    # Without its journal, the lines alone say the same.
    for file in complete.glob("journal.sqlite*"):
        file.unlink()
    alone = as_json(complete)["variety"]
    unknown: dict[str, Any] = {"scripts": 0, "stages": []}
    assert alone == {**found, **unknown}


def test_mistakes_that_crowd_or_are_missing_are_said(complete: Path) -> None:
    folder = RunFolder.open(complete)
    usual = DiversityStats.of(folder, folder.totals())
    figures = usual.figures.model_copy(update={"trajectories": 100, "clean": 20})
    assert usual.clean_asked == 0.2

    def told(**changed: Any) -> str:
        return "\n".join(text for _, text in variety_rows(replace(usual, figures=figures.model_copy(update=changed))))

    assert "uneven" not in told(tenths=(40.0,) * 10)
    assert "uneven" in told(tenths=(200.0, 100.0, *[20.0] * 8))
    assert "were to hold none" not in told()
    assert "20% were to hold none" in told(clean=36)
    assert "all the same: 3 call in text, 1,200 text after the action" in told(
        salvaged=Counter({"text after the action": 1_200, "call in text": 3}), trajectories=0
    )


def test_scripts_are_told_stage_by_stage_in_the_order_of_the_rules(tmp_path: Path) -> None:
    # One after the other: of episodes that are kept for later, stages say nothing yet.
    folder = made(tmp_path, "rehearsal:ambiguous_pattern=0.6", seed=3, concurrency=1)
    found = as_json(folder)
    stages = found["variety"]["stages"]
    assert sum(stage["refused"] for stage in stages) == found["scripts_refused"] > 0
    left = found["variety"]["scripts"]
    for stage in stages:
        left -= stage["refused"]
        assert stage["left"] == left
    lines = [unwrapped(line) for line in status(folder).stdout.splitlines()]
    at = next(number for number, line in enumerate(lines) if line.startswith("scripts "))
    for stage, line in zip(stages, lines[at + 1 :], strict=False):
        assert line.startswith(f"{stage['refused']} ")
        assert line.endswith(f"{stage['left']} left")


def test_words_that_would_not_do_are_counted(tmp_path: Path) -> None:
    folder = made(tmp_path, "rehearsal:contradiction=1", 1, play="grounded")
    (one,) = trajectories_of(folder)
    answers = [turn for turn in one.turns if isinstance(turn, DungeonMasterTurn)]
    plain = sum(turn.plain for turn in answers)
    assert as_json(folder)["variety"]["plain"] == plain > 0
    text = unwrapped(status(folder).stdout)
    assert f"words the rulebook's own in {plain} answers: none of the DungeonMaster's would do" in text


SECRET = "seven wooden boats wait behind the ancient lighthouse until the keeper has painted every one of them"


async def curated(source: Path, path: Path, evaluation: Path) -> None:
    """A run with one trajectory, a copy of it, and one that an evaluation set holds."""
    first, second = trajectories_of(source)[:2]
    script = second.script.model_copy(update={"introduction": SECRET})
    curator = Curator(novelty=Novelty(), contamination=Contamination([evaluation]))
    folder = RunWriter.claim(path, RunConfig.load(source / "config.json"))
    for index, one in enumerate((first, first, second.model_copy(update={"script": script}))):
        name = f"{index:06d}"
        outcome = EpisodeOutcome(
            index=index, id=name, persona=one.persona, trajectories=(one.model_copy(update={"id": name}),)
        )
        await folder.append(CompletedEpisode.of(curator.curate(outcome)))
    folder.close()


def test_what_was_curated_is_counted_and_is_not_accepted_again(complete: Path, tmp_path: Path) -> None:
    evaluation = tmp_path / "test.txt"
    evaluation.write_text(SECRET, encoding="utf-8")
    anyio.run(curated, complete, tmp_path / "curated", evaluation)
    found = as_json(tmp_path / "curated")
    assert found["by_rule"] == {"NearDuplicate": 1, "Contaminated": 1}
    assert (found["variety"]["near_duplicates"], found["variety"]["contaminated"]) == (1, 1)
    assert (found["variety"]["environments"], found["accepted"]) == (1, 1)
    text = unwrapped(status(tmp_path / "curated").stdout)
    assert "1 near-duplicate and 1 contaminated refused" in text
    verified = cli("verify", tmp_path / "curated")
    assert "refused then, accepted now" not in verified.output


def test_lines_of_an_earlier_version_say_nothing_of_variety(complete: Path) -> None:
    with sqlite3.connect(complete / "journal.sqlite") as journal:
        for table, key, column in (("entries", "idx", "line"), ("notes", "name", "value")):
            for row, value in journal.execute(f"SELECT {key}, {column} FROM {table}").fetchall():
                if isinstance(value, bytes) and b'"figures"' in value:
                    without = {name: one for name, one in orjson.loads(value).items() if name != "figures"}
                    journal.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (orjson.dumps(without), row))
    journal.close()
    assert RunFolder.open(complete).totals().figures.trajectories == 0
    found = as_json(complete)
    assert (found["accepted"], found["variety"]["trajectories"], found["variety"]["environments"]) == (4, 0, 0)
    assert "distinct" not in status(complete).stdout
