"""Runs over real sockets against a server with every fault on: they reach n or say why not, and record nothing
unverified."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Literal

import anyio
import faulty_server
import pytest
from chaos_stage import KINDS, PATHS, STATUSES, backend, check_folder, counts, failing, served

import refinesynth as rs
from refinesynth.errors import RunStopped
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.serve import running

pytestmark = pytest.mark.process

LONGEST_SECONDS = 120
"""A run of seconds that takes longer hangs."""

LETHAL = frozenset({"filter"})
"""Faults that end the episode that meets them, by decision: asking a filter again is no use."""


async def run(
    address: str, folder: Path, *, n: int, path: str, play: Literal["live", "narrated"] = "narrated", **settings: object
) -> rs.SynthesisResult | None:
    """A run that ends in time: with a result, or with a reason to stop."""
    result, reason = None, ""
    with anyio.fail_after(LONGEST_SECONDS):
        try:
            result = await rs.synthesize(
                n=n, play=play, backend=backend(address, path=path, **settings), output=folder, concurrency=8
            )
        except RunStopped as stopped:
            reason = str(stopped)
    check_folder(folder)
    assert reason if result is None else result.reached or result.shortfall
    return result


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", [*STATUSES, *KINDS])
async def test_a_run_gets_through_any_one_fault(kind: str | int, path: str, tmp_path: Path) -> None:
    patience = 0.3 if kind in {"hang", "drip", "huge"} else 1.0
    share = 0.2 if kind in LETHAL else 0.4
    app, spoilt = failing({kind: share}, seed=5)
    with running(app) as address:
        result = await run(address, tmp_path / "run", n=4, path=path, timeout=patience)
        endings = await counts(address)
    assert result is not None
    assert result.reached, result.shortfall
    assert spoilt[str(kind)] or endings["429" if kind == "busy" else str(kind)], "the fault was met"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("play", ["live", "narrated"])
async def test_a_run_gets_through_all_faults_at_once(
    play: Literal["live", "narrated"], path: str, tmp_path: Path
) -> None:
    shares = dict.fromkeys(set(KINDS) - LETHAL - {"hang", "drip", "huge"}, 0.025)
    app, spoilt = failing({**shares, "hang": 0.01, **dict.fromkeys(STATUSES, 0.02)}, seed=9)
    with running(app) as address:
        result = await run(address, tmp_path / "run", n=4, path=path, play=play, timeout=0.3)
    assert spoilt
    assert result is not None
    assert result.reached, result.shortfall


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", [*STATUSES, *sorted(set(KINDS) - {"hang", "drip", "huge"})])
async def test_a_server_that_always_fails_ends_the_run_with_a_reason(
    kind: str | int, path: str, tmp_path: Path
) -> None:
    personas = [f"Somebody with the number {number}" for number in range(12)]
    app, _ = failing({kind: 1.0}, seed=2)
    with running(app) as address, anyio.fail_after(LONGEST_SECONDS):
        asked = backend(address, path=path, retries=2, content_retries=1)
        with suppress(RunStopped):
            result = await rs.synthesize(
                personas, n=2, play="narrated", backend=asked, output=tmp_path / "run", concurrency=4
            )
            # Some faults can be lived with: HTML that is JSON, keys that come twice.
            assert result.reached or result.shortfall
    check_folder(tmp_path / "run")


@pytest.mark.parametrize("path", PATHS)
async def test_a_server_that_fails_for_a_while_changes_nothing(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # litellm replaces a surrogate in UTF-8: an answer
    # without a finish_reason is left, which is paid for and asked for again with another seed.
    monkeypatch.setattr(faulty_server, "GARBAGE", faulty_server.GARBAGE[:-1])
    inside = await rs.synthesize(n=4, play="narrated", output=tmp_path / "inside", call=Rehearsal(faults=Faults.none()))
    faults = {500: 0.2, "before": 0.2, "middle": 0.2, "garbage": 0.1}
    with running(served(faults, seed=7)) as address:
        result = await run(address, tmp_path / "outside", n=4, path=path)
    assert result is not None
    assert [found.turns for found in result] == [found.turns for found in inside]


MEMORY = """
import resource, sys
import anyio
import refinesynth as rs
sys.path[:0] = {stage!r}
from chaos_stage import backend

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

async def main():
    for address, name in (({calm!r}, "calm"), ({huge!r}, "huge")):
        asked = backend(address, path={path!r}, timeout=20.0)
        result = await rs.synthesize(n=4, play="narrated", backend=asked, output={folder!r} + name, concurrency=2)
        assert result.reached, result.shortfall
        print(peak(), flush=True)

anyio.run(main)
"""


MOST_MIB = {"litellm": 800, "direct": 50}
"""litellm reads an answer to its end: two at once are held as bytes, as text and parsed. The direct client reads no
answer that long."""


@pytest.mark.parametrize("path", PATHS)
def test_a_huge_answer_does_not_fill_the_memory(path: str, tmp_path: Path) -> None:
    app, spoilt = failing({"huge": 0.5}, seed=1)
    with running(served()) as calm, running(app) as huge:
        code = MEMORY.format(
            calm=calm,
            huge=huge,
            path=path,
            folder=str(tmp_path / "run-"),
            stage=[str(folder) for folder in Path(__file__).parents[:2]],
        )
        done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    before, after = map(int, done.stdout.split())
    assert spoilt["huge"] >= 3
    assert after - before < MOST_MIB[path], (before, after)
