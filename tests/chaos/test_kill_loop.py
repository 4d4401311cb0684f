"""A run that is killed again and again ends as one that never was: nothing lost, nothing twice, nothing paid for
twice."""

import json
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest
from chaos_stage import check_folder
from faulty_server import faulty_app
from launching import Launcher

import refinesynth as rs
from refinesynth.journal import JournalReader
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.serve import running

pytestmark = pytest.mark.process

KILLS = 26
CONCURRENCY = 4
LATENCY = 0.02
"""Seconds until the server answers."""
SLIPS = Faults(invalid_json=0.05, missing_keys=0.05, too_few_errors=0.15, wrong_parameters=0.1)
UNWELL = {500: 0.03, "busy": 0.02}
DATA = ("trajectories.jsonl", "rejected.jsonl")


class Counted:
    """The rehearsal, which counts its answers."""

    def __init__(self) -> None:
        self.answers = 0
        self._rehearsal = Rehearsal(faults=SLIPS)

    async def __call__(self, **request: Any) -> object:
        self.answers += 1
        return await self._rehearsal(**request)


@dataclass(frozen=True)
class Bill:
    """What the server says was paid for, by episode and request."""

    whole: Counter[tuple[str, str, int]]
    """With the request's seed."""
    seedless: Counter[tuple[str, str]]

    @classmethod
    def read(cls, log: Path) -> "Bill":
        paid = [line for line in map(json.loads, log.read_text().splitlines()) if line["paid"]]
        return cls(
            Counter((line["session"], line["digest"], line["seed"]) for line in paid),
            Counter((line["session"], line["digest"]) for line in paid),
        )


def asked(address: str, folder: Path, play: str, n: int, **several: int) -> dict[str, Any]:
    """The run, as arguments of `synthesize`."""
    backend = {
        "model": "openai/rehearsal",
        "base_url": f"{address}/v1",
        "path": "direct",
        "longest_wait": 0.02,
        "retries": 20,
    }
    there = {"output": str(folder), "concurrency": CONCURRENCY, "seed": 11}
    return {"n": n, "play": play, "backend": backend, **there, **several}


def kill_often(launcher: Launcher, run: dict[str, Any], server: Counted, *, answers: int, random: Random) -> int:
    """Kill the run at random instants, of its start and of its work; how often it was.

    Each time it gets so far that `answers`, all that it needs, would not be reached.
    """
    killed = 0
    for number in range(KILLS):
        process = launcher.make(run)
        if number % 4 == 0:
            time.sleep(random.uniform(0.0, 0.06))
        else:
            enough = server.answers + random.randint(1, max(1, int(1.6 * answers / KILLS)))
            while server.answers < enough and not process.ended:
                time.sleep(0.001)
            time.sleep(random.uniform(0.0, LATENCY))
        ended = process.kill()
        assert ended in {-9, 0}
        killed += ended == -9
    return killed


@pytest.mark.parametrize(
    ("play", "n", "several"),
    [("live", 8, {}), ("narrated", 40, {}), ("live", 16, {"episodes_per_script": 2, "branches": 2})],
)
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_never_was(
    play: Literal["live", "narrated"], n: int, several: dict[str, int], warm: Path, tmp_path: Path
) -> None:
    logs = {name: tmp_path / f"{name}.jsonl" for name in ("whole", "killed")}
    servers = {name: Counted() for name in logs}
    launcher = Launcher(warm, tmp_path / "said")
    with running(faulty_app(servers["whole"], latency=LATENCY, jitter=0.5, log=logs["whole"])) as address:
        assert launcher.make(asked(address, tmp_path / "whole", play, n, **several)).wait() == 0, (
            launcher.said.read_text()
        )
    app = faulty_app(servers["killed"], UNWELL, latency=LATENCY, jitter=0.5, log=logs["killed"])
    with running(app) as address:
        run = asked(address, tmp_path / "killed", play, n, **several)
        kills = kill_often(launcher, run, servers["killed"], answers=servers["whole"].answers, random=Random(n))
        assert launcher.make(run).wait() == 0, launcher.said.read_text()
    assert kills >= 25
    assert "Traceback" not in launcher.said.read_text()

    for name in DATA:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    check_folder(tmp_path / "killed")
    result = rs.SynthesisResult.open(tmp_path / "killed")
    # The last episode is kept whole.
    found = len({trajectory.id for trajectory in result})
    assert n <= found < n + several.get("episodes_per_script", 1) * several.get("branches", 1)

    whole, killed = Bill.read(logs["whole"]), Bill.read(logs["killed"])
    assert max(whole.whole.values()) == 1, "an uninterrupted run pays for nothing twice"
    in_flight = kills * CONCURRENCY
    assert 0 < (killed.whole - Counter(dict.fromkeys(killed.whole, 1))).total() <= in_flight
    # Episodes that the uninterrupted run never began are no matter here.
    again = killed.seedless - whole.seedless
    assert Counter({key: count for key, count in again.items() if key in whole.seedless}).total() <= in_flight
    with JournalReader.read(tmp_path / "killed" / "journal.sqlite") as journal:
        assert journal.paid_count() <= len(killed.whole)
