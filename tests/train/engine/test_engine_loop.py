"""The loop on accelerate against a training loop that is written out by hand, and against itself, resumed."""

from pathlib import Path
from typing import Any

import engine_toys as toys
import pytest
import torch
from accelerate import Accelerator
from test_engine_reference import by_hand

from refinesynth.train.engine.layout import choose_layout
from refinesynth.train.engine.loop import Stopped, train
from refinesynth.train.engine.resuming import Resumable
from refinesynth.train.engine.saving import Task

pytestmark = pytest.mark.train

ASKED: dict[str, Any] = {
    "precision": "fp64",
    "epochs": 2.6,  # ends within an epoch
    "batch_size": 4,
    "warmup": 2,
    "weight_decay": 0.1,
    "adam_betas": (0.8, 0.95),
    "max_grad_norm": 0.5,
    "learning_rate": 3e-3,
    "max_length": 48,
}


def looped(
    folder: Path, toy: Any, store: Any, told: list[float], *, start: Path | None = None, **fields: Any
) -> Stopped:
    asked = toys.config(folder, **ASKED | fields)
    task = Task(store, None, toys.schedule(store, asked), {}, asked.keep, asked.early_stop, None)

    class Kept(toys.NullEvents):
        def logged(self, step: int, metrics: Any) -> None:
            told.append(metrics["loss"])

    def save(state: Resumable) -> Path:
        state.write(path := folder / f"checkpoint-{state.progress.step}", adapters=False)
        return path

    return train(
        toy,
        task,
        asked,
        Accelerator(cpu=True),
        lay_out=lambda call: choose_layout(call, packing=asked.packing),
        events=Kept(),
        save=save,
        resume=None if start is None else lambda state: state.read(start, adapters=False),
        chunk_elements=5 * toys.VOCABULARY,
    )


def model(*, tied: bool = False) -> Any:
    return toys.model(dtype=torch.float64, tie_word_embeddings=tied)


@pytest.mark.parametrize("tied", [False, True])
def test_steps_are_those_of_a_loop_by_hand(tmp_path: Path, tied: bool):
    store, told = toys.store(11, seed=3), list[float]()
    schedule = toys.schedule(store, toys.config(tmp_path, **ASKED))
    order = [schedule.conversations(*divmod(step, schedule.steps_per_epoch)).tolist() for step in range(8)]
    looped(tmp_path, toy := model(tied=tied), store, told)
    wanted = by_hand(other := model(tied=tied), store, order, rate=3e-3, warmup=2, decay=0.1)
    assert told == pytest.approx(wanted, abs=1e-12)
    for one, two in zip(toy.parameters(), other.parameters(), strict=True):
        assert torch.allclose(one, two, rtol=0, atol=1e-9)


@pytest.mark.parametrize("step", [2, 3, 7])
def test_resumed_it_is_the_same_to_the_last_bit(tmp_path: Path, step: int):
    store, whole, rest = toys.store(11, seed=3), list[float](), list[float]()
    looped(tmp_path / "whole", one := model(), store, whole, save_every=1)
    stopped = looped(tmp_path / "again", two := model(), store, rest, start=tmp_path / "whole" / f"checkpoint-{step}")
    assert stopped.progress.step == 8
    assert rest == whole[step:]
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
