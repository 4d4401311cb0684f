"""What goes up comes down as it was, in however many segments; and what others put there is believed in nothing."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from run_records import contents, write

from refinesynth.errors import StorageError
from refinesynth.files.output_folder import Holder
from refinesynth.journal import Journal, JournalReader
from refinesynth.journal.journal_values import pack
from refinesynth.journal.reader import ENDED_BELOW
from refinesynth.run import RunConfig, RunFolder
from refinesynth.stores import fetch, run_output, store, work_folder
from refinesynth.stores.store import Ends, RunStore, Segment, SegmentExists, name_of
from refinesynth.synthesis import synthesize

RUN_FILES = ("config.json", "journal.sqlite", "trajectories.jsonl", "rejected.jsonl", "events.jsonl")
FAULTY = "rehearsal:no_success=0.3,too_few_errors=0.2"


def everything(path: Path) -> list[Any]:
    """All that a run folder says, whichever way it came about."""
    folder = RunFolder.open(path)
    with JournalReader(folder.journal_file) as journal:
        paid = [one for _, one in journal.paid_after(0, limit=10_000)]
        entries = [entry for entry in journal.entries() if not entry.is_held]
        return [contents(path), folder.config, folder.totals(), paid, entries, journal.spent(), journal.notes()]


@pytest.mark.parametrize("size", [10_000, 10**9])
async def test_a_run_comes_down_as_it_went_up_in_however_many_segments(
    size: int, tmp_path: Path, machine: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_FULL_BYTES", size)
    monkeypatch.setattr(store, "_PAGE_ROWS", 5)
    monkeypatch.setattr(store, "_PAGE_EPISODES", 2)
    url = f"{(tmp_path / 'store').as_uri()}/run"
    result = await synthesize(None, 2, FAULTY, output=url, seed=1, concurrency=2)
    assert everything(await fetch(url)) == everything(result.path)
    names = {path.name for path in (tmp_path / "store" / "run").iterdir()}
    assert names == {name_of(number) for number in range(1, len(names) + 1)}
    await synthesize(None, 3, FAULTY, output=url, seed=1, concurrency=2)
    # What is copied already is not read again.
    (tmp_path / "store" / "run" / name_of(1)).write_bytes(b"")
    assert everything(await fetch(url)) == everything(work_folder(url))


async def test_a_new_run_with_more_segments_in_place_of_the_copied_one_is_copied_from_its_beginning(
    tmp_path: Path, machine: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_FULL_BYTES", 10_000)
    monkeypatch.setattr(store, "_PAGE_EPISODES", 2)
    url = f"{(tmp_path / 'store').as_uri()}/run"
    await synthesize(None, 1, FAULTY, output=url, seed=1)
    await fetch(url)
    (tmp_path / "store" / "run").rename(tmp_path / "earlier")
    machine("two")
    result = await synthesize(None, 4, FAULTY, output=url, seed=2)
    assert len([*(tmp_path / "store" / "run").iterdir()]) > len([*(tmp_path / "earlier").iterdir()])
    machine("one")
    assert everything(await fetch(url)) == everything(result.path)


class Interrupted(Exception):
    """As by Ctrl-C."""


@pytest.mark.long
async def test_a_copy_that_was_interrupted_between_any_two_steps_is_completed(
    tmp_path: Path, machine: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_PAGE_EPISODES", 2)
    monkeypatch.setattr(store, "_FULL_BYTES", 60_000)
    url = f"{(tmp_path / 'store').as_uri()}/run"
    result = await synthesize(None, 2, FAULTY, output=url, seed=1, concurrency=2)
    left = 0

    def step(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            nonlocal left
            if not left:
                raise Interrupted
            left -= 1
            return function(*given, **named)

        return counted

    for name in ("keep", "enter", "keep_note", "forget_from"):
        monkeypatch.setattr(Journal, name, step(getattr(Journal, name)))
    monkeypatch.setattr(run_output, "cut", step(run_output.cut))
    monkeypatch.setattr(RunConfig, "save", step(RunConfig.save))
    whole, steps, interrupted = everything(result.path), 0, True
    while interrupted:
        machine(f"m{steps}")
        left, interrupted = steps, False
        try:
            copy = await fetch(url)
        except Interrupted:
            left, interrupted = 1_000, True
            copy = await fetch(url)
        *files, notes = everything(copy)
        # Harmless: it tells of episodes that are there.
        notes.pop(ENDED_BELOW, None)
        assert [*files, notes] == whole
        steps += 1
    # The number of segments, each with about six steps, depends on time.
    assert steps > 8


async def sealed(tmp_path: Path) -> dict[str, Any]:
    """A segment with all of a small run."""
    folder = await write(tmp_path / "made", True, False, True)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    sealed_part = Segment.of(
        store.next_part(folder.path, Ends()),
        number=1,
        writer="w",
        holder=Holder(pid=1, host="there", since=now),
        config=folder.config.model_dump(mode="json"),
        notes={},
    )
    return sealed_part.model_dump(mode="json")


def changed(at: str, value: object) -> Callable[[dict[str, Any]], object]:
    def change(segment: dict[str, Any]) -> None:
        *path, last = at.split(".")
        place: Any = segment
        for key in path:
            place = place[int(key) if isinstance(place, list) else key]
        place[int(last) if isinstance(place, list) else last] = value

    return change


def cut_short(segment: dict[str, Any]) -> None:
    segment["trajectories"] = segment["trajectories"][:-1]


def one_less(segment: dict[str, Any]) -> None:
    del segment["entries"][1]


NOT_OURS = {
    "an_unknown_field": changed("more", 1),
    "a_newer_form": changed("schema_version", 2),
    "another_number": changed("number", 7),
    "a_setting_of_no_run": changed("config.n", "many"),
    "an_episode_twice": changed("entries.1.0", 0),
    "an_end_before_the_last": changed("entries.1.4", 1),
    "an_episode_of_another_kind": changed("entries.0", ["x"]),
    "counts_that_are_none": changed("entries.2.6", "{}"),
    "lines_that_are_cut_short": cut_short,
    "an_episode_that_is_missing": one_less,
    "an_end_that_is_not_reached": changed("ends.events", 10**6),
    "a_completion_that_is_none": changed("paid", [[0, "e"]]),
    "a_note_that_is_none": changed("notes", {"lacks": 3}),
}


@pytest.mark.parametrize("change", NOT_OURS.values(), ids=NOT_OURS.keys())
async def test_what_no_run_has_written_is_refused(
    change: Callable[[dict[str, Any]], object], tmp_path: Path, machine: Callable[[str], Path]
) -> None:
    url = (tmp_path / "store").as_uri()
    segment = await sealed(tmp_path)
    change(segment)
    await RunStore(url).add(1, pack(orjson.dumps(segment)))
    with pytest.raises(StorageError, match="segment"):
        await fetch(url)


async def test_a_segment_as_it_should_be_is_taken_and_one_that_is_not_next_is_missed(
    tmp_path: Path, machine: Callable[[str], Path]
) -> None:
    url = (tmp_path / "store").as_uri()
    data = pack(orjson.dumps(await sealed(tmp_path)))
    await RunStore(url).add(1, data)
    assert contents(await fetch(url)) == contents(tmp_path / "made")
    with pytest.raises(SegmentExists):
        await RunStore(url).add(1, b"")
    await RunStore(url).add(3, data)
    with pytest.raises(StorageError, match="some are missing"):
        await fetch(url)


async def test_names_that_lead_elsewhere_are_not_looked_at(tmp_path: Path, machine: Callable[[str], Path]) -> None:
    url = (tmp_path / "store").as_uri()
    await RunStore(url).add(1, pack(orjson.dumps(await sealed(tmp_path))))
    for name in ("run.lock", "config.json", "segment-2.json.zst", "segment-000000002.json.zst/config.json"):
        path = tmp_path / "store" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"{}")
    copy = await fetch(url)
    assert {path.name for path in copy.iterdir()} <= {*RUN_FILES}
    assert contents(copy) == contents(tmp_path / "made")


@pytest.mark.parametrize("data", [b"", b"no zstd", pack(b"[]"), pack(b"x" * 5_000)])
async def test_what_is_no_segment_or_too_large_is_refused(
    data: bytes, tmp_path: Path, machine: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_BYTES", 30)
    url = (tmp_path / "store").as_uri()
    await RunStore(url).add(1, data)
    with pytest.raises(
        StorageError, match=r"segment-000000001\.json\.zst (is damaged|has 3\d bytes, and 30 are the most)"
    ):
        await fetch(url)


@pytest.mark.process
def test_no_store_is_looked_for_where_none_is_named(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", LOCAL, str(tmp_path / "run")], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "False"


LOCAL = """
import sys
import anyio
from refinesynth.stores import opened_output

async def main():
    async with opened_output(sys.argv[1]) as output:
        print("obstore" in sys.modules)

anyio.run(main)
"""
