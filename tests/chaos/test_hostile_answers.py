"""Runs over real sockets against a server with every fault on: they reach n or say why not, and record nothing
unverified."""

from contextlib import suppress
from pathlib import Path
from typing import Literal

import anyio
import pytest
from chaos_stage import KINDS, PATHS, STATUSES, backend, check_folder, counts, failing

import refinesynth as rs
from refinesynth.errors import RunStopped
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
