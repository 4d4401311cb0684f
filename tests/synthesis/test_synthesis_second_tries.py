"""Episodes that gave nothing are played again on demand, as new ones behind all that the run knew of."""

from collections import Counter
from pathlib import Path
from shutil import copytree
from typing import Any

import anyio
import pytest
from fates import Fate, Fates, Interruption, config, people
from hypothesis import given
from hypothesis import strategies as st
from run_records import FEWER, contents, scratch

from refinesynth.backends import Backend
from refinesynth.errors import InputError, RunFolderError
from refinesynth.personas import open_personas
from refinesynth.rehearsal import Rehearsal
from refinesynth.run import EpisodeLine, RunFolder, RunWriter
from refinesynth.run.second_tries import Round
from refinesynth.settings import Curation
from refinesynth.synthesis import SynthesisResult, stream, synthesize
from refinesynth.synthesis.patience import Patience, Yield
from refinesynth.synthesis.pool import Pool

PEOPLE = [f"Somebody with the number {number}" for number in range(12)]
COUNT = 12
GIVES, FAILS = Fate(), Fate(accepted=False)
FATES = st.lists(st.builds(Fate, steps=st.integers(0, 6), accepted=st.booleans()), min_size=1, max_size=12)


async def played(
    path: Path,
    fates: list[Fate],
    *,
    again: bool,
    concurrency: int = 1,
    cancel_at: int = -1,
    patience: Patience | None = None,
) -> Pool | None:
    """Play all personas, those that failed again or not; None if it was cancelled."""
    folder = RunWriter.claim(path, config(n=1000))
    try:
        if again:
            seen = Yield.of(folder.committed, tried_again=folder.tried_again())
            await folder.try_again(stopped=patience is not None and patience.runs_out(seen) is not None)
        source = open_personas(people(COUNT))
        source.repeat(folder.rounds)
        with anyio.CancelScope() as scope:
            pool = Pool(
                play=Fates(fates).play,
                personas=source,
                folder=folder,
                n=1000,
                concurrency=concurrency,
                patience=patience,
                on_progress=Interruption(scope, at=cancel_at),
            )
            await pool.run()
            return pool
    finally:
        folder.close()


def lines(path: Path) -> list[EpisodeLine]:
    folder = RunFolder.open(path)
    return [*folder.episodes(), *folder.waiting_lines()]


def is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


def copied(run: Path, to: Path) -> Path:
    copytree(run, to)
    return to


@FEWER
@given(
    first=FATES,
    then=FATES,
    concurrency=st.integers(2, 12),
    broken_off=st.integers(1, 40),
    cancel_at=st.integers(1, 40),
)
async def test_who_failed_comes_once_more_in_a_place_of_its_own_however_often_that_is_interrupted(
    first: list[Fate], then: list[Fate], concurrency: int, broken_off: int, cancel_at: int
) -> None:
    with scratch() as home:
        path = Path(home, "run")
        await played(path, first, again=False, cancel_at=broken_off, concurrency=concurrency)
        before, ended = contents(path), lines(path)
        failed = [line.persona for line in ended if not line.accepted]
        if not failed:
            with pytest.raises(RunFolderError, match="nothing failed"):
                await played(path, then, again=True)
            return
        straight = copied(path, Path(home, "straight"))
        await played(straight, then, again=True)
        await played(path, then, again=True, concurrency=concurrency, cancel_at=cancel_at)
        (one,) = RunFolder.open(path).second_tries()
        # The same once more goes on with them; a second round is begun only where they have all ended.
        going_on = RunFolder.open(path).totals().episodes < one.end
        await played(path, then, again=going_on, concurrency=concurrency)
        assert RunFolder.open(path).second_tries() == (one,)
        assert contents(path) == contents(straight)
        assert [line.persona for line in lines(path)[one.at : one.end]] == failed
        assert len(lines(path)) == COUNT + len(failed)
        assert [line for line in lines(path) if line.index in {was.index for was in ended}] == ended
        for name in ("trajectories", "rejected"):
            assert contents(path)[name].startswith(before[name])


async def test_what_failed_twice_comes_a_third_time_and_what_was_tried_again_does_not(tmp_path: Path) -> None:
    await played(tmp_path / "run", [GIVES, FAILS], again=False)
    await played(tmp_path / "run", [GIVES, FAILS], again=True)
    await played(tmp_path / "run", [GIVES], again=True)
    assert RunFolder.open(tmp_path / "run").second_tries() == (Round(12, (1, 3, 5, 7, 9, 11)), Round(18, (13, 15, 17)))
    found = lines(tmp_path / "run")
    assert [line.persona for line in found[18:]] == [found[index].persona for index in (3, 7, 11)]
    with pytest.raises(RunFolderError, match="all 21 finished episodes gave a trajectory, or were tried again"):
        await played(tmp_path / "run", [GIVES], again=True)


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_patience_begins_anew_with_second_tries_and_they_with_it(tmp_path: Path, concurrency: int) -> None:
    patience = Patience(n=1000, episodes=3, personas=COUNT)

    async def once_more(fate: Fate) -> tuple[int, int]:
        pool = await played(tmp_path / "run", [fate], again=True, patience=patience, concurrency=concurrency)
        assert pool is not None
        return pool.seen.episodes, pool.seen.accepted

    await played(tmp_path / "run", [FAILS], again=False, patience=patience, concurrency=concurrency)
    assert RunFolder.open(tmp_path / "run").totals().episodes == 3
    # It stops again, also where not all of those that are tried again had their turn: and again they are.
    assert await once_more(FAILS) == (3, 0)
    assert await once_more(FAILS) == (3, 0)
    # Of the tries that failed, all that is left is that they were there.
    assert await once_more(GIVES) == (COUNT, COUNT)
    assert all(line.accepted for line in lines(tmp_path / "run")[-COUNT:])


class Forgetful:
    """A server whose context is too short for anything, or not."""

    def __init__(self, *, short: bool, only: str = "") -> None:
        self.short, self.only, self.answers = short, only, Rehearsal()
        self.asked: Counter[str] = Counter()

    async def __call__(self, **request: Any) -> Any:
        self.asked[request["extra_headers"]["x-session-id"]] += 1
        if self.short and self.only in str(request["messages"]):
            raise TooLong("This model's maximum context length is 2048 tokens.")
        return await self.answers(**request)


class TooLong(Exception):
    status_code = 400


async def run(path: Path | None, server: Forgetful, **given: Any) -> SynthesisResult:
    chosen: dict[str, Any] = {"n": 3, "play": "narrated", "concurrency": 2, "backend": "openai/gpt-x", **given}
    return await synthesize(PEOPLE, output=path, call=server, **chosen)


async def test_after_the_cause_is_gone_those_that_failed_are_played_with_ids_and_seeds_of_their_own(
    tmp_path: Path,
) -> None:
    short = Forgetful(short=True)
    stopped = await run(tmp_path / "run", short, patience=4)
    assert (stopped.stopped_early, len(stopped)) == ("nothing_accepted", 0)
    failed = lines(tmp_path / "run")
    result = await run(tmp_path / "run", well := Forgetful(short=False), patience=4, retry_failed=True)
    assert result.reached
    assert [one.persona.text for one in result] == PEOPLE[:3]
    assert not short.asked.keys() & well.asked.keys()
    assert len({one.provenance.seed for one in result}) == 3
    assert lines(tmp_path / "run")[: len(failed)] == failed
    # Asked again without, it has what it wants; and nothing was played twice.
    assert (await run(tmp_path / "run", none := Forgetful(short=True))).reached
    assert not none.asked


async def test_what_was_accepted_is_never_played_again_and_what_was_paid_stays_counted(tmp_path: Path) -> None:
    await run(tmp_path / "run", Forgetful(short=True, only="number 1"), n=5)
    folder = RunFolder.open(tmp_path / "run")
    before, paid = list(folder.trajectories()), folder.spent()
    accepted = {line.id for line in folder.episodes() if line.accepted}
    result = await run(tmp_path / "run", well := Forgetful(short=False), n=8, retry_failed=True)
    assert list(result)[:5] == before
    assert PEOPLE[1] in [one.persona.text for one in result]
    assert not accepted & well.asked.keys()
    more, fewer = (sum(row.requests for row in rows) for rows in (folder.spent(), paid))
    assert more == fewer + well.asked.total()


async def test_a_shard_tries_its_own_again(tmp_path: Path) -> None:
    await run(tmp_path / "shard", Forgetful(short=True), n=8, patience=3, shard="1/4")
    result = await run(
        tmp_path / "shard", Forgetful(short=False), n=8, patience=3, shard="1/4", retry_failed=True, concurrency=1
    )
    assert [one.persona.text for one in result] == PEOPLE[1::4][:2]
    assert len({one.provenance.seed for one in result}) == 2


async def test_settings_that_get_answers_may_be_others_for_second_tries_alone(tmp_path: Path) -> None:
    await run(tmp_path / "run", Forgetful(short=True), patience=4)
    corrected = Backend(model="openai/gpt-x", max_tokens=8000, extra={"think": False})
    with pytest.raises(RunFolderError, match=r"max_tokens.*extra.*--retry-failed"):
        await run(tmp_path / "run", Forgetful(short=False), backend=corrected)
    with pytest.raises(RunFolderError, match="begun with other settings: seed"):
        await run(tmp_path / "run", Forgetful(short=False), backend=corrected, seed=1, retry_failed=True)
    assert (await run(tmp_path / "run", Forgetful(short=False), backend=corrected, retry_failed=True)).reached
    assert RunFolder.open(tmp_path / "run").config.models["narrator"]["max_tokens"] == 8000  # type: ignore[index]


async def test_what_curation_took_out_had_its_turn(tmp_path: Path) -> None:
    same = Curation(near_duplicates=0.01)
    await run(tmp_path / "run", Forgetful(short=False), n=2, curation=same)
    assert [line.accepted for line in lines(tmp_path / "run")][:2] == [True, False]
    with pytest.raises(InputError, match="nothing failed"):
        await run(tmp_path / "run", Forgetful(short=False), n=2, curation=same, retry_failed=True)


async def test_a_stream_gives_what_second_tries_bring(tmp_path: Path) -> None:
    await run(tmp_path / "run", Forgetful(short=True), patience=4)
    given: dict[str, Any] = {"n": 3, "play": "narrated", "backend": "openai/gpt-x", "call": Forgetful(short=False)}
    async with stream(PEOPLE, output=tmp_path / "run", retry_failed=True, **given) as trajectories:
        assert [one.persona.text async for one in trajectories] == PEOPLE[:3]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "is not the folder of a run"),
        ({"fresh": True}, "leave one of them out"),
        ({"output": None}, "give its folder as output"),
    ],
)
async def test_a_second_try_of_nothing_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    asked: dict[str, Any] = {"n": 1, "output": tmp_path / "none", "retry_failed": True, **given}
    with pytest.raises(InputError, match=says):
        await synthesize(PEOPLE, **asked)
    assert is_empty(tmp_path)
