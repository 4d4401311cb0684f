"""Events of a training while it goes on, the names of its metrics, and its result.

Events are called on rank 0 alone, between steps. An implementation that raises ends the training.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from refinesynth.train.plan import Plan

# Names in the metrics of `logged`; means over the steps since the last line.
LOSS: Final = "loss"
"""Mean loss per trained token, in nats, over all ranks (equation 1); in `evaluated`: on held-out trained tokens."""
LEARNING_RATE: Final = "learning_rate"
GRAD_NORM: Final = "grad_norm"
"""Before clipping."""
EPOCH: Final = "epoch"
"""Passes over the data so far, with a fraction."""
TOKENS_PER_SECOND: Final = "tokens_per_second"
"""Tokens that went through the model, padding left out, over all ranks."""
TRAINED_TOKENS_PER_SECOND: Final = "trained_tokens_per_second"
"""Of these, those that gave a loss."""
MEMORY: Final = "memory_gib"
"""Most memory allocated on one GPU so far, in GiB; absent on a CPU."""

# Names in the metrics of `evaluated`; mean loss per token, in nats. A kind that is not there has no entry.
LOSS_CORRECT: Final = "loss_correct"
LOSS_REFINEMENT: Final = "loss_refinement"
LOSS_MISTAKE: Final = "loss_mistake"
"""Measured, never trained on by default: it should not fall."""
LOSS_OF_SOURCE: Final = "loss/"
"""Before a source's label: the loss on its held-out trained tokens, where data has more than one source
(`loss/chat.jsonl`)."""


class Events(Protocol):
    """Receives the events of a training."""

    def planned(self, plan: Plan) -> None:
        """Before the first step; also when it is resumed."""

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        """Every `log_every` optimizer steps, and at the last one."""

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """After an evaluation on what is held out."""

    def saved(self, path: Path) -> None:
        """A checkpoint, or the final model, lies whole at `path`."""

    def note(self, text: str) -> None:
        """A remark for a person, in one or two sentences; may hold untrusted text."""


class NullEvents(Events):
    """Ignores all events; a base for receivers of some events alone."""


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

    def as_json(self) -> dict[str, Any]:
        """Everything in it."""
        return {**asdict(self), "output": str(self.output)}
