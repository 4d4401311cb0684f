"""The four trainings of the paper's ablation table, and what it found."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refinesynth.train import Trainer, TrainResult


@dataclass(frozen=True)
class Variant:
    """One row of the table."""

    name: str
    paper: tuple[float, float]
    """Its success and progress, in percent: means over ALFWorld, BabyAI, SciWorld, PDDL and Jericho, 8,000
    trajectories."""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """What it trains differently."""


VARIANTS = (
    Variant("full", (24.0, 42.0)),
    Variant("without refinement loss", (19.9, 36.1), {"loss_on": "no_refinement_turns"}),
    Variant("without refinement data", (19.4, 35.2), {"without_refinement": True}),
    Variant("with erroneous loss", (13.9, 28.2), {"loss_on": "all_turns"}),
)


@dataclass(frozen=True)
class Sizes:
    """How much of everything; the same for all variants."""

    seeds: int = 3
    conversations: int = 1_500
    """Trajectories to learn from, each in a world of its own."""
    epochs: float = 2.0
    worlds: int = 64
    """Held-out worlds that every model plays."""
    width: int = 128
    layers: int = 3

    @classmethod
    def quick(cls) -> "Sizes":
        """Enough to see that everything runs; far too little to learn to play."""
        return cls(seeds=1, conversations=150, epochs=1.0, worlds=10)


BATCH = 3
"""Conversations per optimizer step: small steps, many of them, because looking things up is learned late."""
LEARNING_RATE = 2e-3
MAX_LENGTH = 1_024
"""Tokens; no trajectory of these worlds is longer."""


def tuned(
    variant: Variant, *, data: Path, model: Path, output: Path, sizes: Sizes, seed: int, device: str
) -> TrainResult:
    """Train one variant from the same untrained model, on the same conversations in the same order."""
    trainer = Trainer(
        model=model,
        data=data,
        output=output,
        max_length=MAX_LENGTH,
        tokens_per_pack=2 * MAX_LENGTH,
        held_out=0,
        epochs=sizes.epochs,
        batch_size=BATCH,
        learning_rate=LEARNING_RATE,
        warmup=0.05,
        adam_betas=(0.9, 0.95),
        device="cpu" if device == "cpu" else "auto",
        precision="fp32",
        gradient_checkpointing=False,
        seed=seed,
        evaluate_every="never",
        save_every="never",
        plots=False,
        resume="never",
        **variant.settings,
    )
    return trainer.train()
