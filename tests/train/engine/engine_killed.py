"""Trainings that are ended from outside, each in a process of its own, forked from one that has loaded the libraries.

    python engine_killed.py FOLDER

For every case in `CASES`: one training in one go, and one that is ended at a step and started again with the same
settings. Writes FOLDER/outcomes.json: for each case the exit statuses, what was told, and where the two models are.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import engine_toys as toys
import torch
from safetensors.torch import load_file

from refinesynth.errors import RefinesynthError
from refinesynth.train.config import TrainConfig
from refinesynth.train.engine.rank_training import run_training

LORA = {"rank": 2, "alpha": 4, "dropout": 0.2}
CASES: dict[str, dict[str, Any]] = {
    # 5 steps an epoch, 15 in all.
    "mid-epoch": {"save_every": 2, "end": (signal.SIGKILL, "told", 7)},
    "epoch's end": {"save_every": 5, "end": (signal.SIGKILL, "told", 7)},
    "while saving": {"save_every": 2, "end": (signal.SIGKILL, "saving", 6)},
    "at the very end": {"save_every": 2, "max_steps": 8, "end": (signal.SIGKILL, "saved", 8)},
    "adapters": {"save_every": 2, "lora": LORA, "end": (signal.SIGKILL, "told", 5)},
    "evaluating": {"save_every": 2, "evaluate_every": 3, "held_out": 0.1, "end": (signal.SIGKILL, "told", 9)},
    "unpacked": {"save_every": 3, "packing": False, "end": (signal.SIGKILL, "told", 5)},
    "terminated": {"end": (signal.SIGTERM, "told", 4)},
    "interrupted": {"save_every": 100, "end": (signal.SIGINT, "told", 4)},
}


class Ending(toys.NullEvents):
    """Sends this process a signal when a step is told, or when its checkpoint is."""

    def __init__(self, number: int = 0, when: str = "never", step: int = -1) -> None:
        self._number, self._when, self._step = number, when, step
        self.notes: list[str] = []

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        del metrics
        if self._when == "told" and step == self._step:
            os.kill(os.getpid(), self._number)

    def saved(self, path: Path) -> None:
        if self._when == "saved" and path.name == f"checkpoint-{self._step}":
            os.kill(os.getpid(), self._number)

    def note(self, text: str) -> None:
        self.notes.append(text)


def train(config: TrainConfig, told: Ending) -> dict[str, Any]:
    store, held_out = toys.store(20, seed=3), toys.store(5, seed=9) if config.held_out else None
    ready = toys.ready(config, store, held_out)
    try:
        result = run_training(config, events=told, inputs=ready)
    except RefinesynthError as exc:
        return {"error": f"{type(exc).__name__}: {exc}", "notes": told.notes}
    return {
        "steps": result.steps,
        "signal": result.signal,
        "resumed_from": result.resumed_from,
        "notes": told.notes,
        "loss": result.loss,
        "held_out": dict(result.held_out),
        "best_step": result.best_step,
    }


def in_a_fork(work: Any) -> tuple[int, dict[str, Any] | None]:
    """The wait status, and what `work` returned unless it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = json.dumps(work())
            os.write(writing, said.encode())
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a fork must not go on as its parent
            traceback.print_exc()
            os._exit(70)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    return os.waitpid(child, 0)[1], json.loads(said) if said else None


def broken_in_the_middle(step: int) -> None:
    """From now on, the checkpoint of `step` is killed behind its model and before its mark."""
    from refinesynth.train.engine import checkpoints

    def kill(folder: Path, **_: Any) -> None:
        assert (folder / "model.safetensors").exists()
        assert folder.name == f"checkpoint-{step}"
        os.kill(os.getpid(), signal.SIGKILL)

    sound = checkpoints.mark

    def mark(folder: Path, **told: Any) -> None:
        (kill if folder.name == f"checkpoint-{step}" else sound)(folder, **told)

    checkpoints.mark = mark


def case(folder: Path, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    number, when, step = settings["end"]
    fields = {"epochs": 3, "model": str(folder / "toy"), "log_every": 1} | {
        key: value for key, value in settings.items() if key != "end"
    }
    # How often it saves decides nothing: trainings that differ in nothing else are compared with one and the same.
    key = "".join(f"{name}={value} " for name, value in sorted(fields.items()) if name not in {"save_every", "model"})
    once = toys.config(folder / f"once {key}", **fields)
    twice = toys.config(folder / f"{name} twice", **fields)

    def ended() -> dict[str, Any]:
        if when == "saving":
            broken_in_the_middle(step)
        return train(twice, Ending(number, when, step))

    if not Path(once.output).exists():
        status, _ = in_a_fork(lambda: train(once, Ending()))
        assert status == 0
    return {
        "ended": in_a_fork(ended),
        "again": in_a_fork(lambda: train(twice, Ending())),
        "apart": apart(Path(once.output), Path(twice.output)),
    }


def apart(one: Path, other: Path) -> float | None:
    """The largest difference of two saved models' weights; None if there is none of them."""
    names = [name for name in ("model.safetensors", "adapter_model.safetensors") if (one / name).exists()]
    if not names or not (other / names[0]).exists():
        return None
    first, second = load_file(one / names[0]), load_file(other / names[0])
    return max(float((first[key] - second[key]).abs().max()) for key in first)


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    (folder / "toy").mkdir(parents=True)
    toy = toys.model()
    toy.save_pretrained(folder / "toy")
    outcomes: dict[str, Any] = {name: case(folder, name, settings) for name, settings in CASES.items()}
    other = toys.config(
        folder / "mid-epoch twice",
        epochs=3,
        model=str(folder / "toy"),
        log_every=1,
        save_every=2,
        learning_rate=5e-3,
        seed=1,
    )
    outcomes["other settings"] = in_a_fork(lambda: train(other, Ending()))
    (folder / "outcomes.json").write_text(json.dumps(outcomes))


if __name__ == "__main__":
    main()
