"""A training that was killed goes on as if nothing had happened: the same weights, to the last bit."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import engine_toys as toys
import pytest
from engine_killed import CASES

pytestmark = pytest.mark.train

_SCRIPT = Path(__file__).with_name("engine_killed.py")


@pytest.fixture(scope="module")
def outcomes(warm: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("killed")
    command = [str(warm / "python"), str(_SCRIPT), str(folder)]
    done = subprocess.run(command, env=toys.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads((folder / "outcomes.json").read_text())


@pytest.mark.representative
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["end"][0] == signal.SIGKILL])
def test_killed_and_started_again_is_one_run(outcomes: dict[str, Any], name: str):
    case = outcomes[name]
    status, said = case["ended"]
    assert (os.WTERMSIG(status), said) == (signal.SIGKILL, None)
    _, again = case["again"]
    assert 0 < again["resumed_from"] <= again["steps"]
    assert case["apart"] == 0


@pytest.mark.parametrize("name", ["terminated", "interrupted"])
def test_a_signal_saves_and_what_follows_is_one_run(outcomes: dict[str, Any], name: str):
    case = outcomes[name]
    number = CASES[name]["end"][0]
    _, ended = case["ended"]
    assert ended["signal"] == number
    _, again = case["again"]
    assert (again["resumed_from"], again["signal"]) == (ended["steps"], None)
    assert case["apart"] == 0


def test_a_checkpoint_that_was_not_finished_is_passed_over_with_a_note(outcomes: dict[str, Any]):
    _, again = outcomes["while saving"]["again"]
    assert again["resumed_from"] == 4
    assert any("checkpoint-6 is passed over" in note for note in again["notes"])


def test_the_best_evaluation_before_the_end_counts_after_it(outcomes: dict[str, Any]):
    _, again = outcomes["evaluating"]["again"]
    assert again["best_step"] < again["resumed_from"]
    assert {"loss", "loss_correct", "loss_refinement", "loss_mistake"} == again["held_out"].keys()


def test_other_settings_are_refused_by_name(outcomes: dict[str, Any]):
    _, refused = outcomes["other settings"]
    assert refused["error"].startswith("InputError")
    assert "learning_rate: 0.01 in the checkpoint, 0.005 now" in refused["error"]
    assert "seed" in refused["error"]
