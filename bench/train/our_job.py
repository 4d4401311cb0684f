"""The load in refinesynth.train: python -m bench.train.our_job LOAD.json."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.train.load import Load
from bench.train.second_epoch import Stopwatch
from refinesynth.train import Trainer
from refinesynth.train.events import NullEvents
from refinesynth.train.plan import Plan


class Passes(NullEvents):
    """Runs the stopwatch: a line is logged at the end of each pass and nowhere else."""

    def __init__(self, watch: Stopwatch, model: Path) -> None:
        self._watch, self._model = watch, model

    def planned(self, plan: Plan) -> None:
        del plan
        weights = sum(file.stat().st_size for file in self._model.glob("*.safetensors"))
        self._watch.training_begins(weights=weights / 2**20)

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        if metrics["epoch"] < 2:
            self._watch.pass_begins(step)
        else:
            self._watch.second_pass_ends(step)


def main(load: Load) -> None:
    on_gpu = load.device == "cuda"
    watch = Stopwatch(load.device)
    conversations = len(Path(load.data).read_bytes().splitlines())
    shutil.rmtree(Path(load.out) / "model", ignore_errors=True)
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
        log_every=-(-conversations // load.conversations),
    ).train(events=Passes(watch, Path(load.model)))
    load.answer(watch)


if __name__ == "__main__":
    main(Load.read(sys.argv[1]))
