"""Events of a training, the names of its metrics, and its result.

Events are called on rank 0 only, between steps; a signal's note comes at once. Exceptions in them end the training.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from refinesynth.train.plan import Plan

# Names in the metrics of `logged`. Loss and speeds cover the steps since the last call.
LOSS: Final = "loss"
"""Mean loss per trained token, in nats, over all ranks (equation 1); in `evaluated`: of held-out trained tokens."""
LEARNING_RATE: Final = "learning_rate"
GRAD_NORM: Final = "grad_norm"
"""Gradient norm of the last step, before clipping."""
EPOCH: Final = "epoch"
"""Passes over the data so far, with decimals."""
TOKENS_PER_SECOND: Final = "tokens_per_second"
"""Tokens per second in the model, without padding, over all ranks."""
TRAINED_TOKENS_PER_SECOND: Final = "trained_tokens_per_second"
"""Tokens with a loss per second, over all ranks."""
MEMORY: Final = "memory_gib"
"""Peak of memory allocated on one GPU, in GiB; absent on CPUs."""

# Names in the metrics of `evaluated`: mean loss per token, in nats. Kinds without tokens have no entry.
LOSS_CORRECT: Final = "loss_correct"
LOSS_REFINEMENT: Final = "loss_refinement"
LOSS_MISTAKE: Final = "loss_mistake"
"""Loss on mistakes, which are not trained by default: it should not fall."""
SOURCE_LOSS: Final = "loss/"
"""Prefix of a source's name (`loss/chat.jsonl`): loss on its held-out trained tokens, if there are several sources."""


class Events(Protocol):
    """Receiver of the events of a training."""

    def planned(self, plan: Plan) -> None:
        """Called before the first step, also of a resumed training."""

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        """Called every `log_every` optimizer steps and after the last step."""

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """Called after an evaluation on held-out data."""

    def saved(self, path: Path) -> None:
        """Called when a checkpoint or the final model is complete at `path`."""

    def note(self, text: str) -> None:
        """Called with a note of one or two sentences for the user, which may contain untrusted text."""


class NullEvents(Events):
    """Receiver that ignores all events; base class for partial receivers."""


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Outcome of a training."""

    output: Path
    """Output folder. It contains the model, unless the training was interrupted."""
    steps: int
    """Optimizer steps done, including steps before a resumption."""
    planned_steps: int
    epochs: float
    """Passes over the data."""
    loss: float
    """Mean training loss per trained token over the last logged steps, in nats."""
    held_out: Mapping[str, float] = field(default_factory=dict[str, float])
    """Last evaluation of the kept model, by the names in `train/events.py`; empty without an evaluation."""
    best_step: int | None = None
    """Step of the best evaluation, if the model of that step is kept; else None."""
    signal: int | None = None
    """Signal that interrupted the training (15: SIGTERM). A checkpoint is saved, and the same command resumes."""
    resumed_from: int | None = None
    """Step of the checkpoint from which the training resumed; None if it started new."""

    def as_json(self) -> dict[str, Any]:
        """All fields, with the path as text."""
        return {**asdict(self), "output": str(self.output)}
