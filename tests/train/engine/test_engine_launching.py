"""One command for several processes: what it starts, what it passes on, and how their end comes back."""

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
from refinesynth.train import ranks
from refinesynth.train.config import TrainConfig
from refinesynth.train.engine import launcher, rank_training
from refinesynth.train.engine.launcher import launch
from refinesynth.train.events import TrainResult

pytestmark = pytest.mark.train


def stand_in(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Run this in the place of every rank."""
    script = textwrap.dedent(code)
    monkeypatch.setattr(launcher, "rank_command", lambda settings: [sys.executable, "-c", script, str(settings)])


def two(tmp_path: Path) -> TrainConfig:
    return toys.config(tmp_path, processes=2)


@pytest.fixture(autouse=True)
def _not_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    # Nothing of what toys are given by name is there.
    monkeypatch.setattr(launcher, "check_inputs", lambda _config, _sources: None)


def test_the_ranks_are_given_all_settings_and_their_result_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stand_in(
        monkeypatch,
        """
        import sys
        from pathlib import Path
        from refinesynth.train.config import TrainConfig
        from refinesynth.train import ranks
        from refinesynth.train.events import TrainResult
        config = TrainConfig.model_validate_json(Path(sys.argv[1]).read_text())
        result = TrainResult(Path(config.output), config.seed, 9, 0.5, 1.25, {"loss": 2.0}, best_step=3)
        ranks.write_outcome(result)
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
        from refinesynth.train import ranks
        ranks.write_outcome({kind.__name__}("the disk is full"))
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


def test_a_rank_that_waits_in_vain_for_one_that_failed_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(launcher, "_KILL_TIMEOUT", 0.2)
    stand_in(monkeypatch, "import os, time; os.environ['RANK'] == '1' and os._exit(7); time.sleep(600)")
    with pytest.raises(TrainingError, match="exit code 7"):
        launch(two(tmp_path))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -2), (signal.SIGTERM, -15), (signal.SIGHUP, -1)])
def test_a_signal_before_the_first_step_ends_it_as_if_nothing_had_been_started(tmp_path: Path, number: int, code: int):
    """In a process of its own, which ends of it as it would without us."""
    script = """
        import os, signal, sys
        from pathlib import Path
        from refinesynth.train.config import TrainConfig
        from refinesynth.train.engine import launcher
        send = "os.environ['RANK'] == '0' and os.kill(os.getppid(), int(os.environ['SENT']))"
        launcher.rank_command = lambda _settings: [sys.executable, "-c", f"import os, time; {send}; time.sleep(60)"]
        launcher.check_inputs = lambda _config, _sources: None
        config = TrainConfig(data=("x",), model="x", output="x", processes=2)
        try:
            launcher.launch(config)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    """
    environment = toys.environment() | {"SENT": str(int(number))}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=environment, cwd=tmp_path, check=False)
    assert done.returncode == code


def test_a_second_signal_ends_ranks_that_are_still_saving(tmp_path: Path):
    saving = tmp_path / "saving.py"
    saving.write_text(
        textwrap.dedent(
            """
            import os, signal, time
            from pathlib import Path
            signal.signal(signal.SIGTERM, lambda *_: Path(f"heard {os.getpid()}").touch())
            Path(f"began {os.getpid()}").touch()
            while True:
                time.sleep(0.05)
            """
        )
    )
    script = """
        import sys
        from refinesynth.train.config import TrainConfig
        from refinesynth.train.engine import launcher
        launcher.rank_command = lambda _settings: [sys.executable, "saving.py"]
        launcher.check_inputs = lambda _config, _sources: None
        launcher.launch(TrainConfig(data=("x",), model="x", output="x", processes=2))
    """
    started = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], env=toys.environment(), cwd=tmp_path)
    for said in ("began", "heard"):
        until = time.monotonic() + 60
        while len(list(tmp_path.glob(f"{said} *"))) < 2:
            assert time.monotonic() < until
            time.sleep(0.02)
        started.send_signal(signal.SIGTERM)
    assert started.wait(timeout=60) == -signal.SIGTERM
    for path in tmp_path.glob("began *"):
        pid = int(path.name.split()[1])
        until = time.monotonic() + 10
        while Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
            assert time.monotonic() < until
            time.sleep(0.02)


def test_what_came_here_is_what_the_result_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The ranks get SIGTERM for whatever that is."""
    stand_in(
        monkeypatch,
        """
        import os, signal, sys, time
        from pathlib import Path
        from refinesynth.train import ranks
        from refinesynth.train.events import TrainResult
        def end(*_):
            ranks.write_outcome(TrainResult(Path("x"), 3, 9, 0.5, 1.25, signal=15))
            sys.exit(1)
        signal.signal(signal.SIGTERM, end)
        time.sleep(0.5)
        if os.environ["RANK"] == "0":
            os.kill(os.getppid(), signal.SIGINT)
        time.sleep(60)
        """,
    )
    result = launch(two(tmp_path))
    assert (result.signal, result.steps) == (signal.SIGINT, 3)


def test_another_rank_is_heard_where_the_first_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(ranks.OUTCOME, str(tmp_path / "outcome.json"))
    ranks.write_outcome(TrainingError("the disk of rank 1"), is_main=False)
    ranks.write_outcome(TrainingError("what follows from it"), is_main=False)
    with pytest.raises(TrainingError, match="the disk of rank 1"):
        ranks.read_outcome(tmp_path / "outcome.json")
    ranks.write_outcome(TrainingError("what rank 0 says"))
    with pytest.raises(TrainingError, match="what rank 0 says"):
        ranks.read_outcome(tmp_path / "outcome.json")


def test_a_rank_and_a_single_process_train_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[TrainConfig] = []
    monkeypatch.setattr(rank_training, "run_training", lambda config, events, sources: seen.append(config))
    launch(toys.config(tmp_path))
    monkeypatch.setenv("RANK", "0")
    launch(two(tmp_path))
    assert [config.processes for config in seen] == [1, 2]


def test_nothing_is_told_where_nobody_waits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(ranks.OUTCOME, raising=False)
    ranks.write_outcome(TrainingError("nobody hears this"))
    assert not ranks.is_reported_by_launcher()


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


def test_a_signal_to_the_command_makes_both_ranks_save_and_they_go_on_from_there(warm: Path, made: Path):
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
        [str(warm / "python"), "-m", "refinesynth.train", "--config", str(file)],
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
    started.send_signal(signal.SIGINT)
    said, _ = started.communicate(timeout=120)
    assert started.returncode == 130, said
    assert said.index("interrupted: finishing this step") < said.index("checkpoint-"), said
    assert "death signal" not in said
    assert "Traceback" not in said
    (saved,) = (made / "out" / "checkpoints").iterdir()
    step = int(saved.name.removeprefix("checkpoint-"))
    assert 0 < step < 180
    # In place now, as one process: copies are copies, however many.
    result = launch(settings.model_copy(update={"processes": 1, "max_steps": None}))
    assert result.signal is None
    assert (result.resumed_from, result.steps) == (step, 180)
    assert (made / "out" / "model.safetensors").exists()
