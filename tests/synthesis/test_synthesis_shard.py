"""A run in several that know nothing of each other: disjoint, together all, and each episode as the whole has it."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_records import contents

from refinesynth.errors import InputError
from refinesynth.personas import shipped
from refinesynth.run import RunFolder
from refinesynth.run.merging import merge_runs
from refinesynth.settings import RunSettings, Shard
from refinesynth.synthesis import SynthesisResult, synthesize

FAULTY = "rehearsal:no_success=0.3,too_few_errors=0.1,natural_mistake=0.2"
PEOPLE = [persona.text for persona in shipped()[:8]]


@given(count=st.integers(0, 1_000), of=st.integers(1, 50))
def test_shards_are_disjoint_and_together_all(count: int, of: int) -> None:
    shards = [Shard(index=index, of=of) for index in range(of)]
    places = [shard.place(index) for shard in shards for index in range(shard.share(count))]
    assert sorted(places) == list(range(count))


async def made(path: Path, n: int = 1_000, **given: Any) -> SynthesisResult:
    settings: dict[str, Any] = {"early_stop": 0, "seed": 5, **given}
    backend = {"default": FAULTY, "player": [FAULTY, "rehearsal"]}
    return await synthesize(PEOPLE, n, backend, output=path, **settings)


@pytest.mark.long
@pytest.mark.parametrize("play", ["live", "narrated", "grounded"])
async def test_shards_put_together_hold_what_the_whole_run_holds(tmp_path: Path, play: str) -> None:
    whole = await made(tmp_path / "whole", play=play, branches=2)
    shards = [await made(tmp_path / f"{i}", play=play, branches=2, shard=f"{i}/3", concurrency=i + 1) for i in range(3)]
    assert [shard.episodes for shard in shards] == [3, 3, 2]
    merged = await merge_runs([shard.path for shard in shards], tmp_path / "merged")
    together = SynthesisResult.open(merged.path)
    assert (merged.duplicates, merged.renamed, merged.missing) == (0, 0, ())
    assert {one.id: one for one in together} == {one.id: one for one in whole}
    assert together.by_rule == whole.by_rule
    assert together.usage == whole.usage
    assert RunFolder.open(merged.path).config.part is None


@pytest.mark.long
async def test_a_shard_makes_its_share_and_goes_on_when_more_is_wanted(tmp_path: Path) -> None:
    first = await made(tmp_path / "shard", 5, shard="1/2")
    assert (first.n, len(first)) == (2, 2)
    await made(tmp_path / "shard", 8, shard="1/2")
    at_once = await made(tmp_path / "at-once", 8, shard="1/2", concurrency=1)
    assert contents(tmp_path / "shard") == contents(at_once.path)
    # The whole stops elsewhere, and what both have played is the same.
    whole = {one.id: one for one in await made(tmp_path / "whole", 6)}
    assert 0 < sum(one == whole.get(one.id) for one in at_once) == len({one.id for one in at_once} & whole.keys())


async def test_rows_that_are_no_personas_are_passed_by_in_each_shard(tmp_path: Path) -> None:
    rows = [row for text in PEOPLE for row in (text, {"nothing": 1})]
    shard = await synthesize(rows, 100, shard="2/4", output=tmp_path / "shard", early_stop=0)
    assert [one.persona.text for one in shard] == PEOPLE[2::4]
    assert shard.bad_personas == len(PEOPLE)


async def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    runs = [(await made(tmp_path / str(index), 4, shard=f"{index}/4")).path for index in (0, 2)]
    assert (await merge_runs(runs, tmp_path / "merged")).missing == ("1/4", "3/4")


@pytest.mark.parametrize(("given", "said"), [("8/8", "the last is 7/8"), ("3", "expected I/N"), ("0/0", "greater")])
def test_what_is_no_shard_is_refused(given: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        RunSettings.make({"shard": given})


async def test_a_shard_of_which_nothing_is_left_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ask for fewer shards"):
        await made(tmp_path / "run", 3, shard="3/4")
    with pytest.raises(InputError, match="has 8, and number 20"):
        await made(tmp_path / "run", 40, shard="20/30")
    assert not (tmp_path / "run").exists()
