"""`metrics.jsonl`."""

import math
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.errors import StorageError
from refinesynth.train import events
from refinesynth.train.training_folder import MetricsFile, cut_metrics

HELD_OUT = {events.LOSS: 2.0, events.LOSS_CORRECT: 1.9, events.LOSS_REFINEMENT: 2.2, events.LOSS_MISTAKE: 5.0}


def lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def steps(path: Path) -> list[tuple[str, int]]:
    return [(found["kind"], found["step"]) for found in lines(path)]


def test_each_line_has_kind_step_metrics_and_time(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    file.write("train", 10, {events.LOSS: 2.5, events.LEARNING_RATE: 5e-6})
    file.write("held_out", 10, HELD_OUT)
    first, second = lines(path)
    assert {**first, "time": ""} == {"kind": "train", "step": 10, "loss": 2.5, "learning_rate": 5e-6, "time": ""}
    assert {**second, "time": ""} == {"kind": "held_out", "step": 10, **HELD_OUT, "time": ""}


@given(
    first=st.lists(st.integers(1, 50), unique=True, max_size=10).map(sorted),
    again=st.lists(st.integers(1, 50), unique=True, max_size=10).map(sorted),
    start=st.integers(0, 50),
)
def test_after_a_resume_each_step_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, first: list[int], again: list[int], start: int
) -> None:
    path = tmp_path_factory.mktemp("metrics") / "metrics.jsonl"
    again = [step for step in again if step > start]
    for run, begun in ((first, 0), (again, start)):
        cut_metrics(path.parent, begun)
        file = MetricsFile(path)
        for step in run:
            file.write("train", step, {events.LOSS: 1.0})
            file.write("held_out", step, HELD_OUT)
    expected = [step for step in first if step <= start] + again
    assert (steps(path) if path.exists() else []) == [
        (kind, step) for step in expected for kind in ("train", "held_out")
    ]


def test_torn_and_foreign_lines_are_taken_out_when_a_training_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    MetricsFile(path).write("train", 1, {events.LOSS: 1.0})
    with path.open("ab") as file:
        file.write(b'[]\n{"kind": "train"}\n{"kind": "train", "step": 2, "lo')
    cut_metrics(tmp_path, 2)
    MetricsFile(path).write("train", 2, {events.LOSS: 1.0})
    assert steps(path) == [("train", 1), ("train", 2)]


def test_a_loss_that_is_no_number_is_null(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    MetricsFile(path).write("train", 1, {events.LOSS: math.nan, events.GRAD_NORM: math.inf})
    assert b'"loss":null,"grad_norm":null' in path.read_bytes()


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"metrics\.jsonl"):
        MetricsFile(tmp_path / "nowhere" / "metrics.jsonl").write("train", 1, {})
