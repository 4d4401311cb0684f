"""Runs over real sockets against a server with every fault on: they reach n or say why not, and record nothing
unverified."""

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
    # With this seed no web page comes first, which is a wrong address. litellm replaces a surrogate in UTF-8: an answer
    # without a finish_reason is left, which is paid for and asked for again with another seed.
    monkeypatch.setattr(faulty_server, "GARBAGE", faulty_server.GARBAGE[:-1])
    inside = await rs.synthesize(n=4, play="narrated", output=tmp_path / "inside", call=Rehearsal(faults=Faults.none()))
    faults = {500: 0.2, "before": 0.2, "middle": 0.2, "garbage": 0.1}
    with running(served(faults, seed=7)) as address:
        result = await run(address, tmp_path / "outside", n=4, path=path)
    assert result is not None
    assert [found.turns for found in result] == [found.turns for found in inside]
