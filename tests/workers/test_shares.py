"""Shares of a budget: all who wait are served, nothing is given out twice, and what costs nothing needs none."""

import os
import shutil
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from pydantic_ai.usage import RequestUsage
from samples import paid

from refinesynth.client.budget.budget import Budget
from refinesynth.client.budget.tracker import BudgetTracker
from refinesynth.errors import BudgetSpent
from refinesynth.journal import Journal
from refinesynth.run.resume import collect
from refinesynth.synthesis.workers.budget_shares import Share, Shares


async def test_all_who_wait_for_a_share_are_served() -> None:
    shares = Shares(BudgetTracker(Budget(tokens=200_000)))
    served: list[int] = []

    async def block(number: int) -> None:
        share = await shares.take(2, attempts=0)
        await anyio.lowlevel.checkpoint()
        share.give_back()
        served.append(number)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(block, number)
    assert sorted(served) == [0, 1, 2, 3, 4]


async def test_shares_and_what_was_spent_are_no_more_than_the_budget() -> None:
    tracker = BudgetTracker(Budget(tokens=1_000_000))
    tracker.limits[0].first_guess = 30_000
    shares = Shares(tracker)
    out: list[Share] = [await shares.take(2, attempts=0) for _ in range(3)]
    budgets = [share.budget for share in out]
    assert all(one is not None and one.tokens for one in budgets)
    assert sum(one.tokens or 0 for one in budgets if one is not None) <= 1_000_000
    out[0].count(RequestUsage(input_tokens=50_000), None, episode=None)
    assert tracker.limits[0].spent == 50_000
    for share in out:
        share.give_back()
    assert (tracker.limits[0].worst_case, tracker.limits[0].spent) == (0, 50_000)


async def test_a_backend_that_costs_nothing_has_a_share_of_dollars() -> None:
    shares = Shares(BudgetTracker(Budget(usd=1.0)))
    first, second = await shares.take(2, attempts=0), await shares.take(2, attempts=0)
    for share in (first, second):
        assert share.budget is not None
        assert 0 < (share.budget.usd or 0) < 1
        share.give_back()


async def test_where_nothing_is_left_nothing_is_given() -> None:
    tracker = BudgetTracker(Budget(tokens=1_000))
    tracker.count(RequestUsage(input_tokens=1_000), None)
    with pytest.raises(BudgetSpent):
        await Shares(tracker).take(1, attempts=0)


async def test_what_killed_blocks_left_is_taken_over_or_said_to_be_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[object] = []

    async def keep(found: object) -> None:
        kept.append(found)

    for name in ("block-empty", "block-damaged", "new-half", "block-whole"):
        (tmp_path / name).mkdir()
    (tmp_path / "block-damaged" / "journal.sqlite").write_bytes(b"no journal")
    with Journal(tmp_path / "block-whole" / "journal.sqlite") as journal:
        await journal.keep(paid(3))
    await collect(tmp_path, keep)
    assert sorted(os.listdir(tmp_path)) == ["block-damaged", "new-half"]  # noqa: PTH208 - in one call
    assert len(kept) == 1
    assert "block-damaged" in caplog.text
    await collect(tmp_path, keep, at_start=True)
    assert os.listdir(tmp_path) == ["block-damaged"]  # noqa: PTH208


async def test_a_block_that_was_collected_meanwhile_is_passed_over(tmp_path: Path) -> None:
    async def keep(_: object) -> None:  # as where several blocks died, each of which is collected with the others
        shutil.rmtree(tmp_path / "block-b")

    for name in ("block-a", "block-b"):
        (tmp_path / name).mkdir()
        with Journal(tmp_path / name / "journal.sqlite") as journal:
            await journal.keep(paid(3))
    await collect(tmp_path, keep)
    assert os.listdir(tmp_path) == []  # noqa: PTH208
