"""From a few episodes to what a whole run takes: ranges that hold the truth, and nothing left behind."""

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth import Backend, synthesize
from refinesynth.errors import BudgetSpent, InputError
from refinesynth.outcome import Cost
from refinesynth.rehearsal import Rehearsal
from refinesynth.synthesis.dry_run import Estimate, estimate, wilson
from refinesynth.trajectory import Usage

PEOPLE = [f"Somebody with the number {number}" for number in range(40)]
PAID = Backend(model="gpt-4o", input_price=2.5, output_price=10, max_tokens=4_000)


@given(st.integers(0, 50), st.integers(1, 50))
def test_a_share_lies_in_its_interval(hits: int, misses: int) -> None:
    found = wilson(hits, hits + misses)
    assert 0 <= found.low <= found.likely <= found.high <= 1
    if hits:
        assert found.likely == pytest.approx(hits / (hits + misses))
    # More of the same is known better.
    more = wilson(4 * hits, 4 * (hits + misses))
    assert more.high - more.low <= found.high - found.low + 1e-12


episodes = st.lists(
    st.tuples(st.integers(0, 6), st.builds(Cost, usage=st.builds(Usage, output_tokens=st.integers(0, 10**6)))),
    min_size=1,
    max_size=12,
)


@given(episodes, st.integers(1, 10**6), st.integers(1, 10**4))
def test_what_is_likely_lies_between_the_ends(played: list[tuple[int, Cost]], n: int, concurrency: int) -> None:
    found = Estimate.of(played, n=n, per_episode=6, concurrency=concurrency, source="", elapsed=1, episode_seconds=2)
    for one in (found.personas, found.requests, found.output_tokens, found.seconds):
        assert 0 <= one.low <= one.likely <= one.high
    assert 0 <= found.per_persona.low <= found.per_persona.likely <= found.per_persona.high <= 6
    # A few episodes that all went alike leave room for doubt.
    assert found.per_persona.low < found.per_persona.high
    assert found.personas.low >= n / 6
    assert found.seconds.low >= 2
    assert math.isinf(found.personas.high) == (found.accepted == 0)
    assert found.as_json()["sample"]["episodes"] == len(played)


def test_a_forecast_is_the_sample_times_what_is_missing() -> None:
    one = Cost(usage=Usage(requests=10, input_tokens=1_000, output_tokens=100), cost_usd=0.5)
    found = Estimate.of([(True, one), (False, one)], n=100, concurrency=10, source="", elapsed=9, episode_seconds=4)
    assert found.personas.likely == 200
    assert found.cost_usd is not None
    assert found.cost_usd.likely == pytest.approx(100)
    assert found.seconds.likely == pytest.approx(80)
    unknown = Estimate.of([(True, Cost(cost_usd=None))], n=1, concurrency=1, source="", elapsed=1, episode_seconds=1)
    assert unknown.cost_usd is None
    assert unknown.as_json()["cost_usd"] is None
    several = Estimate.of(
        [(4, one), (2, one), (0, one)], n=100, per_episode=4, concurrency=10, source="", elapsed=9, episode_seconds=4
    )
    assert several.accepted == 6
    assert several.per_persona.likely == pytest.approx(2)
    assert several.personas.likely == pytest.approx(50)
    assert several.requests.likely == pytest.approx(500)


@pytest.mark.long
async def test_a_run_takes_what_was_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = await estimate(PEOPLE, 20, PAID, call=Rehearsal(), sample=10)
    assert os.listdir(tmp_path) == []  # noqa: PTH208
    assert found.episodes == 10
    whole = await synthesize(PEOPLE, 20, PAID, call=Rehearsal(), output=tmp_path / "run", concurrency=1)
    assert whole.cost_usd is not None
    assert found.cost_usd is not None
    assert found.cost_usd.low * 0.8 <= whole.cost_usd <= found.cost_usd.high * 1.2
    assert found.personas.low <= whole.episodes <= found.personas.high
    assert found.elapsed > 0
    assert found.seconds.likely > 0


@pytest.mark.long
async def test_where_personas_give_several_a_sample_plays_them_all_and_counts_what_they_give(tmp_path: Path) -> None:
    several: dict[str, Any] = {"branches": 2, "episodes_per_script": 2}
    found = await estimate(PEOPLE, 40, sample=6, **several)
    assert found.episodes == 6 < found.accepted <= 24
    whole = await synthesize(PEOPLE, 40, output=tmp_path / "run", concurrency=1, **several)
    assert found.personas.low <= whole.episodes <= found.personas.high
    with pytest.raises(InputError, match="branches"):
        await estimate(PEOPLE, 40, branches=0)


@pytest.mark.long
async def test_an_iterator_is_read_no_further_than_needed() -> None:
    source = iter(PEOPLE)
    await estimate(source, 1, sample=3)
    assert next(source) in PEOPLE[3:5]


async def test_an_estimate_keeps_to_a_budget() -> None:
    found = await estimate(PEOPLE, 100, PAID, call=Rehearsal(), sample=40, budget="200ktok")
    assert 0 < found.episodes < 40
    assert found.paid.tokens <= 200_000 + 64_000
    with pytest.raises(BudgetSpent, match="did not pay for one whole episode"):
        await estimate(PEOPLE, 100, PAID, call=Rehearsal(), budget="2ktok")


@pytest.mark.parametrize(
    "wrong", [{"sample": 0}, {"n": 0}, {"concurrency": True}, {"output": "runs/1"}, {"fresh": True}, {"budget": "5"}]
)
async def test_what_cannot_be_estimated_is_said(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        await estimate(PEOPLE, **wrong)  # type: ignore[arg-type]
