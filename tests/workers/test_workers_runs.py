"""Runs with several workers: the same files as without, continued by any number of them, within one budget."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from refinesynth import synthesize
from refinesynth.errors import InputError
from refinesynth.run import RunFolder, worker_journals
from refinesynth.settings.curation import Curation

pytestmark = pytest.mark.usefixtures("local_ray")

FILES = ("trajectories.jsonl", "rejected.jsonl")


def contents(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in FILES]


async def test_a_run_is_continued_by_another_number_of_workers_without_paying_again(tmp_path: Path) -> None:
    await synthesize(n=12, output=tmp_path / "whole", concurrency=6)
    for n, workers in ((3, 2), (6, 1), (12, 2)):
        result = await synthesize(n=n, output=tmp_path / "run", concurrency=6, workers=workers)
        assert len(result) == n
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    folder = RunFolder.open(tmp_path / "run")
    paid = sum(row.requests for row in folder.spent())
    needed = sum(line.usage.requests for line in (*folder.episodes(), *folder.waiting_lines()))
    assert paid == needed + sum(one.requests for one in folder.outstanding())


async def test_all_workers_keep_to_one_budget(tmp_path: Path) -> None:
    result = await synthesize(n=12, output=tmp_path / "run", concurrency=6, workers=2, budget="200ktok", deadline=None)
    spent = sum(row.input_tokens + row.output_tokens for row in RunFolder.open(tmp_path / "run").spent())
    assert 0 < len(result) < 12
    assert spent <= 200_000 + 20_000
    assert "budget" in (result.shortfall or "")


@pytest.mark.parametrize("workers", [0, -1, True, 10**6])
async def test_a_senseless_number_of_workers_is_refused(tmp_path: Path, workers: int) -> None:
    with pytest.raises(InputError, match="workers is"):
        await synthesize(n=1, output=tmp_path / "run", workers=workers)


async def test_several_trajectories_by_mixed_models_are_curated_alike_in_any_number_of_workers(
    tmp_path: Path,
) -> None:
    # About every fifth script of the rehearsal begins in these words.
    known = next(iter(await synthesize(n=1, output=tmp_path / "known"))).script.introduction
    (tmp_path / "known.jsonl").write_bytes(orjson.dumps({"text": known}) + b"\n")
    asked: dict[str, Any] = {
        "n": 8,
        "backend": {"default": "rehearsal", "player": ["rehearsal", "rehearsal:natural_mistake=0.5"]},
        "episodes_per_script": 2,
        "branches": 2,
        "curation": Curation(contamination=(str(tmp_path / "known.jsonl"),), contaminated="refuse"),
    }
    one = await synthesize(output=tmp_path / "one", concurrency=1, **asked)
    fewer: dict[str, Any] = {**asked, "n": 3}
    await synthesize(output=tmp_path / "two", concurrency=3, **fewer)
    two = await synthesize(output=tmp_path / "two", concurrency=6, workers=2, **asked)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert (two.by_rule, len(two)) == (one.by_rule, len(one))
    assert len(one) >= 8
    assert len(worker_journals(tmp_path / "two")) == 2
    assert "Contaminated" in one.by_rule, "nothing was curated, and this shows nothing"
