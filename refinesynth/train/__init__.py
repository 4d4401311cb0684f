"""Refinement tuning: a causal language model learns from the repair, never from the mistake (paper, section 3.3).

    trainer = refinesynth.train.Trainer(model="Qwen/Qwen3-4B-Instruct-2507", data="runs/first", output="models/first")
    trainer.train()

Names are imported on first use: `import refinesynth.train` imports no torch.
"""

from typing import TYPE_CHECKING

from refinesynth.lazy_imports import check_installed, lazy_names

if TYPE_CHECKING:
    from refinesynth.train.config import LoraConfig, TrainConfig
    from refinesynth.train.events import Events, TrainResult
    from refinesynth.train.labelled_conversation import Conversation, LossOn, Turn, TurnLabel
    from refinesynth.train.layered_settings import RECIPES, Layered, layered
    from refinesynth.train.plan import Plan
    from refinesynth.train.trainer import TokenFile, Trainer, write_tokens

__all__ = [
    "RECIPES",
    "Conversation",
    "Events",
    "Layered",
    "LoraConfig",
    "LossOn",
    "Plan",
    "TokenFile",
    "TrainConfig",
    "TrainResult",
    "Trainer",
    "Turn",
    "TurnLabel",
    "layered",
    "write_tokens",
]


_find = lazy_names(__name__)


def __getattr__(name: str) -> object:
    if name in {"TokenFile", "Trainer", "trainer", "write_tokens"}:
        check_installed("train", "numpy")
    return _find(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
