"""How a training ends, and what of it is kept: early, after a signal, with a best checkpoint that was moved or is
damaged."""

import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import engine_toys as toys
import pytest
import torch

from refinesynth.errors import TrainingError
from refinesynth.train.engine import checkpoints
from refinesynth.train.engine.loop import Interruption

pytestmark = pytest.mark.train


class Told(toys.Kept):
    """Can send a signal to its own process."""

    def __init__(self, step: int = -1, *signals: int) -> None:
        super().__init__()
        self.step, self.signals = step, signals

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        del metrics
        if step == self.step:
            for number in self.signals:
                os.kill(os.getpid(), number)

    @property
    def losses(self) -> list[float]:
        return [metrics["loss"] for _, metrics in self.evaluations]


def overfitting(output: Path, told: Told | None = None, **fields: Any) -> Any:
    """Its held-out loss falls for some epochs of two steps, and rises then."""
    settings = {"epochs": 10, "learning_rate": 1e-2, "held_out": 0.1, "save_every": "epoch", "keep": 9} | fields
    asked = toys.config(output, **settings)
    return toys.loop(toys.model(), toys.store(8), asked, held_out=toys.store(6, seed=5), events=told)


def test_the_best_is_found_where_the_folder_is_now_and_the_last_is_kept_where_it_is_damaged(tmp_path: Path):
    first = overfitting(tmp_path / "here")
    first.train()
    (tmp_path / "here").rename(tmp_path / "there")
    newest, _ = checkpoints.find_newest(tmp_path / "there" / "checkpoints")
    assert newest is not None
    told = Told()
    again = overfitting(tmp_path / "there", told)
    again.train(newest.path)
    assert again.progress.best is not None
    best = again.checkpoints.path(again.progress.best[0])
    assert best == tmp_path / "there" / "checkpoints" / f"checkpoint-{first.progress.best[0]}"
    last = again.model.lm_head.weight.detach().clone()
    shutil.copy(best / "optimizer.pt", tmp_path / "kept")
    (best / "optimizer.pt").unlink()
    again.checkpoints.restore_best(again.progress)
    assert "cannot be kept: optimizer.pt is missing" in told.notes[-1]
    assert torch.equal(again.model.lm_head.weight, last)
    shutil.copy(tmp_path / "kept", best / "optimizer.pt")
    again.checkpoints.restore_best(again.progress)
    assert not torch.equal(again.model.lm_head.weight, last)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt"])
def test_large_files_that_are_damaged_inside_are_said_to_be_by_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.setattr(checkpoints, "_MAX_HASHED_BYTES", 0)
    settings = toys.config(tmp_path, save_every="epoch")
    toys.loop(toys.model(), toys.store(8), settings).train()
    newest, _ = checkpoints.find_newest(tmp_path / "checkpoints")
    assert newest is not None
    path = newest.path / name
    path.write_bytes(b"\0" * path.stat().st_size)
    assert isinstance(checkpoints.read(newest.path), checkpoints.Checkpoint)
    with pytest.raises(TrainingError, match=r"checkpoint-2 cannot be read.*Remove that folder"):
        toys.loop(toys.model(), toys.store(8), settings).train(newest.path)


def test_a_signal_is_answered_at_once_and_two_at_a_time_are_one(tmp_path: Path):
    told = Told(3, signal.SIGINT, signal.SIGINT)
    made = toys.loop(toys.model(), toys.store(8), toys.config(tmp_path, epochs=5), events=told)
    with made.interruption.watched():
        made.train()
    assert made.interruption.signal == signal.SIGINT
    assert [note.partition(":")[0] for note in told.notes] == ["interrupted"]
    assert made.progress.step in {3, 4}


@pytest.fixture
def _usual() -> Iterator[None]:
    """Another test, or a library, may have left another handler."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


@pytest.mark.usefixtures("_usual")
def test_a_second_signal_has_its_usual_effect(monkeypatch: pytest.MonkeyPatch):
    now = iter([0.0, 9.0])
    monkeypatch.setattr("refinesynth.train.engine.loop.monotonic", lambda: next(now))
    interruption = Interruption([].append)

    def twice() -> None:
        with interruption.watched():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        twice()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(("number", "batch_size"), [(1, 64), (3, 64), (3, 1)])
def test_few_conversations_are_trained_on_all_the_same(tmp_path: Path, number: int, batch_size: int):
    told = Told()
    asked = toys.config(tmp_path, batch_size=batch_size, epochs=3, held_out=1)
    held_out = toys.TokenStore([toys.example(7, (toys.TurnLabel.CORRECT,))])  # and no mistake in it
    made = toys.loop(toys.model(), toys.store(number), asked, held_out=held_out, events=told)
    made.train()
    assert made.progress.step == 3 * -(-number // batch_size)
    assert len(told.losses) == 3
    assert told.losses[-1] != told.losses[0]
