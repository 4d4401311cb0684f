"""A log that Inspect itself writes in an evaluation, instead of one made for a test."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import inspect_ai
import pytest
from eval_logs import COUNTS
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver

from refinesynth.evaluate.comparing.comparison import compare
from refinesynth.evaluate.episode_counts import SCORE


@scorer(metrics={"*": [mean()]}, name=SCORE)
def by_number() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        number = int(state.sample_id)
        value = {"success": number % 2, "progress": number / 10, **COUNTS.rates}
        return Score(value=value, metadata={"counts": asdict(COUNTS), "level": "easy"})

    return score


@solver
def fails_in_the_third() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if state.sample_id == 3:
            raise RuntimeError("the environment died")
        return state

    return solve


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # Inspect's own, over its files and streams
def test_an_evaluation_by_inspect_is_read(tmp_path: Path) -> None:
    task = inspect_ai.Task(
        name="refinesynth/babyai",
        dataset=[Sample(id=number, input="Begin.") for number in range(1, 7)],
        solver=fails_in_the_third(),
        scorer=by_number(),
        metadata={"refinesynth": {"benchmark": "babyai", "steps": 30, "instances": 112}},
    )
    folder = tmp_path / "first"
    inspect: Any = inspect_ai
    inspect.eval(
        task, model="mockllm/model", log_dir=str(folder), display="none", epochs=2, fail_on_error=False, limit=5
    )
    found = compare([folder])
    tables = {table.name: dict(zip(table.columns, next(table.texts()), strict=True)) for table in found.tables}
    assert tables["scores"]["instances"] == "4 of 112"
    assert tables["scores"]["progress"].startswith("30.0 [")
    assert tables["behaviour"]["format errors"] == "10.0"
    assert "further" not in tables, "rates are taken from the counts"
    (warning,) = found.warnings
    assert "failed and left out: 2 of 10 episodes" in warning
    assert "the environment died" in warning
