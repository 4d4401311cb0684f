"""A pool that cannot pay for everything: what was begun ends, what cannot be paid is put back, and more money goes on
from there."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fates import Fate, Fates, config, people
from hypothesis import given
from hypothesis import strategies as st
from run_records import FEWER, contents, scratch

from refinesynth.errors import BudgetSpent
from refinesynth.personas import open_personas
from refinesynth.run import CompletedEpisode, RunWriter
from refinesynth.synthesis.concurrency import EpisodeLimit
from refinesynth.synthesis.pool import Pool
from refinesynth.trajectory import Persona

fates = st.lists(st.builds(Fate, steps=st.integers(0, 4), accepted=st.booleans()), min_size=1, max_size=8)


@dataclass
class CostTracker:
    """Pays for so many episodes, and lets so many be begun at once; whoever comes later is refused."""

    episodes: int
    at_once: int
    stage: Fates
    refused: bool = False
    most: int = 0
    paid: list[int] = field(default_factory=list[int])

    def may_start(self, in_flight: int) -> bool:
        return not self.refused and in_flight < self.at_once

    async def play(self, index: int, persona: Persona) -> CompletedEpisode:
        self.most = max(self.most, self.stage.in_flight + 1)
        if len(self.paid) >= self.episodes:
            self.refused = True
            raise BudgetSpent("the budget is spent.")
        self.paid.append(index)
        return await self.stage.play(index, persona)


async def play(
    folder: Path,
    stage: Fates,
    *,
    may_start: Callable[[int], bool] = lambda _: True,
    tracker: CostTracker | None = None,
    n: int = 20,
) -> Pool:
    async with open_personas(people(60)) as personas:
        writer = RunWriter.claim(folder, config(n=n))
        try:
            pool = Pool(
                play=stage.play if tracker is None else tracker.play,
                personas=personas,
                folder=writer,
                limit=EpisodeLimit(8, 8),
                may_start=may_start,
            )
            await pool.run()
            return pool
        finally:
            writer.close()


@pytest.mark.long
@FEWER
@given(fates, st.integers(0, 30), st.integers(1, 9))
async def test_what_was_paid_is_finished_and_the_rest_is_as_if_it_had_not_begun(
    given_fates: list[Fate], episodes: int, at_once: int
) -> None:
    with scratch() as name:
        tracker = CostTracker(episodes, at_once, Fates(given_fates))
        pool = await play(Path(name, "parts"), tracker.stage, may_start=tracker.may_start, tracker=tracker)
        progress = pool.progress
        assert pool.budget_spent == (tracker.refused and not pool.reached)
        assert tracker.most <= at_once
        if pool.budget_spent:
            assert sorted(tracker.stage.finished) == sorted(tracker.paid)
            assert (progress.in_flight, progress.started) == (0, progress.finished)
            assert progress.finished == len(tracker.paid)
        await play(Path(name, "parts"), Fates(given_fates))
        await play(Path(name, "whole"), Fates(given_fates))
        assert contents(Path(name, "parts")) == contents(Path(name, "whole"))


@FEWER
@given(fates)
async def test_without_any_money_nothing_is_begun(given_fates: list[Fate]) -> None:
    with scratch() as name:
        stage = Fates(given_fates)
        pool = await play(Path(name), stage, may_start=CostTracker(0, 0, stage).may_start)
        assert pool.budget_spent
        assert stage.played == []
