"""Laws of the engine where an episode gives several trajectories, and where somebody has the last word on them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from fates import Fate, Fates, Interruption, config, run, some_fates
from hypothesis import given
from hypothesis import strategies as st
from run_records import FEWER, contents, kept, scratch

from refinesynth.outcome import EpisodeOutcome, Refused
from refinesynth.rules import Violation
from refinesynth.run import RunFolder, RunWriter
from refinesynth.synthesis.pool import Pool, stops_early
from refinesynth.synthesis.result import SynthesisResult
from refinesynth.trajectory import Trajectory

FATES = some_fates(gives=st.integers(1, 4), lost=st.booleans())


@dataclass
class Curator:
    """Refuses every so-many-th trajectory that it sees, so that what it does depends on the order; and takes note of
    that order."""

    every: int
    seen: int = 0
    order: list[int] = field(default_factory=list[int])

    def __call__(self, outcome: EpisodeOutcome) -> EpisodeOutcome:
        assert outcome.trajectories
        assert outcome.reason is None
        self.order.append(outcome.index)
        kept: list[Trajectory] = []
        refused: list[Refused] = []
        for trajectory in outcome.trajectories:
            self.seen += 1
            if self.seen % self.every:
                kept.append(trajectory)
            else:
                refused.append(self._refused(outcome, trajectory))
        if not refused:
            return outcome
        return outcome.model_copy(
            update={
                "trajectories": tuple(kept),
                "refused": (*outcome.refused, *refused),
                "reason": None if kept else "all was there before",
            }
        )

    def learn(self, path: Path) -> "Curator":
        """What a later process needs to know: how many were looked at before."""
        if path.exists():
            lines = RunFolder.open(path).episodes()
            self.seen = sum(line.trajectories + line.by_rule.get("Curated", 0) for line in lines)
        return self

    @staticmethod
    def _refused(outcome: EpisodeOutcome, trajectory: Trajectory) -> Refused:
        violation = Violation(rule="Curated", turn=0, code="curated", message="Seen before.", keeps_prefix=False)
        return Refused(
            episode=outcome.id,
            persona=outcome.persona,
            stage="draft",
            attempt=1,
            draft=trajectory.draft(),
            violations=(violation,),
        )


def curators(every: int | None) -> Callable[[Path], Curator | None]:
    return lambda path: None if every is None else Curator(every).learn(path)


def ids(path: Path) -> list[str]:
    return [trajectory.id for trajectory in RunFolder.open(path).trajectories()]


def would_be(fates: list[Fate], *, n: int, count: int, every: int | None, early_stop: int = 0) -> list[str]:
    """Ids of what is to be written: whole episodes, up to the one with which there are `n`."""
    found: list[str] = []
    seen = lost = 0
    for index in range(count):
        if len(found) >= n or stops_early(early_stop, episodes=index, lost=lost, accepted=len(found)):
            break
        fate = fates[index % len(fates)]
        lost += fate.lost and not fate.accepted
        for number in range(fate.gives if fate.accepted else 0):
            seen += 1
            if every is None or seen % every:
                found.append(f"{index:06d}-{number}" if number else f"{index:06d}")
    return found


@pytest.mark.long
@FEWER
@given(
    fates=FATES,
    n=st.integers(1, 20),
    concurrencies=st.tuples(st.integers(2, 32), st.integers(1, 32)),
    count=st.integers(1, 40),
    interrupted_at=st.lists(st.integers(1, 60), max_size=3),
    every=st.none() | st.integers(1, 3),
    per_episode=st.integers(1, 4),
    early_stop=st.sampled_from([0, 0, 0, 1, 3, 8]),
)
async def test_the_files_are_the_same_for_any_concurrency_and_however_often_it_is_interrupted(
    *,
    fates: list[Fate],
    n: int,
    concurrencies: tuple[int, int],
    count: int,
    interrupted_at: list[int],
    every: int | None,
    per_episode: int,
    early_stop: int,
) -> None:
    """The law of a run, whatever its episodes give and whoever has the last word; where it stops early too."""

    async def go_on(path: Path, *, concurrency: int = 1, at: int = -1) -> tuple[Fates, Pool | None]:
        stage, curator = Fates(fates), curators(every)(path)
        with anyio.CancelScope() as scope:
            pool = await run(
                path,
                stage,
                n=n,
                concurrency=concurrency,
                count=count,
                curate=curator,
                per_episode=per_episode,
                early_stop=early_stop,
                on_progress=Interruption(scope, at=at),
            )
            assert curator is None or curator.order == sorted(set(curator.order)), "looked at twice, or before its turn"
            return stage, pool
        return stage, None

    with scratch() as home:
        one, many, parts = Path(home, "one"), Path(home, "many"), Path(home, "parts")
        _, alone = await go_on(one)
        _, together = await go_on(many, concurrency=concurrencies[0])
        assert contents(many) == contents(one)
        assert ids(one) == would_be(fates, n=n, count=count, every=every, early_stop=early_stop)
        assert alone is not None
        assert together is not None
        assert (together.stopped_early, together.reached) == (alone.stopped_early, alone.reached)
        finished: dict[int, bool] = {}
        for at in (*interrupted_at, -1):
            stage, _ = await go_on(parts, concurrency=concurrencies[at < 0], at=at)
            assert finished.keys().isdisjoint(stage.finished), "an episode was played twice"
            finished |= stage.finished
            assert kept(parts).keys() == finished.keys()
            for name in ("trajectories", "rejected", "episodes"):
                assert contents(one)[name].startswith(contents(parts)[name])
        assert contents(parts) == contents(one)
        result = SynthesisResult.open(many)
        assert len(result) == len(ids(many))
        assert len(result.rejected) == len(list(result.rejected))


@FEWER
@given(gives=st.integers(1, 8), n=st.integers(1, 60), concurrency=st.integers(1, 64))
async def test_where_every_episode_gives_what_it_was_asked_for_no_more_than_an_eighth_is_surplus(
    gives: int, n: int, concurrency: int
) -> None:
    stage = Fates([Fate(steps=steps, gives=gives) for steps in (3, 0, 7)])
    with scratch() as home:
        await run(Path(home, "run"), stage, n=n, concurrency=concurrency, count=100, per_episode=gives)
    needed = math.ceil(n / gives)
    assert needed <= len(stage.played) <= needed + n // (8 * gives)


@pytest.mark.parametrize("n", [1, 2, 3])
async def test_what_an_outcome_brings_beyond_n_is_kept_and_a_raised_n_finds_it(tmp_path: Path, n: int) -> None:
    await run(tmp_path / "run", Fates([Fate(gives=3)]), n=n)
    assert len(ids(tmp_path / "run")) == 3
    again = Fates([Fate(gives=3)])
    await run(RunWriter.claim(tmp_path / "run", config(n=3)), again, n=3)
    assert again.played == []
