"""A result is read from its folder: counted already, iterated lazily, and safe to show."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fates import Fate, config, outcome
from samples import paid

from refinesynth.journal import PaidCompletion
from refinesynth.outcome import EpisodeOutcome
from refinesynth.run import CompletedEpisode, EpisodeLine, RunFolder, RunWriter
from refinesynth.synthesis import SynthesisResult
from refinesynth.trajectory import Persona, Usage

GOOD = Fate()
BAD = Fate(accepted=False, refusals=("TurnLimit", "TurnLimit", "TaskSucceed"))


async def written(path: Path, *fates: Fate, n: int = 3, waiting: tuple[Fate, ...] = ()) -> RunFolder:
    folder = RunWriter.claim(path, config(n=n))
    for index, fate in enumerate([*fates, *waiting]):
        ended = outcome(index, Persona(text="Somebody"), fate)
        for completion in completions(ended):
            await folder.memory(ended.id, index).keep(completion)
        if index < len(fates):
            await folder.append(CompletedEpisode.of(ended))
        else:
            # One place is left open, so that they have something to wait for.
            line = EpisodeLine.of(ended).model_copy(update={"index": index + 1})
            await folder.keep_waiting(replace(CompletedEpisode.of(ended), line=line))
    folder.close()
    return RunFolder.open(path)


def completions(ended: EpisodeOutcome) -> Iterator[PaidCompletion]:
    """What an outcome was paid with: everything in its first request."""
    for step in range(ended.usage.requests):
        usage = ended.usage if step == 0 else Usage()
        tokens = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        rest = {"cached_tokens": 0, "cache_write_tokens": 0, "cost_usd": 0.0 if step else ended.cost_usd}
        yield paid(ended.index, episode=ended.id, step=step, **tokens, **rest)


async def test_a_result_counts_what_is_on_disk(tmp_path: Path) -> None:
    folder = await written(tmp_path, GOOD, BAD, GOOD, GOOD)
    result = SynthesisResult.open(str(tmp_path))
    assert (result.path, result.n, result.episodes) == (tmp_path, 3, 4)
    assert result.config == folder.config
    assert [trajectory.id for trajectory in result] == ["000000", "000002", "000003"]
    assert list(result) == list(result)
    assert len(result) == 3
    assert len(result.rejected) == len(list(result.rejected)) == 3
    assert [refused.attempt for refused in result.rejected] == [1, 2, 3]
    assert (result.scripts_refused, result.drafts_refused) == (0, 3)
    assert result.by_rule == {"TurnLimit": 2, "TaskSucceed": 1}
    assert result.usage.requests == 2 + 3 + 4 + 2
    assert result.cost_usd == 1.0
    assert result.reached
    assert result.shortfall is None
    assert repr(result) == f"SynthesisResult({str(tmp_path)!r}, 3 of 3 accepted)"
    assert repr(result.rejected) == "<3 records on disk>"


async def test_a_trajectory_is_read_by_its_number(tmp_path: Path) -> None:
    await written(tmp_path, GOOD, BAD, GOOD, GOOD, n=3)
    result, every = SynthesisResult.open(tmp_path), list(SynthesisResult.open(tmp_path))
    assert [result[at] for at in range(3)] == every
    for at in (3, -1):
        with pytest.raises(IndexError, match=f"there are 3 trajectories, and none is at {at}"):
            result[at]


async def test_what_waits_was_paid_for_and_is_no_part_of_the_result(tmp_path: Path) -> None:
    await written(tmp_path, GOOD, n=1, waiting=(GOOD, BAD))
    result = SynthesisResult.open(tmp_path)
    assert len(result) == len(list(result)) == 1
    assert result.pending == 2
    assert result.usage.requests == 2 + 3 + 4
    assert result.cost_usd == 0.75
    assert len(result.rejected) == 0


async def test_one_unknown_cost_makes_the_total_unknown(tmp_path: Path) -> None:
    await written(tmp_path, GOOD, waiting=(Fate(cost=None),))
    assert SynthesisResult.open(tmp_path).cost_usd is None


async def test_a_shortfall_says_why(tmp_path: Path) -> None:
    folder = await written(tmp_path, GOOD, BAD, Fate(accepted=False))
    assert SynthesisResult(folder, ended="the list ran out after 3 personas", bad_personas=2).shortfall == (
        "1 of 3 trajectories were accepted: the list ran out after 3 personas. 2 of 3 episodes gave none, most refusals by "
        "TurnLimit. 2 rows of the source are no personas."
    )
    opened = SynthesisResult.open(tmp_path)
    assert not opened.reached
    assert "the run was interrupted, is still going on, or ran out of personas" in str(opened.shortfall)


async def test_a_result_without_trajectories_is_still_true(tmp_path: Path) -> None:
    await written(tmp_path)
    result = SynthesisResult.open(tmp_path)
    assert len(result) == 0
    assert result
    assert list(result) == []
