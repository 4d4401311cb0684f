"""Laws of the engine, on made-up episodes that finish in any order."""

import math
import re
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import anyio
import pytest
from fates import Fate, Fates, config, people, run, some_fates
from hypothesis import given
from hypothesis import strategies as st
from run_records import FEWER, contents, events, kept, scratch

from refinesynth.errors import InputError, RunFolderError, RunStopped, StorageError
from refinesynth.personas import open_personas
from refinesynth.run import CompletedEpisode, RunFolder, RunWriter
from refinesynth.synthesis.concurrency import EpisodeLimit
from refinesynth.synthesis.pool import Pool, window
from refinesynth.synthesis.progress import Progress
from refinesynth.trajectory import Persona

FATES = some_fates()
SLOW_AND_GOOD = [Fate(steps=3), Fate(steps=9), Fate(steps=0), Fate(steps=20)]


def accepted_ids(path: Path) -> list[str]:
    return [trajectory.id for trajectory in RunFolder.open(path).trajectories()]


@pytest.mark.long
@FEWER
@given(fates=FATES, n=st.integers(1, 12), more=st.integers(0, 12), concurrency=st.integers(1, 32))
async def test_a_raised_n_continues_with_what_was_left_over(
    fates: list[Fate], n: int, more: int, concurrency: int
) -> None:
    with scratch() as home:
        whole, parts = Path(home, "whole"), Path(home, "parts")
        await run(whole, Fates(fates), n=n + more, count=60)
        first, second = Fates(fates), Fates(fates)
        await run(parts, first, n=n, concurrency=concurrency, count=60)
        await run(parts, second, n=n + more, concurrency=concurrency, count=60)
        assert contents(parts) == contents(whole)
        assert first.finished.keys().isdisjoint(second.finished)


@FEWER
@given(fates=FATES, n=st.integers(1, 40), concurrency=st.integers(1, 32))
async def test_never_more_in_flight_than_are_needed(fates: list[Fate], n: int, concurrency: int) -> None:
    stage = Fates(fates)
    started = 0

    def check(progress: Progress) -> None:
        nonlocal started
        if progress.started > started:
            started = progress.started
            missing = n - progress.gained
            tries = math.ceil(missing * (progress.finished + 1) / (progress.gained + 1))
            assert 1 <= progress.in_flight <= min(concurrency, tries + missing // 8)
            unfinished = set(range(started)) - stage.finished.keys()
            assert started - 1 - min(unfinished) < window(concurrency)

    with scratch() as home:
        await run(Path(home, "run"), stage, n=n, concurrency=concurrency, count=80, on_progress=check)
    assert len(stage.played) <= started
    assert stage.played == sorted(stage.played)


@pytest.mark.parametrize("good", [0, 2])
async def test_a_window_of_doubtful_episodes_stops_the_run_and_leaves_them_to_the_next(
    tmp_path: Path, good: int
) -> None:
    doubtful = Fates([*[Fate()] * good, *[Fate(accepted=False, doubtful=True)] * 200])
    with anyio.fail_after(60), pytest.raises(RunStopped, match=f"so it was with the last {window(2)} episodes"):
        await run(tmp_path / "run", doubtful, n=10, concurrency=2, count=200)
    assert accepted_ids(tmp_path / "run") == [f"{index:06d}" for index in range(good)]
    await run(tmp_path / "run", Fates([Fate()]), n=10, count=200)
    assert len(accepted_ids(tmp_path / "run")) == 10


async def test_one_that_is_slow_holds_back_no_more_than_a_window(tmp_path: Path) -> None:
    last_of_window = window(4) - 1
    stage = Fates([Fate()])
    let_go = anyio.Event()

    async def play(index: int, persona: Persona) -> CompletedEpisode:
        if index == last_of_window:
            # The first may end only now: were the window any smaller, this would wait for ever.
            let_go.set()
        if index == 0:
            await let_go.wait()
        assert index <= last_of_window or let_go.is_set()
        return await stage.play(index, persona)

    folder = RunWriter.claim(tmp_path / "run", config(n=200))
    async with open_personas(people(200)) as personas:
        await Pool(play=play, personas=personas, folder=folder, limit=EpisodeLimit(4, 4)).run()
    folder.close()
    assert accepted_ids(tmp_path / "run") == [f"{index:06d}" for index in range(200)]


async def test_one_that_stops_the_run_cancels_the_rest_and_keeps_what_is_finished(tmp_path: Path) -> None:
    stage = Fates([Fate(steps=1), Fate(steps=50), Fate(steps=1)], stop_at=5)
    with pytest.raises(RunStopped) as caught:
        await run(tmp_path, stage, n=50, concurrency=3)
    message = str(caught.value)
    assert message.startswith("the key was refused. The run stopped with ")
    assert str(tmp_path) in message
    assert kept(tmp_path) == stage.finished
    assert 5 not in stage.finished
    assert max(stage.played) < 10
    assert str(events(tmp_path, "run_ended")[0]["why"]).startswith("RunStopped: the key was refused.")


async def test_an_error_in_on_progress_ends_the_run_and_is_raised_as_it_is(tmp_path: Path) -> None:
    def complain(progress: Progress) -> None:
        if progress.finished == 3:
            raise LookupError("no display")

    stage = Fates(SLOW_AND_GOOD)
    with pytest.raises(LookupError, match="no display") as caught:
        await run(tmp_path, stage, n=50, concurrency=3, on_progress=complain)
    # Those that ended at the same moment are kept as well.
    assert re.match(
        r"The run stopped with [3-5] episodes finished and [3-5] of 50 trajectories", caught.value.__notes__[0]
    )
    assert kept(tmp_path) == stage.finished


async def test_a_full_disk_is_said_and_hides_no_other_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise StorageError("no room")

    folder = RunWriter.claim(tmp_path, config(n=50))
    stage = Fates([Fate()], stop_at=3)
    async with open_personas(people(9)) as personas:
        pool = Pool(play=stage.play, personas=personas, folder=folder, limit=EpisodeLimit(1, 1))
        monkeypatch.setattr(pool, "_log_end", no_room)
        with pytest.raises(RunStopped) as caught:
            await pool.run()
    folder.close()
    assert caught.value.__notes__ == ["no room"]


async def test_a_broken_source_ends_the_run_with_what_is_finished(tmp_path: Path) -> None:
    async def broken() -> AsyncGenerator[str, None]:
        for person in people(5):
            yield person
        raise InputError("the tape broke")

    with pytest.raises(InputError, match="the tape broke"):
        await run(tmp_path, Fates([Fate()]), n=50, personas=open_personas(broken()))
    assert len(accepted_ids(tmp_path)) >= 4


CROWD = people(20)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (CROWD[1:], "persona 0 is now"),
        ([*CROWD[:4], "Somebody else", *CROWD[5:]], "persona 4 is now 'Somebody else'"),
        (CROWD[:4], "more than the 4 personas"),
        (CROWD[:7], "more than the 7 personas"),
        ([*CROWD[:8], "Somebody else"], "persona 8 is now"),
    ],
)
async def test_other_personas_are_refused_on_resume(tmp_path: Path, changed: list[str], message: str) -> None:
    # Seven episodes are committed; the ninth is finished and waits for the eighth.
    stage = Fates([*[Fate()] * 7, Fate(steps=10**9), Fate()])
    with anyio.CancelScope() as scope:
        await run(tmp_path, stage, n=50, concurrency=2, count=20, on_progress=_cancel_when_waiting(scope))
    assert stage.finished.keys() == {*range(7), 8}
    with pytest.raises(RunFolderError, match=message):
        await run(tmp_path, Fates([Fate()]), n=50, personas=open_personas(changed))


def _cancel_when_waiting(scope: anyio.CancelScope) -> Callable[[Progress], None]:
    def look(progress: Progress) -> None:
        if progress.gained > progress.accepted:
            scope.cancel()

    return look


async def test_an_episode_that_others_wait_for_is_played_though_enough_are_accepted(tmp_path: Path) -> None:
    fates = [Fate(accepted=False), Fate(accepted=False), Fate(), Fate(accepted=False)]
    slow = [fates[0], Fate(steps=10**9), *fates[2:]]
    with anyio.CancelScope() as scope:
        await run(tmp_path / "parts", Fates(slow), n=1, concurrency=2, on_progress=_cancel_when_waiting(scope))
    assert [line.index for line in RunFolder.open(tmp_path / "parts").waiting_lines() if line.accepted] == [2]
    second = Fates(fates)
    await run(tmp_path / "parts", second, n=1, concurrency=2)
    assert second.played == [1]
    await run(tmp_path / "whole", Fates(fates), n=1)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
