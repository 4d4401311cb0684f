"""Files into run folders: what is there, what is kept beside, and what comes of it when it is interrupted."""

import gzip
import os
from pathlib import Path

import anyio
import pytest
from samples import REFINED, trajectory

from refinesynth import SynthesisResult, synthesize
from refinesynth.errors import InputError, RunFolderError
from refinesynth.export import write_export
from refinesynth.imports import import_trajectories
from refinesynth.imports.importing import MAX_LINE_BYTES
from refinesynth.run import RunFolder
from refinesynth.run.status import RunStatus
from refinesynth.train.data.conversation_reader import read_conversations


def file_of(folder: Path, count: int = 3, form: str = "agentinstruct") -> Path:
    """An export of so many trajectories, each with an id of its own."""
    path = folder / f"{count}.jsonl"
    write_export((trajectory(*REFINED, id=f"t-{number}") for number in range(count)), path, form)
    return path


async def test_an_import_is_a_run_that_is_complete(tmp_path: Path) -> None:
    result = await import_trajectories(file_of(tmp_path), format="agentinstruct", output=tmp_path / "run")
    assert [one.id for one in result] == ["t-0", "t-1", "t-2"]
    assert {one.provenance.play for one in result} == {result.config.play} == {"imported"}
    assert result.figures.mistakes.total() == 3 * len(trajectory(*REFINED).mistakes())
    status = RunStatus.of(RunFolder.open(tmp_path / "run"))
    assert (status.state, status.accepted, status.n) == ("complete", 3, 3)
    assert len(list(read_conversations(tmp_path / "run"))) == 3


async def test_what_cannot_be_read_is_kept_as_it_was(tmp_path: Path) -> None:
    first, *rest = file_of(tmp_path).read_bytes().splitlines()
    path = tmp_path / "spoilt.jsonl"
    odd = [b"no JSON", b'{"conversations": "none"}', b"[]", b"\xff\xfe\xfd", b'{"conversations": [']
    path.write_bytes(b"\n".join([odd[0], first, b"  ", b"x" * (MAX_LINE_BYTES + 1), *odd[1:4], *rest, odd[4]]))
    result = await import_trajectories(path, format="agentinstruct", output=tmp_path / "run")
    assert [one.id for one in result] == ["t-0", "t-1", "t-2"]
    assert (result.episodes, len(result.rejected), result.scripts_refused) == (9, 6, 6)
    refused = list(result.rejected)
    assert [one.record for one in refused] == [
        line.decode(errors="replace") for line in (odd[0], b"", odd[1], odd[2], odd[3], odd[4])
    ]
    lines = [str(one.text).split(":")[1] for one in refused]
    assert lines == ["1", "4", "5", "6", "7", "10"]
    assert "longer than" in str(refused[1].text)


async def test_a_compressed_file_holds_the_same(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl.gz"
    path.write_bytes(gzip.compress(file_of(tmp_path).read_bytes()))
    found = await import_trajectories(path, format="agentinstruct", output=tmp_path / "run")
    assert list(found) == list(
        await import_trajectories(tmp_path / "3.jsonl", format="agentinstruct", output=tmp_path / "plain")
    )


async def test_of_a_file_that_breaks_off_or_is_of_another_format_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(gzip.compress(file_of(tmp_path, 50).read_bytes())[:-20])
    with pytest.raises(InputError, match=r"cut.jsonl.gz' cannot be read"):
        await import_trajectories(path, format="agentinstruct", output=tmp_path / "run")
    with pytest.raises(
        InputError, match=r"none of 50 records .* can be read as openai; of the first: .*expected `messages`"
    ):
        await import_trajectories(tmp_path / "50.jsonl", format="openai", output=tmp_path / "run")
    with pytest.raises(InputError, match="there is no format 'openia' to import; did you mean 'openai'"):
        await import_trajectories(tmp_path / "50.jsonl", format="openia", output=tmp_path / "run")
    for nothing in (tmp_path / "missing.jsonl", tmp_path):
        with pytest.raises(InputError, match=r"there is no file"):
            await import_trajectories(nothing, format="openai", output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.long
async def test_an_import_that_is_interrupted_is_begun_anew_on_request(tmp_path: Path) -> None:
    path = file_of(tmp_path, 200)

    def stop(read: int) -> None:
        if (tmp_path / "run" / "config.json").exists() and read >= 100:
            scope.cancel()

    with anyio.CancelScope() as scope:
        await import_trajectories(path, format="agentinstruct", output=tmp_path / "run", on_progress=stop)
    begun = RunStatus.of(RunFolder.open(tmp_path / "run"))
    assert (begun.state, begun.why, begun.n) == ("stopped", "interrupted", 200)
    assert 0 < begun.accepted < 200
    with pytest.raises(RunFolderError, match="holds an import; give another folder, or --fresh"):
        await import_trajectories(path, format="agentinstruct", output=tmp_path / "run")
    result = await import_trajectories(path, format="agentinstruct", output=tmp_path / "run", fresh=True)
    assert len(result) == 200
    assert len(SynthesisResult.open(tmp_path / "run.old-1")) == begun.accepted


async def test_what_can_be_read_only_once_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a FIFO; it is read twice, so give a file"):
        await import_trajectories(tmp_path / "pipe", format="openai", output=tmp_path / "run")


async def test_a_run_that_was_made_is_not_added_to(tmp_path: Path) -> None:
    await synthesize(n=1, output=tmp_path / "run")
    with pytest.raises(RunFolderError, match='begun with other settings: play: "live" -> "imported"'):
        await import_trajectories(file_of(tmp_path), format="agentinstruct", output=tmp_path / "run")
