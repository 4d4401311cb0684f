"""What a training gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TrainResult:
    """How a training ended and where its model is."""

    output: Path
    """The folder; it holds the model, unless the training was interrupted."""
    steps: int
    """Optimizer steps done, those before a resume included."""
    planned_steps: int
    """Optimizer steps that were to be done."""
    epochs: float
    """Passes over the data done."""
    loss: float
    """Mean training loss per trained token over the last logged steps, in nats."""
    held_out: Mapping[str, float] = field(default_factory=dict[str, float])
    """The last evaluation of the model that was kept, by the names in `train/events.py`; empty without one."""
    best_step: int | None = None
    """The step whose model was kept, if evaluations chose one."""
    stopped_early: bool = False
    """Evaluations got no better (`early_stop`)."""
    signal: int | None = None
    """The signal that interrupted it (15: SIGTERM); a checkpoint was saved, and the same command goes on from there."""
    resumed_from: int | None = None
    """The step it went on from, if it was resumed."""
