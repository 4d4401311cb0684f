"""Whole runs over HTTP: litellm, real sockets, a server that fails, and several models."""

from pathlib import Path
from typing import Literal

import httpx
import pytest
from faulty_server import faulty_app

import refinesynth as rs
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.serve import running

pytestmark = pytest.mark.process

SPOILT = Faults(invalid_json=0.05, missing_keys=0.05, too_few_errors=0.1, wrong_parameters=0.1)
UNWELL = {429: 0.06, 500: 0.03, 503: 0.03, "garbage": 0.03, "hang": 0.005}


def backend(address: str, model: str = "rehearsal") -> rs.Backend:
    return rs.Backend(model=f"openai/{model}", base_url=f"{address}/v1", timeout=1.5, longest_wait=0.01, retries=12)


@pytest.mark.parametrize(("play", "n"), [("live", 4), ("narrated", 12), ("grounded", 4)])
async def test_a_failing_server_changes_nothing_about_the_trajectories(
    tmp_path: Path, play: Literal["live", "narrated", "grounded"], n: int
) -> None:
    inside = await rs.synthesize(n=n, play=play, output=tmp_path / "inside", call=Rehearsal(faults=SPOILT))
    with running(faulty_app(Rehearsal(faults=SPOILT), UNWELL, seed=3)) as address:
        outside = await rs.synthesize(
            n=n, play=play, backend=backend(address), output=tmp_path / "outside", concurrency=4
        )
        async with httpx.AsyncClient() as client:
            stats = (await client.get(f"{address}/stats")).json()
    assert outside.reached, outside.shortfall
    assert [found.turns for found in outside] == [found.turns for found in inside]
    assert [found.script for found in outside] == [found.script for found in inside]
    assert outside.violations == inside.violations
    failed = {status: count for status, count in stats["by_status"].items() if status != "200"}
    assert sum(failed.values()) > 0, stats
    # Only what was answered and read is accounted for.
    assert [found.provenance.usage for found in outside] == [found.provenance.usage for found in inside]


async def test_a_key_is_asked_for_only_where_a_role_is_played(tmp_path: Path) -> None:
    backends = {"default": "rehearsal", "narrator": "gpt-4o", "judge": "claude"}
    result = await rs.synthesize(n=1, backend=backends, output=tmp_path / "run")
    assert result.reached
    with pytest.raises(rs.ConfigurationError, match="OPENAI_API_KEY"):
        await rs.synthesize(n=1, backend=backends, play="narrated", output=tmp_path / "other")
    assert not (tmp_path / "other").exists()
