"""Whole runs on a budget: never much above it, ended in finished trajectories, continued with a higher one; and every
cent told."""

from pathlib import Path

import pytest
from run_records import events

from refinesynth import Backend, synthesize
from refinesynth.client.budget.budget import Budget
from refinesynth.errors import ConfigurationError
from refinesynth.outcome import Cost
from refinesynth.rehearsal import Rehearsal
from refinesynth.run import RunFolder
from refinesynth.run.stats import spent_of
from refinesynth.synthesis import SynthesisResult

PEOPLE = [f"Somebody with the number {number}" for number in range(60)]
PAID = Backend(model="gpt-4o", input_price=2.5, cached_price=1.25, output_price=10, max_tokens=4_000)
WORST_TOKENS = 4_000 + 60_000
"""Of one request: its longest answer, and more than any prompt here has, twice."""


async def run(folder: Path, n: int, budget: Budget | str | None = None, *, concurrency: int = 8) -> SynthesisResult:
    return await synthesize(
        PEOPLE, n=n, backend=PAID, call=Rehearsal(), output=folder, concurrency=concurrency, budget=budget
    )


@pytest.mark.parametrize("tokens", [1_000, 60_000, 250_000])
@pytest.mark.parametrize("concurrency", [1, 32])
async def test_a_run_ends_within_its_budget_and_with_it_in_finished_episodes(
    tmp_path: Path, tokens: int, concurrency: int
) -> None:
    result = await run(tmp_path / "run", 50, Budget(tokens=tokens), concurrency=concurrency)
    assert not result.reached
    assert result.spending.total.tokens <= tokens + WORST_TOKENS
    assert "the budget of" in str(result.shortfall)
    # What was begun was ended: but for the last stretch, nothing is paid that came to nothing.
    assert result.spending.unneeded.tokens <= 0.1 * tokens
    if tokens > 100_000:
        assert result.spending.total.tokens >= 0.7 * tokens
        assert len(result) > 0


async def test_the_last_personas_in_flight_end_for_the_budget_and_not_for_want_of_personas(tmp_path: Path) -> None:
    budget = Budget(tokens=3_000)
    result = await synthesize(PEOPLE[:1], n=1, backend=PAID, call=Rehearsal(), output=tmp_path / "run", budget=budget)
    assert "the budget of" in str(result.shortfall)
    assert [event["why"] for event in events(result.path, "run_ended")] == ["budget_spent"]


@pytest.mark.long
async def test_a_higher_budget_goes_on_to_the_same_files(tmp_path: Path) -> None:
    whole = await run(tmp_path / "whole", 6)
    assert whole.cost_usd is not None
    for part in (0.1, 0.5, 0.8, 2.0):
        result = await run(tmp_path / "parts", 6, Budget(usd=part * whole.cost_usd), concurrency=4)
    assert result.reached
    assert result.shortfall is None
    for name in ("trajectories.jsonl", "rejected.jsonl"):
        assert (result.path / name).read_bytes() == (whole.path / name).read_bytes()
    assert RunFolder.open(result.path).config.budget == str(Budget(usd=2.0 * whole.cost_usd))


@pytest.mark.long
async def test_everything_that_was_paid_is_told_where_it_went(tmp_path: Path) -> None:
    result = await run(tmp_path / "run", 10)
    rows = sum(map(spent_of, RunFolder.open(result.path).spent()), Cost())
    spending = result.spending
    assert spending.total == rows
    assert sum(result.spending.by_role.values(), Cost()) == rows
    assert result.spending.by_model.keys() == {"gpt-4o"}
    assert result.spending.by_role.keys() == {"script_writer", "dungeon_master", "player"}
    assert result.wasted_by_rule.keys() == result.by_rule.keys()
    # One request that several rules refused is shared out whole.
    assert all(spent.tokens > 0 for spent in result.wasted_by_rule.values())
    assert result.cost_per_accepted == pytest.approx((result.cost_usd or 0) / 10)
    refused = sum((Cost(usage=item.usage, cost_usd=item.cost_usd) for item in result.rejected), Cost())
    assert sum(result.wasted_by_rule.values(), Cost()).usage == refused.usage
    told = spending.as_json()
    assert told["kept"]["requests"] == spending.kept.usage.requests
    assert told["wasted_by_rule"].keys() == result.by_rule.keys()


async def test_an_unknown_price_is_no_budget_in_dollars(tmp_path: Path) -> None:
    unpriced = Backend(model="hosted_vllm/mine", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ConfigurationError, match=r"hosted_vllm/mine is unknown: give input_price .*\(20Mtok\)"):
        await synthesize(PEOPLE, n=1, backend=unpriced, output=tmp_path / "run", budget="5usd")
    assert not (tmp_path / "run").exists()
    await synthesize(PEOPLE, n=1, backend=unpriced, call=Rehearsal(), output=tmp_path / "run", budget="50Mtok")
    priced = unpriced.model_copy(update={"input_price": 1.0, "output_price": 1.0})
    with pytest.raises(ConfigurationError, match="the price of some was unknown"):
        await synthesize(PEOPLE, n=2, backend=priced, call=Rehearsal(), output=tmp_path / "run", budget="5usd")
