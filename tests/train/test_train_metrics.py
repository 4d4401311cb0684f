"""`metrics.jsonl`, and the curves drawn from it."""

import math
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from train_values import a_config, a_plan

from refinesynth.errors import StorageError
from refinesynth.train import events
from refinesynth.train.artefacts import Artefacts
from refinesynth.train.metrics import Measured, MetricsFile, read_metrics
from refinesynth.train.plots import PLOTS, draw_plots

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


def size_of(png: Path) -> tuple[int, int]:
    content = png.read_bytes()
    assert content.startswith(b"\x89PNG\r\n")
    return struct.unpack(">II", content[16:24])


def test_curves_are_drawn_after_every_evaluation(tmp_path: Path) -> None:
    artefacts = Artefacts(a_config(output=str(tmp_path)))
    artefacts.logged(1, {events.LOSS: 2.5, events.LEARNING_RATE: 5e-6})
    assert not (tmp_path / "plots").exists()
    artefacts.evaluated(2, HELD_OUT)
    drawn = sorted((tmp_path / "plots").iterdir())
    assert [png.name for png in drawn] == sorted(f"{name}.png" for name in PLOTS)
    assert {size_of(png) for png in drawn} == {(840, 480)}


def test_what_was_not_measured_is_not_drawn(tmp_path: Path) -> None:
    measured = [Measured("train", step, {events.LOSS: 1 / step}) for step in (1, 2)]
    assert [png.name for png in draw_plots(measured, tmp_path)] == ["loss.png"]
    assert draw_plots([], tmp_path / "none") == []


def test_the_same_metrics_give_the_same_picture_and_others_another(tmp_path: Path) -> None:
    measured = [Measured("held_out", step, HELD_OUT) for step in (1, 2)]
    pictures = [(tmp_path / name / "held_out.png") for name in ("a", "b", "c")]
    for picture in pictures[:2]:
        draw_plots(measured, picture.parent)
    draw_plots([*measured, Measured("held_out", 3, {**HELD_OUT, events.LOSS_MISTAKE: 9.0})], pictures[2].parent)
    first, same, other = (picture.read_bytes() for picture in pictures)
    assert first == same != other


def test_gaps_are_drawn_around(tmp_path: Path) -> None:
    measured = [Measured("train", step, {events.LOSS: math.nan if step == 2 else 1.0}) for step in (1, 2, 3)]
    assert len(draw_plots(measured, tmp_path)) == 1
