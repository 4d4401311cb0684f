"""Runs with several workers: the same files as without, continued by any number of them, within one budget."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from test_crew import family

from refinesynth import synthesize
from refinesynth.run import RunFolder, worker_journals
from refinesynth.settings.curation import Curation

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("local_ray")]

FILES = ("trajectories.jsonl", "rejected.jsonl")


def contents(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in FILES]


@pytest.mark.representative
async def test_a_run_is_continued_by_another_number_of_workers_without_paying_again(tmp_path: Path) -> None:
    await synthesize(n=12, output=tmp_path / "whole", concurrency=6)
    for n, workers in ((3, 2), (6, 1), (12, 2)):
        result = await synthesize(n=n, output=tmp_path / "run", concurrency=6, workers=workers)
        assert len(result) == n
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    folder = RunFolder.open(tmp_path / "run")
    paid = sum(row.requests for row in folder.spent())
    needed = sum(line.usage.requests for line in (*folder.episodes(), *folder.waiting_lines()))
    assert paid == needed + sum(one.requests for one in folder.outstanding())


async def test_all_workers_keep_to_one_budget(tmp_path: Path) -> None:
    result = await synthesize(n=12, output=tmp_path / "run", concurrency=6, workers=2, budget="200ktok", deadline=None)
    spent = sum(row.input_tokens + row.output_tokens for row in RunFolder.open(tmp_path / "run").spent())
    assert 0 < len(result) < 12
    assert spent <= 200_000 + 20_000
    assert "budget" in (result.shortfall or "")


async def test_several_trajectories_by_mixed_models_are_curated_alike_in_any_number_of_workers(
    tmp_path: Path,
) -> None:
    # About every fifth script of the rehearsal begins in these words.
    known = next(iter(await synthesize(n=1, output=tmp_path / "known"))).script.introduction
    (tmp_path / "known.jsonl").write_bytes(orjson.dumps({"text": known}) + b"\n")
    asked: dict[str, Any] = {
        "n": 8,
        "backend": {"default": "rehearsal", "player": ["rehearsal", "rehearsal:natural_mistake=0.5"]},
        "episodes_per_script": 2,
        "branches": 2,
        "curation": Curation(contamination=(str(tmp_path / "known.jsonl"),), contaminated="refuse"),
    }
    one = await synthesize(output=tmp_path / "one", concurrency=1, **asked)
    fewer: dict[str, Any] = {**asked, "n": 3}
    await synthesize(output=tmp_path / "two", concurrency=3, **fewer)
    two = await synthesize(output=tmp_path / "two", concurrency=6, workers=2, **asked)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert (two.by_rule, len(two)) == (one.by_rule, len(one))
    assert len(one) >= 8
    assert len(worker_journals(tmp_path / "two")) == 2
    assert "Contaminated" in one.by_rule, "nothing was curated, and this shows nothing"


def one_of(pid: int, name: str, *, patience: float = 120.0) -> int:
    """The process below `pid` whose command line holds `name`."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        with suppress(OSError):
            for child in family(pid):
                if name in Path(f"/proc/{child}/cmdline").read_text():
                    return child
        time.sleep(0.05)
    raise AssertionError(f"no process {name!r} was started")


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="processes are looked up in Linux's /proc")
def test_a_run_whose_raylet_is_killed_says_so(tmp_path: Path) -> None:
    personas = tmp_path / "personas.txt"
    personas.write_text("".join(f"A clerk of office {number}\n" for number in range(20_000)))
    command = [
        sys.executable,
        "-m",
        "refinesynth",
        "run",
        str(personas),
        "-n",
        "20000",
        "--seed",
        "7",
        "--workers",
        "2",
    ]
    command += ["-o", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        try:
            # Before a worker plays, Ray is started again.
            one_of(run.pid, "ray::Worker")
            child = one_of(run.pid, "refinesynth")
            os.kill(one_of(run.pid, "/raylet/raylet"), signal.SIGKILL)
            said = run.communicate(timeout=100)[0]
        finally:
            run.kill()
    assert run.returncode == 3, said
    assert "Ray ended the run: one of its processes on this machine" in " ".join(said.split())
    assert not Path(f"/proc/{child}").exists()
