"""The load in refinesynth.train: python -m bench.train.our_job LOAD.json."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path

import torch

from bench.train.load import Load
from refinesynth.train import Trainer
from refinesynth.train.events import Silent


class _Stopwatch(Silent):
    """When each optimizer step was done."""

    def __init__(self, device: str) -> None:
        self._device = device
        self.done: dict[int, float] = {}

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        del metrics
        if self._device == "cuda":
            torch.cuda.synchronize()
        self.done[step] = time.perf_counter()


def main(load: Load) -> None:
    on_gpu = load.device == "cuda"
    watch = _Stopwatch(load.device)
    trainer = Trainer(
        model=load.model,
        data=load.data,
        output=Path(load.out) / "model",
        max_length=load.max_length,
        held_out=0,
        epochs=2,
        batch_size=load.conversations,
        packing=load.packing,
        learning_rate=1e-4,
        precision="bf16" if on_gpu else "fp32",
        gradient_checkpointing=on_gpu,
        device="auto" if on_gpu else "cpu",
        evaluate_every="never",
        save_every="never",
        log_every=1,
        plots=False,
        resume="never",
    )
    steps = trainer.train(events=watch).steps
    half = steps // 2
    load.answer(seconds=watch.done[steps] - watch.done[half], steps=steps - half)


if __name__ == "__main__":
    main(Load.read(sys.argv[1]))
