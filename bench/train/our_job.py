"""The load in refinesynth.train: python -m bench.train.our_job LOAD.json."""

import sys
from pathlib import Path
from typing import Any, cast

from transformers import trainer as library

from bench.train.load import Load
from bench.train.second_epoch import stopwatch
from refinesynth.train import Trainer
from refinesynth.train.events import NullEvents


def main(load: Load) -> None:
    on_gpu = load.device == "cuda"
    watch = stopwatch(load.device)
    # The library's own place for a callback of every trainer, so that all are timed alike.
    cast("list[Any]", library.DEFAULT_CALLBACKS).append(watch)
    Trainer(
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
        log_every=10_000,
        resume="never",
    ).train(events=NullEvents())
    load.answer(watch)


if __name__ == "__main__":
    main(Load.read(sys.argv[1]))
