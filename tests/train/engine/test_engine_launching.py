"""One command for several processes: what it starts, what it passes on, and how their end comes back."""

# torch and transformers are typed in part.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false

import json
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import engine_toys as toys
import pytest
import tiny

from refinesynth.errors import ConfigurationError, InputError, TrainingError
from refinesynth.train.config import TrainConfig
from refinesynth.train.engine import launching, outcome
from refinesynth.train.engine.launching import launch
from refinesynth.train.result import TrainResult


def stand_in(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Run this in the place of torchrun and its ranks."""
    script = textwrap.dedent(code)
    monkeypatch.setattr(
        launching, "command", lambda _processes, settings: [sys.executable, "-c", script, str(settings)]
    )


def two(tmp_path: Path) -> TrainConfig:
    return toys.config(tmp_path, processes=2)


@pytest.fixture(autouse=True)
def _not_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)


def test_the_ranks_are_given_all_settings_and_their_result_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stand_in(
        monkeypatch,
        """
        import sys
        from pathlib import Path
        from refinesynth.train.config import TrainConfig
        from refinesynth.train.engine import outcome
        from refinesynth.train.result import TrainResult
        config = TrainConfig.model_validate_json(Path(sys.argv[1]).read_text())
        result = TrainResult(Path(config.output), config.seed, 9, 0.5, 1.25, {"loss": 2.0}, best_step=3)
        outcome.tell(result)
        """,
    )
    config = two(tmp_path).model_copy(update={"seed": 7})
    assert launch(config) == TrainResult(tmp_path, 7, 9, 0.5, 1.25, {"loss": 2.0}, best_step=3)


@pytest.mark.parametrize("kind", [InputError, ConfigurationError, TrainingError])
def test_what_a_rank_raises_is_raised_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]):
    stand_in(
        monkeypatch,
        f"""
        from refinesynth.errors import {kind.__name__}
        from refinesynth.train.engine import outcome
        outcome.tell({kind.__name__}("the disk is full"))
        raise SystemExit(1)
        """,
    )
    with pytest.raises(kind, match="the disk is full") as raised:
        launch(two(tmp_path))
    assert type(raised.value) is kind


@pytest.mark.parametrize("code", ["raise SystemExit(7)", "import os; os.kill(os.getpid(), 9)", ""])
def test_ranks_that_end_without_a_word_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str):
    stand_in(monkeypatch, code)
    with pytest.raises(TrainingError, match="ended with exit code"):
        launch(two(tmp_path))


def test_a_rank_and_a_single_process_train_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[TrainConfig] = []
    monkeypatch.setattr(launching, "run", lambda config, events: seen.append(config))
    launch(toys.config(tmp_path))
    monkeypatch.setenv("RANK", "0")
    launch(two(tmp_path))
    assert [config.processes for config in seen] == [1, 2]


def test_nothing_is_told_where_nobody_waits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(outcome.OUTCOME, raising=False)
    outcome.tell(TrainingError("nobody hears this"))
    assert not outcome.told_elsewhere()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model and its data."""
    folder = tmp_path_factory.mktemp("launched")
    tokenizer = tiny.tokenizer("chatml")
    tokenizer.save_pretrained(str(folder / "model"))
    toys.model(vocab_size=len(tokenizer)).save_pretrained(str(folder / "model"))
    record: dict[str, Any] = {
        "messages": [
            {"role": "user", "content": "Goal: bring the mug to the shelf."},
            {"role": "assistant", "content": "Action: go to tabel 1", "loss": False},
            {"role": "user", "content": "Error: invalid command format."},
            {"role": "assistant", "content": "Action: go to table 1", "loss": True},
        ]
    }
    lines = [json.dumps({"id": f"c{k}", **record}) for k in range(12)]
    (folder / "data.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_a_signal_to_the_command_makes_both_ranks_save_and_they_go_on_from_there(made: Path):
    settings = toys.config(
        made / "out",
        data=(str(made / "data.jsonl"),),
        model=str(made / "model"),
        processes=2,
        epochs=60,
        max_length=128,
    )
    file = made / "train.yaml"
    file.write_text(settings.model_dump_json())
    started = subprocess.Popen(
        [sys.executable, "-m", "refinesynth.train", "--config", str(file)],
        env=toys.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    metrics = made / "out" / "metrics.jsonl"
    until = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") > 3) and started.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.05)
    started.send_signal(signal.SIGTERM)
    said, _ = started.communicate(timeout=120)
    assert "checkpoint-" in said, said
    (saved,) = (made / "out" / "checkpoints").iterdir()
    step = int(saved.name.removeprefix("checkpoint-"))
    assert 0 < step < 180
    # In place now, as one process: copies are copies, however many.
    result = launch(settings.model_copy(update={"processes": 1, "max_steps": None}))
    assert result.signal is None
    assert (result.resumed_from, result.steps) == (step, 180)
    assert (made / "out" / "model.safetensors").exists()
