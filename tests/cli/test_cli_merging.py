"""Runs put together, and parts of them: nothing lost, nothing twice, and all that was paid counted once."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import anyio
import pytest
from cli_records import a_trajectory, write_journal, write_run
from command_line import cli
from run_records import CONFIG

from refinesynth import SynthesisResult, rules, synthesize
from refinesynth.cli.exit_codes import ExitCode
from refinesynth.client.session import current_request
from refinesynth.errors import InputError, RunFolderError
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.run import RunFolder
from refinesynth.run.merging import merge_runs
from refinesynth.run.status import RunStatus
from refinesynth.synthesis import Progress

FAULTS = "rehearsal:no_success=0.3,natural_mistake=0.2"


async def made(path: Path, seed: int, n: int = 4, *, play: str = "live", **settings: Any) -> SynthesisResult:
    return await synthesize(None, n, FAULTS, seed=seed, play=play, output=path, early_stop=0, **settings)


@pytest.mark.long
async def test_records_and_sums_of_all_runs_are_there_in_their_order(tmp_path: Path) -> None:
    runs = [await made(tmp_path / "a", 1), await made(tmp_path / "b", 2, branches=2)]
    merged = await merge_runs([run.path for run in runs], tmp_path / "c")
    result = SynthesisResult.open(tmp_path / "c")
    assert (merged.trajectories, merged.duplicates, merged.renamed) == (len(result), 0, 0)
    for name in ("trajectories.jsonl", "rejected.jsonl"):
        assert (result.path / name).read_bytes() == b"".join((run.path / name).read_bytes() for run in runs)
    assert result.usage == runs[0].usage + runs[1].usage
    assert result.by_rule == runs[0].by_rule + runs[1].by_rule
    assert result.episodes == sum(run.episodes for run in runs)
    assert result.figures.mistakes == runs[0].figures.mistakes + runs[1].figures.mistakes
    assert RunStatus.of(RunFolder.open(result.path)).state == "complete"
    again = await merge_runs([result.path], tmp_path / "d")
    assert again.trajectories == merged.trajectories
    assert SynthesisResult.open(again.path).usage == result.usage


@pytest.mark.long
async def test_what_is_there_twice_is_written_once_and_ids_stay_unique(tmp_path: Path) -> None:
    first, longer = await made(tmp_path / "a", 1), await made(tmp_path / "b", 1, n=6)
    other = await synthesize(None, 4, "rehearsal", seed=1, output=tmp_path / "c")
    merged = await merge_runs([first.path, longer.path, other.path], tmp_path / "d")
    result = SynthesisResult.open(tmp_path / "d")
    assert merged.duplicates >= len(first)
    assert merged.trajectories == len(result) == len(first) + len(longer) + len(other) - merged.duplicates
    assert max(Counter(one.id for one in result).values()) == 1
    assert merged.renamed == first.episodes + len({one.id for one in other} & {one.id for one in longer})
    lines = list(RunFolder.open(result.path).episodes())
    fruitful = [line for line in lines for _ in range(line.trajectories)]
    assert all(one.id.startswith(line.id) for line, one in zip(fruitful, result, strict=True))
    assert [line.index for line in lines] == list(range(len(lines)))
    assert any(line.reason and line.reason.startswith("the same as 00000") for line in lines)


@pytest.mark.long
async def test_an_episode_with_another_id_keeps_its_counts(tmp_path: Path) -> None:
    fault = "rehearsal:ambiguous_pattern=0.7"
    runs = [
        await synthesize(None, 4, spec, seed=1, output=tmp_path / name)
        for name, spec in (("a", fault), ("b", f"{fault},no_success=0.3"))
    ]
    merged = await merge_runs([run.path for run in runs], tmp_path / "c")
    assert merged.renamed
    counts = [run.figures.salvaged for run in runs]
    assert all(counts)
    assert SynthesisResult.open(tmp_path / "c").figures.salvaged == counts[0] + counts[1]


def test_a_filter_keeps_what_the_chain_accepts_and_pays_for_no_more(tmp_path: Path) -> None:
    run = anyio.run(partial(made, tmp_path / "a", 1, n=8, branches=2))
    chain = rules.strict(2)
    kept = [one for one in run if rules.verify(one.draft(), chain).accepted]
    assert 0 < len(kept) < len(run)
    assert cli("filter", run.path, "--rules", "strict(2)", "-o", tmp_path / "b").exit_code == 0
    result = SynthesisResult.open(tmp_path / "b")
    assert list(result) == kept
    assert result.config.rules == repr(chain)
    ids = {one.id[:15] for one in kept}
    paid = [line.usage.requests for line in RunFolder.open(run.path).episodes() if line.id in ids]
    assert result.usage.requests == sum(paid)
    assert cli("verify", result.path).exit_code == 0


def test_accepted_trajectories_behind_an_unfinished_episode_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsal = Rehearsal(Faults.none())

    async def spend() -> SynthesisResult:
        others_done = anyio.Event()

        async def call(**request: Any) -> dict[str, Any]:
            answer: dict[str, Any] = await rehearsal(**request)
            if current_request().session.index:
                return answer
            await others_done.wait()
            return {**answer, "usage": {"prompt_tokens": 9_000_000, "completion_tokens": 9}}

        def on_progress(progress: Progress) -> None:
            if progress.kept > 1:
                others_done.set()

        return await synthesize(
            n=9, call=call, output=tmp_path / "a", budget="5Mtok", concurrency=3, on_progress=on_progress
        )

    run = anyio.run(spend)
    waiting = run.finished.accepted
    assert waiting > 1
    note = f"an earlier episode is unfinished: {waiting} trajectories; continue the run to write them"
    assert "the budget of 5,000,000 tokens is spent" in str(run.shortfall)
    assert note in str(run.shortfall)
    other = anyio.run(partial(made, tmp_path / "b", 1, n=1)).path
    for command in (("merge", run.path, other), ("filter", run.path, "--rules", "strict(2)")):
        assert note in cli(*command, "-o", tmp_path / command[0]).stderr, command
    assert note in cli("export", run.path, "--format", "openai", "-o", tmp_path / "export").stderr
    monkeypatch.setattr("refinesynth.cli.train._train", Mock(return_value=ExitCode.OK))
    trained = cli("train", f"{run.path}:0.5", other, "--model", "scratch", "-o", tmp_path / "model")
    assert trained.stderr.count(note) == 1, trained.stderr


def test_a_run_that_lost_lines_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [a_trajectory()])
    CONFIG.save(folder / "config.json")
    write_journal(folder)
    (folder / "trajectories.jsonl").write_bytes(b"")
    refused = cli("merge", folder, "-o", tmp_path / "b")
    assert refused.exit_code == 2
    assert "the run's journal counts" in refused.stderr
    assert not (tmp_path / "b").exists()


async def test_what_cannot_be_put_together_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    live, told = await made(tmp_path / "a", 1, n=1), await made(tmp_path / "b", 1, n=1, play="narrated")
    bare = write_run(tmp_path / "bare", [a_trajectory()])
    CONFIG.save(bare / "config.json")
    new, link = tmp_path / "new", tmp_path / "link"
    link.symlink_to(live.path, target_is_directory=True)
    for sources, said in (
        ([live.path, told.path], "another setting 'play'"),
        ([live.path, link], "is named twice"),
        ([bare], "has no journal"),
        ([], "no run is named"),
        ([tmp_path / "none"], "is not the folder of a run"),
    ):
        with pytest.raises(InputError, match=said):
            await merge_runs(sources, new)
    with pytest.raises(InputError, match="nothing is left"):
        await merge_runs([live.path], new, keep=lambda _: False)
    assert not new.exists()
    with pytest.raises(InputError, match="one of the runs that are read"):
        await merge_runs([live.path], live.path, fresh=True)
    with pytest.raises(RunFolderError, match="holds a run already"):
        await merge_runs([live.path], told.path)
    await merge_runs([live.path], told.path, fresh=True)
    assert (tmp_path / "b.old-1" / "trajectories.jsonl").exists()
