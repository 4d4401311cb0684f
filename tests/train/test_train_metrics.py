"""`metrics.jsonl`."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from train_values import a_plan

from refinesynth.errors import StorageError
from refinesynth.train import events
from refinesynth.train.artefacts import Measured, MetricsFile, read_metrics

HELD_OUT = {events.LOSS: 2.0, events.LOSS_CORRECT: 1.9, events.LOSS_REFINEMENT: 2.2, events.LOSS_MISTAKE: 5.0}


def steps(path: Path) -> list[tuple[str, int]]:
    return [(found.kind, found.step) for found in read_metrics(path)]


def test_what_is_told_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    file.planned(a_plan())
    file.logged(10, {events.LOSS: 2.5, events.LEARNING_RATE: 5e-6})
    file.evaluated(10, HELD_OUT)
    assert list(read_metrics(path)) == [
        Measured("train", 10, {events.LOSS: 2.5, events.LEARNING_RATE: 5e-6}),
        Measured("held_out", 10, HELD_OUT),
    ]


def test_no_file_has_no_metrics(tmp_path: Path) -> None:
    assert list(read_metrics(tmp_path / "metrics.jsonl")) == []


@given(
    first=st.lists(st.integers(1, 50), unique=True, max_size=10).map(sorted),
    again=st.lists(st.integers(1, 50), unique=True, min_size=1, max_size=10).map(sorted),
)
def test_after_a_resume_each_step_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, first: list[int], again: list[int]
) -> None:
    path = tmp_path_factory.mktemp("metrics") / "metrics.jsonl"
    for run in (first, again):
        file = MetricsFile(path)
        for step in run:
            file.logged(step, {events.LOSS: 1.0})
            file.evaluated(step, HELD_OUT)
    expected = [step for step in first if step < again[0]] + again
    assert steps(path) == [(kind, step) for step in expected for kind in ("train", "held_out")]


def test_torn_and_foreign_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    MetricsFile(path).logged(1, {events.LOSS: 1.0})
    with path.open("ab") as file:
        file.write(b'[]\n{"kind": "train"}\n{"kind": "train", "step": 2, "lo')
    assert steps(path) == [("train", 1)]
    MetricsFile(path).logged(2, {events.LOSS: 1.0})
    assert steps(path) == [("train", 1), ("train", 2)]
    assert path.read_bytes().count(b"\n") == 2


def test_a_loss_that_is_no_number_is_null_and_read_as_such(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    MetricsFile(path).logged(1, {events.LOSS: math.nan, events.GRAD_NORM: math.inf})
    assert b'"loss":null' in path.read_bytes()
    (found,) = read_metrics(path)
    assert all(math.isnan(value) for value in found.values.values())


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"metrics\.jsonl"):
        MetricsFile(tmp_path / "nowhere" / "metrics.jsonl").logged(1, {})
