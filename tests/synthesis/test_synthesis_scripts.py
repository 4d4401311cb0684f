"""Scripts of a run that are played again."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

import refinesynth as rs
from refinesynth.errors import InputError, RunFolderError
from refinesynth.run import RunFolder
from refinesynth.settings import Grounding, Mistakes
from refinesynth.trajectory import Script, Trajectory

TERSE = Grounding(terse=True)


@pytest.fixture
async def worlds(tmp_path: Path) -> Path:
    result = await rs.synthesize(n=6, play="grounded", branches=2, grounding=TERSE, output=tmp_path / "worlds")
    return result.path


def scripts(trajectories: Iterator[Trajectory]) -> list[Script]:
    return list({one.script.digest: one.script for one in trajectories}.values())


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("workers", [1, 2])
async def test_each_script_is_played_once_and_none_is_written(worlds: Path, tmp_path: Path, workers: int) -> None:
    before = list(RunFolder.open(worlds).trajectories())
    result = await rs.synthesize(
        scripts=worlds,
        n=100,
        play="grounded",
        grounding=TERSE,
        mistakes=Mistakes(policy="natural"),
        seed=5,
        workers=workers,
        output=tmp_path / "again",
    )
    again = list(result)
    assert [one.script for one in again] == scripts(iter(before))
    assert len(before) > len(again) > 0
    assert {one.persona.text for one in again} == {one.persona.text for one in before}
    assert {tuple(one.provenance.models) for one in again} == {("player",)}
    assert {one.provenance.script_attempts for one in again} == {0}
    assert set(RunFolder.open(result.path).config.models) == {"player"}
    assert "scripts of" in (result.shortfall or "")


async def test_a_run_goes_on_with_the_same_scripts_alone(worlds: Path, tmp_path: Path) -> None:
    first = await rs.synthesize(scripts=worlds, n=1, output=tmp_path / "again")
    assert len(first) == 1
    reversed_file = tmp_path / "reversed.jsonl"
    lines = (worlds / "trajectories.jsonl").read_bytes().splitlines(keepends=True)
    one = orjson.loads(lines[0])
    one["script"]["goal"] += " Then rest."
    reversed_file.write_bytes(orjson.dumps(one) + b"\n" + b"".join(lines[1:]))
    with pytest.raises(RunFolderError, match="persona 0 is now"):
        await rs.synthesize(scripts=reversed_file, n=2, output=tmp_path / "again")
    assert len(await rs.synthesize(scripts=worlds, n=2, output=tmp_path / "again")) == 2


async def test_a_script_that_the_rules_refuse_now_is_refused(tmp_path: Path) -> None:
    live = await rs.synthesize(n=2, output=tmp_path / "live")
    result = await rs.synthesize(scripts=live.path, n=2, play="grounded", output=tmp_path / "grounded")
    assert len(result) == 0
    (reason, *_) = {line.reason for line in RunFolder.open(result.path).episodes()}
    assert reason is not None
    assert "the script that was there is not accepted now" in reason


async def test_personas_and_scripts_exclude_each_other(worlds: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="both given"):
        await rs.synthesize(["a baker"], scripts=worlds, n=1, output=tmp_path / "again")
    with pytest.raises(InputError, match="there is no"):
        await rs.synthesize(scripts=tmp_path / "nowhere", n=1, output=tmp_path / "again")
    assert not (tmp_path / "again").exists()
