"""A run may be ended at any instant: the same call goes on with it, and neither loses, repeats nor pays for anything
twice."""

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from run_records import contents, scratch

from refinesynth.backends import Completion
from refinesynth.errors import RunFolderError
from refinesynth.journal import Entry, Journal, PaidCompletion
from refinesynth.personas import shipped
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.synthesis import SynthesisResult, synthesize

FAULTS = Faults(invalid_json=0.1, missing_keys=0.1, no_success=0.2, too_few_errors=0.2)
PEOPLE = shipped()[12:24]
"""With the faults above, the first few episodes give a trajectory each and some drafts are refused."""

Play = Literal["live", "narrated"]


class Counting:
    """The rehearsal, and how often it was asked for what."""

    def __init__(self) -> None:
        self.asked = Counter[str]()
        self._rehearsal = Rehearsal(faults=FAULTS)

    async def __call__(self, **request: Any) -> object:
        answer = await self._rehearsal(**request)
        self.asked[f"{request['seed']} {request['messages']}"] += 1
        return answer


async def play(path: Path, call: Completion, *, n: int = 3, **asked: Any) -> SynthesisResult:
    return await synthesize(PEOPLE, n, "openai/any", output=path, call=call, **asked)


class Snapshots:
    """Copies of a run folder as a process that is killed would leave it, at every commit and right before each."""

    def __init__(self, path: Path, copies: Path, call: Counting) -> None:
        self._path = path
        self._copies = copies
        self._call = call
        self.taken: list[tuple[Path, int]] = []
        """Where each copy is, and how many completions were asked for until then."""

    def take(self) -> None:
        copy = self._copies / f"{len(self.taken):03d}"
        shutil.copytree(self._path, copy, ignore=shutil.ignore_patterns("*-shm"))
        self.taken.append((copy, self._call.asked.total()))

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        keep, enter = Journal.keep, Journal.enter

        async def kept(journal: Journal, paid: PaidCompletion) -> None:
            await keep(journal, paid)
            self.take()

        def entered(journal: Journal, entries: Sequence[Entry], *, totals: bytes | None = None) -> Awaitable[None]:
            # The lines are in the files, and do not count yet.
            self.take()

            async def commit() -> None:
                await enter(journal, entries, totals=totals)
                self.take()

            return commit()

        patch.setattr(Journal, "keep", kept)
        patch.setattr(Journal, "enter", entered)


@pytest.mark.long
@pytest.mark.parametrize(("how", "every"), [("narrated", 1), ("live", 11)])
async def test_killed_at_any_commit_it_completes_to_the_same_and_pays_for_nothing_twice(
    how: Play, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scratch() as home:
        whole, first = Path(home, "whole"), Counting()
        snapshots = Snapshots(whole, Path(home), first)
        with monkeypatch.context() as patch:
            snapshots.watch(patch)
            result = await play(whole, first, play=how, concurrency=1, seed=1)
        assert result.rejected or how == "live"
        assert result.usage.requests == first.asked.total()
        for copy, asked in snapshots.taken[::every]:
            second = Counting()
            resumed = await play(copy, second, play=how, concurrency=1, seed=1)
            assert contents(copy) == contents(whole)
            assert resumed.usage == result.usage
            assert asked + second.asked.total() == first.asked.total()
            assert first.asked == second.asked | (first.asked - second.asked)
            shutil.rmtree(copy)


async def test_a_complete_run_asks_for_nothing_and_changes_nothing(tmp_path: Path) -> None:
    call = Counting()
    first = await play(tmp_path / "run", call, play="narrated")
    before = (call.asked.copy(), contents(first.path), (first.path / "events.jsonl").read_bytes())
    # Neither personas nor a key are needed: nothing is opened.
    again = await synthesize(iter(()), 3, "openai/any", output=first.path, play="narrated")
    assert again.reached
    assert (call.asked, contents(first.path), (first.path / "events.jsonl").read_bytes()) == before


@pytest.mark.parametrize("lost", ["trajectories.jsonl", "rejected.jsonl"])
async def test_lines_that_are_lost_are_made_again_for_free(tmp_path: Path, lost: str) -> None:
    path, call = tmp_path / "run", Counting()
    await play(path, call, n=8, play="narrated")
    before = contents(path)
    size = (path / lost).stat().st_size
    assert size, "nothing was refused, and this shows nothing"
    for left in (size - 1, size // 2, 0):
        os.truncate(path / lost, left)
        with pytest.raises(RunFolderError, match="from its journal for free"):
            list(SynthesisResult.open(path) if lost == "trajectories.jsonl" else SynthesisResult.open(path).rejected)
        asked = call.asked.total()
        result = await play(path, call, n=8, play="narrated")
        assert result.reached
        assert call.asked.total() == asked
        assert contents(path) == before


async def test_an_interrupted_call_says_where_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task: asyncio.Task[object] = asyncio.current_task() or pytest.fail("no task")

    async def interrupting(**_request: object) -> object:
        task.cancel()
        return await anyio.sleep_forever()

    with pytest.raises(asyncio.CancelledError) as caught:
        await synthesize(["Somebody"], 1, "openai/any", call=interrupting)
    task.uncancel()
    # Without a folder of its own the next call would begin another run.
    place = repr(str(Path("runs/001")))
    assert caught.value.__notes__ == [
        f"What was finished is in {place}; the same call with output={place} goes on with it."
    ]
