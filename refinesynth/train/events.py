"""Events of a training, the names of its metrics, and its result.

Events are called on rank 0 alone, between steps. An exception from one ends the training.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from refinesynth.train.plan import Plan

# Names in the metrics of `logged`; means over the steps since the last line.
LOSS: Final = "loss"
"""Mean loss per trained token, in nats, over all ranks (equation 1); in `evaluated`: of held-out trained tokens."""
LEARNING_RATE: Final = "learning_rate"
GRAD_NORM: Final = "grad_norm"
"""Before clipping."""
EPOCH: Final = "epoch"
"""Passes over the data so far, with a fraction."""
TOKENS_PER_SECOND: Final = "tokens_per_second"
"""Tokens through the model per second, without padding, over all ranks."""
TRAINED_TOKENS_PER_SECOND: Final = "trained_tokens_per_second"
"""Likewise, tokens that gave a loss."""
MEMORY: Final = "memory_gib"
"""Peak of memory allocated on one GPU, in GiB; absent on CPUs."""

# Names in the metrics of `evaluated`; mean loss per token, in nats. A kind that is not there has no entry.
LOSS_CORRECT: Final = "loss_correct"
LOSS_REFINEMENT: Final = "loss_refinement"
LOSS_MISTAKE: Final = "loss_mistake"
"""Measured, not trained by default: it should not fall."""
LOSS_OF_SOURCE: Final = "loss/"
"""Prefix of a source's label: loss on its held-out trained tokens, if there are several sources (`loss/chat.jsonl`)."""


class Events(Protocol):
    """Receiver of the events of a training."""

    def planned(self, plan: Plan) -> None:
        """Before the first step, also of a resumed training."""

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        """Every `log_every` optimizer steps and at the last one."""

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """After an evaluation on held-out data."""

    def saved(self, path: Path) -> None:
        """A checkpoint or the final model is complete at `path`."""

    def note(self, text: str) -> None:
        """A remark of one or two sentences for the user; may hold untrusted text."""


class NullEvents(Events):
    """Receiver that ignores all events; a base for others."""


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Outcome of a training."""

    output: Path
    """Output folder; it holds the model, unless the training was interrupted."""
    steps: int
    """Optimizer steps done, including those before checkpoints."""
    planned_steps: int
    epochs: float
    """Passes over the data."""
    loss: float
    """Mean training loss per trained token over the last logged steps, in nats."""
    held_out: Mapping[str, float] = field(default_factory=dict[str, float])
    """Last evaluation of the kept model, by the names in `train/events.py`; empty without one."""
    best_step: int | None = None
    """Step of the kept model, if evaluations chose one."""
    stopped_early: bool = False
    """`early_stop` ended the training."""
    signal: int | None = None
    """Signal that interrupted it (15: SIGTERM); a checkpoint is saved, and the same command resumes."""
    resumed_from: int | None = None
    """Step of the checkpoint that it resumed from, if any."""

    def as_json(self) -> dict[str, Any]:
        """All fields, the path as text."""
        return {**asdict(self), "output": str(self.output)}
