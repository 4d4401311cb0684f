"""Refinement tuning: a causal language model learns from the repair, never from the mistake (paper, section 3.3).

    trainer = refinesynth.train.Trainer(model="Qwen/Qwen3-4B-Instruct-2507", data="runs/first", output="models/first")
    trainer.train()

Names are imported on first use: `import refinesynth.train` imports no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refinesynth.train.config import LoraConfig, TrainConfig
    from refinesynth.train.events import Events, TrainResult
    from refinesynth.train.labelled_conversation import Conversation, LossOn, Turn, TurnLabel
    from refinesynth.train.layered_settings import RECIPES, Layered, layered
    from refinesynth.train.plan import Plan
    from refinesynth.train.trainer import TokenFile, Trainer, write_tokens

_HOMES = {
    "config": ["LoraConfig", "TrainConfig"],
    "labelled_conversation": ["Conversation", "LossOn", "TurnLabel", "Turn"],
    "events": ["Events", "TrainResult"],
    "layered_settings": ["RECIPES", "Layered", "layered"],
    "plan": ["Plan"],
    "trainer": ["TokenFile", "Trainer", "write_tokens"],
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

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


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(f"refinesynth.train.{_HOME[name]}"), name)
    raise AttributeError(f"module 'refinesynth.train' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
