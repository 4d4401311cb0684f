"""Journals on the disks of the workers' machines: sums are true without them, and what is lost with them is said."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from refinesynth import synthesize
from refinesynth.errors import ConfigurationError, InputError
from refinesynth.journal import JournalReader
from refinesynth.rehearsal import Rehearsal
from refinesynth.run import RunFolder, worker_journals
from refinesynth.synthesis import Progress

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("local_ray")]


def contents(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in ("trajectories.jsonl", "rejected.jsonl")]


def requests(folder: RunFolder) -> int:
    return sum(row.requests for row in folder.spent())


def paid_in(disk: Path) -> int:
    """Completions in the journals of a run on a disk."""
    total = 0
    for path in disk.glob("*/journal-*.sqlite"):
        with JournalReader.read(path) as journal:
            total += journal.paid_count()
    return total


def events(folder: Path, name: str) -> list[dict[str, Any]]:
    found = [orjson.loads(line) for line in (folder / "events.jsonl").read_bytes().splitlines()]
    return [event for event in found if event["event"] == name]


class Enough(Exception):
    """Breaks a run off, with episodes in flight."""


def stop_at(accepted: int) -> Callable[[Progress], None]:
    def look(moment: Progress) -> None:
        if moment.accepted >= accepted:
            raise Enough

    return look


async def slowly(**request: Any) -> object:
    """The rehearsal, so slow that something is always under way."""
    await anyio.sleep(0.02)
    return await Rehearsal()(**request)


async def test_a_run_whose_journals_are_elsewhere_goes_on_with_them_and_without_them(tmp_path: Path) -> None:
    whole = await synthesize(n=40, output=tmp_path / "whole", concurrency=6)
    asked: dict[str, Any] = {"n": 40, "output": tmp_path / "run", "concurrency": 6}
    with pytest.raises(Enough):
        await synthesize(on_progress=stop_at(2), call=slowly, workers=2, journals=tmp_path / "disk", **asked)
    folder = RunFolder.open(tmp_path / "run")
    left, (disk,) = folder.outstanding(), (tmp_path / "disk").iterdir()
    assert worker_journals(folder.path) == []
    assert len(worker_journals(disk)) == 2
    assert left, "nothing was broken off, and this shows nothing"

    # What is on a disk that is not here is known all the same.
    here = folder.spent(), left
    disk.rename(tmp_path / "unplugged")
    assert (sorted(folder.spent(), key=str), folder.outstanding()) == (sorted(here[0], key=str), left)
    (tmp_path / "unplugged").rename(disk)

    # It is there: nothing is paid twice, whoever goes on.
    with pytest.raises(Enough):
        await synthesize(on_progress=stop_at(20), call=slowly, **asked)
    folder = RunFolder.open(tmp_path / "run")
    needed = sum(line.usage.requests for line in (*folder.episodes(), *folder.waiting_lines()))
    left = folder.outstanding()
    assert requests(folder) == needed + sum(one.requests for one in left)
    assert left
    assert events(folder.path, "journal_lost") == []

    # The workers go on with what the process without workers has paid for.
    result = await synthesize(workers=2, journals=tmp_path / "disk", **asked)
    assert contents(result.path) == contents(whole.path)


async def test_an_empty_disk_in_the_place_of_another_is_noticed_and_what_the_other_held_stays_in_the_sums(
    tmp_path: Path,
) -> None:
    asked: dict[str, Any] = {"n": 12, "output": tmp_path / "run", "workers": 2, "journals": tmp_path / "disk"}
    with pytest.raises(Enough):
        await synthesize(on_progress=stop_at(2), call=slowly, concurrency=6, **asked)
    folder = RunFolder.open(tmp_path / "run")
    before, left = requests(folder), folder.outstanding()
    assert before == paid_in(tmp_path / "disk")
    assert left, "nothing was broken off, and this shows nothing"
    (tmp_path / "disk").rename(tmp_path / "old")

    result = await synthesize(concurrency=6, **asked)
    assert contents(result.path) == contents((await synthesize(n=12, output=tmp_path / "whole")).path)
    said = events(folder.path, "journal_lost")
    assert sum(event["requests"] for event in said) == sum(one.requests for one in left)
    assert {Path(event["path"]) for event in said} <= set((tmp_path / "disk").glob("*/journal-*.sqlite"))
    assert requests(folder) == before + paid_in(tmp_path / "disk")

    # The old disk is found again, beside the one that has its place.
    (tmp_path / "disk").rename(tmp_path / "new")
    (tmp_path / "old").rename(tmp_path / "disk")
    assert requests(folder) == before + paid_in(tmp_path / "new")


async def test_without_ray_the_extra_is_named_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(name: str) -> str | None:
        return None if name == "ray" else name

    monkeypatch.setattr("refinesynth.extras.find_spec", found)
    either: list[dict[str, Any]] = [{"workers": 2}, {"cluster": "auto"}]
    for asked in either:
        with pytest.raises(ConfigurationError, match=r"refinesynth\[cluster\]"):
            await synthesize(n=1, output=tmp_path / "run", **asked)
    assert not (tmp_path / "run").exists()


async def test_a_folder_for_journals_is_for_workers(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="journals is given, and there are no workers"):
        await synthesize(n=1, output=tmp_path / "run", journals=tmp_path)
