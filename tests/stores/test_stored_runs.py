"""Runs in an object store: killed, cut off and continued on other machines, with nothing lost and nothing paid twice."""

import logging
import signal
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest
from run_records import contents
from s3_server import store_down

from refinesynth.errors import InputError, RunFolderError, StorageError
from refinesynth.journal import JournalReader
from refinesynth.rehearsal import Rehearsal
from refinesynth.stores import fetch, run_output, work_folder
from refinesynth.stores.run_output import TakenOver
from refinesynth.stores.store import RunStore, Segment
from refinesynth.synthesis import SynthesisResult, synthesize

Machine = Callable[[str], Path]


class Counted:
    """The rehearsal, which counts its answers, and takes a while for each."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.answers = 0
        self._seconds = seconds
        self._rehearsal = Rehearsal()

    async def __call__(self, **request: Any) -> object:
        await anyio.sleep(self._seconds)
        self.answers += 1
        return await self._rehearsal(**request)


async def made(place: Path | str, n: int, call: Counted | None = None, **given: Any) -> SynthesisResult:
    return await synthesize(None, n, output=place, call=call, concurrency=4, seed=3, **given)


async def segments(url: str) -> list[Segment]:
    store = RunStore(url)
    return [await store.read(one.number) for one in await store.after(0)]


async def until(url: str, *, episodes: int = 0) -> None:
    """Returns when a segment is there, and so many episodes in the store."""
    store, there = RunStore(url), 0
    with anyio.fail_after(60):
        while not there or episodes > 0:
            for one in await store.after(there):
                episodes -= len((await store.read(one.number)).entries)
                there = one.number
            await anyio.sleep(0.1)


KILLED = """
import sys
from functools import partial
import anyio
from refinesynth.stores import run_output
from refinesynth.synthesis import synthesize
run_output.EVERY = 0.1
anyio.run(partial(synthesize, None, 1000, output=sys.argv[1], concurrency=4, seed=3))
"""


@pytest.mark.process
async def test_a_run_whose_machine_is_lost_goes_on_elsewhere_and_pays_for_nothing_again_that_was_there(
    tmp_path: Path, bucket: str, machine: Machine
) -> None:
    async with await anyio.open_process([sys.executable, "-c", KILLED, bucket], stdout=None, stderr=None) as process:
        try:
            await until(bucket, episodes=3)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL
    stored = await segments(bucket)
    paid, n = sum(len(one.paid) for one in stored), sum(len(one.entries) for one in stored) + 3
    machine("two")
    counted = Counted()
    result = await made(bucket, n, counted)
    with JournalReader(result.path / "journal.sqlite") as journal:
        assert sum(row.requests for row in journal.spent()) == paid + counted.answers
    assert paid > 0
    assert contents(result.path) == contents((await made(tmp_path / "whole", n, Counted())).path)


@pytest.mark.long
async def test_an_outage_holds_nothing_up_and_at_the_end_all_is_there(
    bucket: str, s3: dict[str, str], machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = count(1)
    store_down(monkeypatch, lambda _: 2 <= next(attempts) <= 6)
    with caplog.at_level(logging.WARNING, logger="refinesynth.stores"):
        result = await made(bucket, 6, Counted(0.01))
    assert [said.partition(";")[0] for said in caplog.messages] == [
        "the store is down",
        f"{bucket} takes what is new again",
    ]
    copy = await fetch(bucket)
    assert contents(copy) == contents(result.path)
    assert SynthesisResult.open(copy).usage == result.usage
    assert (copy / "events.jsonl").read_bytes() == (result.path / "events.jsonl").read_bytes()


@pytest.mark.long
async def test_a_store_that_stays_away_ends_in_an_error_and_the_same_call_adds_the_rest(
    bucket: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as away:
        store_down(away, lambda number: number > 1)
        away.setattr(run_output, "FINISH_RETRY_S", 0.1)
        with pytest.raises(StorageError, match=r"what is not in 's3.*the same command"):
            await made(bucket, 4)
    result = await made(bucket, 4, call := Counted())
    assert call.answers == 0
    assert contents(await fetch(bucket)) == contents(result.path)
    before = len(await segments(bucket))
    await made(bucket, 4)
    assert len(await segments(bucket)) == before


class AheadOfTheStore(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        return datetime.now(tz) + timedelta(minutes=10)


@pytest.mark.long
@pytest.mark.parametrize("clock", [datetime, AheadOfTheStore])
async def test_a_second_writer_is_refused_and_the_first_goes_on(
    bucket: str, machine: Machine, monkeypatch: pytest.MonkeyPatch, clock: type[datetime]
) -> None:
    monkeypatch.setattr(run_output, "LEASE", 60.0)
    monkeypatch.setattr(run_output, "datetime", clock)
    second = Counted()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made, bucket, 6, Counted(0.02))
        await until(bucket)
        machine("two")
        with pytest.raises(RunFolderError, match="is being written by another run: process"):
            await made(bucket, 8, second)
        assert second.answers == 0
    assert (await segments(bucket))[-1].ended
    assert SynthesisResult.open(await fetch(bucket)).reached


@pytest.mark.long
async def test_of_two_that_both_write_the_first_to_add_the_next_segment_goes_on(
    bucket: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_output, "LEASE", 0.0)
    real, failed, hold = RunStore.add, list[BaseException](), anyio.Event()
    writer, results = "", list[SynthesisResult]()

    async def add(self: RunStore, number: int, data: bytes) -> None:
        if writer and Segment.from_bytes(data, "").writer == writer:
            await hold.wait()
        await real(self, number, data)

    async def first() -> None:
        try:
            await made(bucket, 1_000, Counted(0.02))
        except RunFolderError as error:
            failed.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        monkeypatch.setattr(RunStore, "add", add)
        await until(bucket, episodes=2)
        writer = (await segments(bucket))[-1].writer
        machine("two")
        results.append(await made(bucket, 5))
        hold.set()
    assert isinstance(failed[0], TakenOver)
    assert "has lost nothing" in str(failed[0])
    theirs = contents(results[0].path)
    assert contents(await fetch(bucket)) == theirs
    # The machine that was refused has more than the store, and is not believed; what it had is kept.
    machine("one")
    before = contents(work_folder(bucket))
    again = await made(bucket, 5, call := Counted())
    assert call.answers == 0
    assert contents(again.path) == theirs
    assert contents(again.path.with_name("run.old-1")) == before


@pytest.mark.long
async def test_a_run_that_is_cancelled_takes_what_it_has_to_the_store(bucket: str, machine: Machine) -> None:
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made, bucket, 1_000, Counted(0.02))
            await until(bucket, episodes=1)
            scope.cancel()
    assert (await segments(bucket))[-1].ended
    assert contents(await fetch(bucket)) == contents(work_folder(bucket))


async def test_a_segment_that_came_through_unanswered_is_known_again(
    bucket: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = RunStore.add

    async def add(self: RunStore, number: int, data: bytes) -> None:
        await real(self, number, data)
        if number in {2, 3}:
            raise StorageError("no answer")

    monkeypatch.setattr(RunStore, "add", add)
    result = await made(bucket, 4, Counted(0.01))
    assert contents(await fetch(bucket)) == contents(result.path)


async def test_what_is_no_place_for_a_run_is_refused(bucket: str, machine: Machine) -> None:
    for url, said in (("ftp://x/y", "expected s3://"), ("s3://me:key@bucket/x", "keys belong in the environment")):
        with pytest.raises(InputError, match=said):
            await made(url, 1)
    with pytest.raises(InputError, match="give another URL"):
        await made(bucket, 1, fresh=True)
    with pytest.raises(RunFolderError, match="there is no run at"):
        await fetch(bucket)
    with pytest.raises(StorageError, match="cannot read 's3://none"):
        await made("s3://none/run", 1)


async def test_what_is_to_be_checked_is_named_with_what_the_store_says(
    monkeypatch: pytest.MonkeyPatch, s3: dict[str, str]
) -> None:
    for name in s3:
        monkeypatch.delenv(name, raising=False)
    # In the place of the address at which a cloud gives its machines credentials.
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with pytest.raises(StorageError, match=r"cannot read 's3://bucket/run': .*check AWS_REGION, AWS_ACCESS_KEY_ID and"):
        await RunStore("s3://bucket/run").after(0)
