"""When the trainer logs, evaluates, saves and ends, beyond the library's own rhythm."""

# torch and transformers are typed in part: pyright may not know all of a member that is used here.
# pyright: reportUnknownMemberType=false

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from refinesynth.train.engine.interruption import Interruption


class IntervalsCallback(TrainerCallback):
    """The last step is logged, evaluated and saved regardless of the intervals; a signal ends the training with a
    checkpoint.
    """

    def __init__(self, interruption: Interruption, *, evaluates: bool) -> None:
        self._interruption = interruption
        self._evaluates = evaluates

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_kwargs: Any
    ) -> None:
        """A resumed training has the intervals that are asked for now, and its best checkpoint where the folder is
        now.
        """
        del control
        state.compute_steps(args, state.max_steps)
        if state.best_global_step:
            best = Path(str(args.output_dir)) / f"checkpoint-{state.best_global_step}"
            state.best_model_checkpoint = str(best) if best.is_dir() else None

    def on_step_end(  # pyright: ignore[reportIncompatibleMethodOverride] - one that returns is what the library asks for
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_kwargs: Any
    ) -> TrainerControl:
        """Called on every rank after every optimizer step."""
        saves = args.save_strategy != "no"
        if state.global_step >= state.max_steps:
            control.should_log = True
            control.should_evaluate = self._evaluates and args.eval_strategy != "no"
            control.should_save = saves
            control.should_training_stop = True
        if self._interruption.everywhere(args.device):
            control.should_log = True
            control.should_save = True
            control.should_training_stop = True
        return control
