"""A run in which nothing is accepted stops early, and where it stops depends on what is committed alone."""

from pathlib import Path

import pytest
from fates import Fate, Fates, run
from hypothesis import given
from hypothesis import strategies as st
from run_records import FEWER, contents, kept, scratch

from refinesynth.run import RunFolder, RunStats
from refinesynth.synthesis import SynthesisResult, synthesize
from refinesynth.synthesis.pool import Pool, stops_early

NOTHING = "rehearsal:no_success=1.0"
FATES = st.lists(
    st.builds(
        Fate,
        steps=st.integers(0, 8),
        accepted=st.sampled_from([False, False, False, True]),
        lost=st.sampled_from([False, False, True]),
    ),
    min_size=1,
    max_size=40,
)


async def played(path: Path, fates: list[Fate], *, n: int, early_stop: int, concurrency: int = 1) -> Pool:
    return await run(path, Fates(fates), n=n, concurrency=concurrency, count=60, early_stop=early_stop)


@pytest.mark.long
@FEWER
@given(fates=FATES, early_stop=st.integers(1, 12), concurrency=st.integers(1, 24))
async def test_with_no_early_stop_it_goes_on_as_if_it_had_never_stopped(
    fates: list[Fate], early_stop: int, concurrency: int
) -> None:
    with scratch() as home:
        whole, parts = Path(home, "whole"), Path(home, "parts")
        await played(whole, fates, n=20, early_stop=0)
        await played(parts, fates, n=20, early_stop=early_stop, concurrency=concurrency)
        before = kept(parts)
        stage = Fates(fates)
        await run(parts, stage, n=20, count=60, early_stop=0)
        assert before.keys().isdisjoint(stage.finished), "an episode was played twice"
        assert contents(parts) == contents(whole)


async def test_one_that_is_accepted_out_of_turn_is_kept_for_later(tmp_path: Path) -> None:
    # The fifth is finished before the fourth of those that are refused; those behind it are still played at the end.
    fates = [*[Fate(accepted=False)] * 3, Fate(accepted=False, steps=30), Fate(), *[Fate(steps=10**9)] * 55]
    await played(tmp_path, fates, n=5, early_stop=4, concurrency=5)
    assert [line.index for line in RunFolder.open(tmp_path).waiting_lines()] == [4]
    await run(tmp_path, Fates([Fate()]), n=1, count=60)
    assert [found.id for found in RunFolder.open(tmp_path).trajectories()] == ["000004"]


@given(judged=st.integers(0, 200), lost=st.integers(0, 200), accepted=st.integers(0, 3), limit=st.integers(0, 100))
def test_it_stops_after_so_many_that_were_judged_without_one_accepted(
    judged: int, lost: int, accepted: int, limit: int
) -> None:
    stops = stops_early(limit, episodes=judged + lost, lost=lost, accepted=accepted)
    # Those that their backend ended are no evidence, but of four times as many that must be so.
    assert stops == (limit > 0 and accepted == 0 and (judged >= limit or judged + lost >= 4 * limit))


def test_sums_of_older_runs_know_of_none_that_was_lost() -> None:
    old = RunStats().model_dump(mode="json", exclude={"lost"})
    assert RunStats.model_validate(old).lost == 0


async def test_a_run_in_which_nothing_is_accepted_says_so_and_goes_on_when_it_is_told_to(tmp_path: Path) -> None:
    asked = dict(n=9, play="narrated", output=tmp_path / "run", backend=NOTHING)  # noqa: C408
    result = await synthesize(early_stop=3, **asked)  # pyright: ignore[reportArgumentType]
    assert (result.stopped_early, result.episodes, result.reached) == ("nothing_accepted", 3, False)
    assert result.ended == "none of the first 3 episodes gave one, so the run stopped early (early_stop 3)"
    assert result.shortfall is not None
    assert result.shortfall.endswith("most refusals by TaskSucceed.")
    paid = result.usage
    again = await synthesize(early_stop=3, **asked)  # pyright: ignore[reportArgumentType]
    assert (again.ended, again.usage) == (result.ended, paid)
    more = await synthesize(early_stop=5, **asked)  # pyright: ignore[reportArgumentType]
    assert more.episodes == 5
    assert more.config.early_stop == 5
    assert SynthesisResult.open(tmp_path / "run").stopped_early is None
