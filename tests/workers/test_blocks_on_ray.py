"""Runs whose personas are played in blocks by tasks on Ray: the same files as by one process, within one budget, and a task
that dies costs nothing but what was in flight.
"""

import os
import pickle
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import anyio
import anyio.to_thread
import orjson
import pytest
from stage import settings_for

from bench.command import family
from refinesynth import __version__, rules, synthesize
from refinesynth.backends import Backend, resolve_roles
from refinesynth.episode.plays import find
from refinesynth.errors import ConfigurationError, RunFolderError, RunStopped
from refinesynth.rehearsal import Rehearsal
from refinesynth.run import RunFolder
from refinesynth.run.resume import blocks_of
from refinesynth.settings import Curation
from refinesynth.synthesis import Progress
from refinesynth.synthesis.workers.block_driver import share_of_limits
from refinesynth.synthesis.workers.block_task import Block, BlockSettings, Episode, Mailbox, Report, _Actor, play_block  # pyright: ignore[reportPrivateUsage]
from refinesynth.trajectory import Draft, Persona

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.usefixtures("local_ray")]


def contents(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in ("trajectories.jsonl", "rejected.jsonl")]


def tasks_at_work() -> list[int]:
    """Processes of this one that play a block now."""
    return [pid for pid in family(os.getpid()) if b"ray::play_block" in _read(Path(f"/proc/{pid}/cmdline"))]


def _read(path: Path) -> bytes:
    """Empty if the process has just ended."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def assert_nothing_was_paid_twice(folder: Path) -> None:
    run = RunFolder.open(folder)
    needed = sum(line.usage.requests for line in (*run.episodes(), *run.waiting_lines()))
    assert sum(row.requests for row in run.spent()) == needed + sum(one.requests for one in run.outstanding())


async def slowly(**request: Any) -> object:
    """The rehearsal, so slow that something is always under way."""
    await anyio.sleep(0.2)
    return await Rehearsal()(**request)


class Enough(Exception):
    """Raised to break a run off, with episodes in flight."""


def after(finished: int, act: Callable[[], object]) -> Callable[[Progress], None]:
    """Act when so many episodes have ended, until it has come to something."""
    done: object = False

    def look(moment: Progress) -> None:
        assert 0 <= moment.in_flight == moment.started - moment.finished
        nonlocal done
        done = done or (moment.finished >= finished and act())

    return look


def stop() -> None:
    raise Enough


@pytest.mark.representative
async def test_a_run_broken_off_is_continued_by_any_number_of_workers_to_the_same_files_and_nothing_is_paid_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[object] = []

    def cancel(ref: object, **_: object) -> None:
        cancelled.append(ref)

    monkeypatch.setattr("ray.cancel", cancel)
    asked: dict[str, Any] = {"concurrency": 6, "output": tmp_path / "run"}
    await synthesize(n=24, concurrency=6, output=tmp_path / "whole")
    with pytest.raises(Enough):
        await synthesize(n=24, workers=2, call=slowly, on_progress=after(2, stop), **asked)
    assert tasks_at_work() == []
    assert not blocks_of(tmp_path / "run").exists()
    assert RunFolder.open(tmp_path / "run").outstanding(), "nothing was broken off, and this shows nothing"
    for n, workers in ((8, 1), (12, 3), (24, 2)):
        result = await synthesize(n=n, workers=workers, **asked)
        assert len(result) == n
        assert_nothing_was_paid_twice(tmp_path / "run")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    assert not cancelled, "where such a task ends at the same moment, Ray aborts this process"


async def test_several_trajectories_by_mixed_models_are_curated_alike_in_any_number_of_workers(tmp_path: Path) -> None:
    # About every fifth script of the rehearsal begins in these words.
    known = next(iter(await synthesize(n=1, output=tmp_path / "known"))).script.introduction
    (tmp_path / "known.jsonl").write_bytes(orjson.dumps({"text": known}) + b"\n")
    asked: dict[str, Any] = {
        "n": 8,
        "backend": {"default": "rehearsal", "player": ["rehearsal", "rehearsal:natural_mistake=0.5"]},
        "episodes_per_script": 2,
        "branches": 2,
        "curation": Curation(contamination=(str(tmp_path / "known.jsonl"),)),
    }
    one = await synthesize(output=tmp_path / "one", concurrency=1, **asked)
    two = await synthesize(output=tmp_path / "two", concurrency=40, workers=2, **asked)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert (two.by_rule, len(two)) == (one.by_rule, len(one))
    assert "Contaminated" in one.by_rule, "nothing was curated, and this shows nothing"


async def test_tasks_that_are_killed_are_replaced_and_what_they_had_paid_for_is_not_paid_again(tmp_path: Path) -> None:
    killed: list[int] = []

    def kill() -> object:
        for pid in tasks_at_work():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
        return killed

    await synthesize(n=20, concurrency=6, output=tmp_path / "whole")
    asked: dict[str, Any] = {"n": 20, "concurrency": 6, "output": tmp_path / "run"}
    await synthesize(workers=2, call=slowly, on_progress=after(1, kill), **asked)
    assert killed
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    assert_nothing_was_paid_twice(tmp_path / "run")
    assert not blocks_of(tmp_path / "run").exists()


async def die(**_: object) -> object:
    os._exit(1)


async def test_tasks_that_always_die_are_given_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refinesynth.synthesis.workers.block_driver._MAX_DEATHS", 2)
    with pytest.raises(RunStopped, match="2 workers died one after the other, the last one so: "):
        await synthesize(n=2, workers=2, call=die, output=tmp_path / "run")


@pytest.mark.parametrize("budget", ["200ktok", "60ktok"])
async def test_all_workers_keep_to_one_budget_and_a_higher_one_goes_on(budget: str, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"n": 12, "concurrency": 6, "workers": 2, "deadline": None, "output": tmp_path / "run"}
    result = await synthesize(budget=budget, **asked)
    most = int(budget.removesuffix("ktok")) * 1_000
    spent = sum(row.input_tokens + row.output_tokens for row in RunFolder.open(tmp_path / "run").spent())
    assert len(result) < 12
    assert most * 0.6 < spent <= most + 2 * 8_192
    assert "budget" in (result.shortfall or "")
    await synthesize(budget="20Mtok", **asked)
    await synthesize(n=12, concurrency=6, output=tmp_path / "whole")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    assert_nothing_was_paid_twice(tmp_path / "run")


async def refused(**_: object) -> object:
    raise ValueError("nobody knows this model")


async def test_what_no_worker_could_do_better_is_raised_and_a_rule_may_be_written_where_it_is_needed(
    tmp_path: Path,
) -> None:
    def every(draft: Draft) -> Iterator[rules.Violation]:
        yield rules.Violation(rule="every", turn=0, code="every", message=f"{len(draft.turns)} turns")

    result = await synthesize(n=1, workers=2, rules=every, early_stop=2, output=tmp_path / "strict")
    assert set(result.by_rule) >= {"every"}
    for workers in (1, 2):  # with one, the block that failed has all that there is
        with pytest.raises(RunStopped, match="nobody knows this model"):
            await synthesize(n=2, workers=workers, cluster="auto", call=refused, output=tmp_path / f"refused {workers}")
    lock = Lock()

    def locked(draft: Draft) -> Iterator[rules.Violation]:
        with lock:
            yield from every(draft)

    with pytest.raises(ConfigurationError, match="the settings cannot be given to another process"):
        await synthesize(n=2, workers=2, rules=locked, output=tmp_path / "locked")
    assert tasks_at_work() == []


class Reports(Mailbox):
    """Stands for the actor."""

    def __init__(self, *, most: int = sys.maxsize) -> None:
        self.all: list[Report] = []
        self.most = most

    def put(self, report: Report) -> bool:
        self.all.append(report)
        return len(self.all) <= self.most


async def test_on_a_machine_without_the_run_a_block_keeps_its_journal_in_a_temporary_folder_and_reports_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    backends = resolve_roles("rehearsal")
    settings = BlockSettings(
        settings=settings_for(seed=3),
        backends={role: backends[role] for role in find("live").roles(settings_for(seed=3))},
        fallback=None,
        call=None,
        max_in_flight=2,
        min_in_flight=2,
        folder=tmp_path / "run",
        host="another",
        report_every=0.01,
    )
    episodes = tuple(Episode(index, Persona(text=f"A clerk with {index} keys.")) for index in (4, 5, 9))
    block = Block(number=1, episodes=episodes, budget=None)

    async def play(mailbox: Reports, version: str = __version__) -> Exception | None:
        sent = (pickle.dumps(settings), pickle.dumps(block), mailbox)
        return await anyio.to_thread.run_sync(partial(play_block, *sent, version=version, environment={}, paths=[]))

    reports, told_at_once, told_later = Reports(), Reports(most=0), Reports(most=30)
    assert await play(reports) is None
    finished = [one for report in reports.all for one in report.finished]
    assert sorted(one.index for one in finished) == [4, 5, 9]
    paid = sum(len(report.paid) for report in reports.all)
    assert paid == sum(one.line.usage.requests for one in finished) > 0
    assert {report.state.in_flight for report in reports.all} <= {0, 1, 2}
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - in one call
    assert "install the same one on all machines" in str(await play(reports, "0.0.1"))

    assert await play(told_at_once) is None
    assert [(report.folder, report.paid) for report in told_at_once.all] == [("", [])], "before it makes anything"
    settings = replace(settings, call=slowly)
    assert await play(told_later) is None
    assert 0 < sum(len(report.paid) for report in told_later.all) < paid
    assert len(told_later.all) == 32, "it is told by the next report, and sends what it has"


def test_a_block_that_has_not_begun_when_the_run_ends_leaves_no_report_later() -> None:
    actor = _Actor()
    assert actor.put(Report(block=1, number=1))
    assert (actor.end(1), actor.end(2)) == (True, False)
    assert not actor.put(Report(block=2, number=1))
    assert not actor.put(Report(block=1, number=2))
    assert [(report.block, report.number) for report in actor.take(after=0)] == [(1, 1), (1, 2)]
    assert actor.take(after=2) == []


def test_a_call_of_the_mailbox_that_ray_repeats_loses_no_report_and_gives_none_twice() -> None:
    actor = _Actor()
    for number in (1, 2, 2, 3, 3):
        assert actor.put(Report(block=1, number=number))
    for _ in range(2):
        assert [report.number for report in actor.take(after=0)] == [1, 2, 3]
    assert actor.put(Report(block=2, number=1))
    for _ in range(2):
        assert [(report.block, report.number) for report in actor.take(after=3)] == [(2, 1)]
    assert actor.take(after=4) == []


def test_limits_are_shared_out() -> None:
    whole = Backend(model="gpt-4o", requests_per_minute=90, tokens_per_minute=None, max_in_flight=3)
    part = share_of_limits(whole, 3)
    assert (part.requests_per_minute, part.tokens_per_minute, part.max_in_flight) == (30, None, 1)
    assert share_of_limits(whole, 1) is whole
    with pytest.raises(ConfigurationError, match="3 requests at once, and 4 workers would each ask at least one"):
        share_of_limits(whole, 4)


async def test_without_ray_the_extra_is_named_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(name: str) -> str | None:
        return None if name == "ray" else name

    monkeypatch.setattr("refinesynth.lazy_imports.find_spec", found)
    either: list[dict[str, Any]] = [{"workers": 2}, {"cluster": "auto"}]
    for asked in either:
        with pytest.raises(ConfigurationError, match=r"refinesynth\[cluster\]"):
            await synthesize(n=1, output=tmp_path / "run", **asked)
    assert not (tmp_path / "run").exists()


async def test_what_a_killed_block_had_paid_for_is_taken_over_by_a_run_in_one_process(tmp_path: Path) -> None:
    whole = await synthesize(n=2, concurrency=2, output=tmp_path / "whole")
    folder = blocks_of(tmp_path / "run") / "block-x"
    folder.mkdir(parents=True)
    shutil.copy(tmp_path / "whole" / "journal.sqlite", folder)
    (tmp_path / "run" / "config.json").write_bytes((tmp_path / "whole" / "config.json").read_bytes())

    async def nothing(**_: object) -> object:
        raise AssertionError("it was paid for")

    result = await synthesize(n=2, concurrency=2, output=tmp_path / "run", call=nothing)
    assert len(result) == len(whole)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    assert not folder.exists()
    folder.parent.rmdir()
    folder.parent.symlink_to(tmp_path / "whole")
    with pytest.raises(RunFolderError, match="blocks' is a link"):
        await synthesize(n=3, output=tmp_path / "run")


def test_settings_that_a_node_cannot_read_are_refused_with_what_to_do(tmp_path: Path) -> None:
    """Also where reading them raises an error that would mean a lost connection."""

    class Absent:
        def __reduce__(self) -> Any:
            return _unreadable, ()

    block = pickle.dumps(Block(number=1, episodes=(), budget=None))
    found = play_block(pickle.dumps(Absent()), block, Mailbox(None), version=__version__, environment={}, paths=())
    assert isinstance(found, ConfigurationError)
    assert "not on this node" in str(found)
    assert "must be installed on all machines" in str(found)


def _unreadable() -> None:
    raise ConnectionError("not on this node")
