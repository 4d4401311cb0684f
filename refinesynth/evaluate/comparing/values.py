"""What a comparison tells: plain values. Scores are shares of one, as logs hold them; tables show them in per cent."""

from collections.abc import Mapping
from dataclasses import dataclass, field

HELD_OUT_TASK = "held-out"
"""What stands in the place of a task where the held-out score is meant."""


@dataclass(frozen=True)
class Estimate:
    """A mean over instances, each of which counts with its own mean over epochs."""

    mean: float
    low: float | None = None
    """Of the 95 % bootstrap interval over instances; None where all gave the same, which says nothing of others."""
    high: float | None = None


@dataclass(frozen=True)
class Spread:
    """A mean over epochs or perturbations, and the standard deviation by both formulas."""

    mean: float
    population: float
    """Divided by their number."""
    sample: float | None
    """Divided by their number less one; None where there is one only."""


@dataclass(frozen=True)
class TaskScores:
    """One task of an evaluation."""

    task: str
    """Benchmark, its argument and the perturbation: `worlds:runs/held-out`, `alfworld P1`."""
    settings: Mapping[str, str]
    """compat, steps, reflexion, temperature and epochs, as far as the log has them."""
    instances: int
    """With at least one episode."""
    of: int
    """Instances that the whole benchmark has."""
    epochs: int
    measures: Mapping[str, Estimate]
    """success, progress and what else the benchmark measures (em, f1)."""
    over_epochs: Mapping[str, Spread]
    """Of the epochs' scores; nothing where there is one epoch."""
    best: Mapping[str, float]
    """Mean over instances of the best epoch; nothing where there is one epoch."""
    pass_hat: Mapping[int, float]
    """k, from 2 on, to the chance that k epochs of one instance all succeed; nothing where there is one epoch."""
    rates: Mapping[str, float | None]
    """How the agent deals with its failures: `Counts.rates` of the sum over all episodes."""


@dataclass(frozen=True)
class HeldOut:
    """The paper's score of four tasks, weighted by their instances."""

    needs: tuple[str, ...] = ()
    """Tasks that are missing, without which there is no score."""
    partial: Mapping[str, str] = field(default_factory=dict[str, str])
    """Task to `5 of 112`, where the instances are not the paper's."""
    measures: Mapping[str, Estimate] = field(default_factory=dict[str, Estimate])


@dataclass(frozen=True)
class Perturbed:
    """A task over its wordings: the original, if it was played, and perturbations."""

    variants: tuple[str, ...]
    """original, P1, ..."""
    measures: Mapping[str, Spread]


@dataclass(frozen=True)
class Evaluation:
    """One folder of logs."""

    name: str
    model: str
    tasks: tuple[TaskScores, ...]
    held_out: HeldOut
    perturbed: Mapping[str, Perturbed]
    """Tasks that were played in more than one wording."""


@dataclass(frozen=True)
class Change:
    """The mean of the second less that of the first, over instances that both have, with a paired two-sided test."""

    difference: Estimate
    p: float
    """Chance of a difference as large where neither is better."""
    test: str


@dataclass(frozen=True)
class Difference:
    """One task in two evaluations."""

    task: str
    first: str
    second: str
    instances: int
    """That both have."""
    measures: Mapping[str, Change]


@dataclass(frozen=True)
class Comparison:
    """All there is to say about some evaluations."""

    evaluations: tuple[Evaluation, ...] = ()
    differences: tuple[Difference, ...] = ()
    """Each evaluation against the first."""
    warnings: tuple[str, ...] = ()
    """What makes figures incomplete, or hard to compare."""
