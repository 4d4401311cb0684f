"""The model card: a README.md that the Hugging Face Hub understands, beside the tuned model.

Names of data and models are text that others wrote: in the YAML header they are quoted by PyYAML, in the body they
stand in code spans, so that neither becomes anything else.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from refinesynth.extras import require
from refinesynth.text.markdown import code_in_table
from refinesynth.train import events
from refinesynth.train.config import TrainConfig
from refinesynth.train.conversation import LossOn
from refinesynth.train.passthrough import deciding
from refinesynth.train.plan import Plan
from refinesynth.train.result import TrainResult
from refinesynth.train.settings import published

_TEMPLATE: Final = Path(__file__).with_name("card.md.jinja")
_HUB_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+")

LOSSES: Final[Mapping[LossOn, str]] = {
    LossOn.REFINEMENT: "Refinement loss (equation 1 of the paper): every assistant turn gives loss but those that were flagged as "
    "mistakes. A mistake stays in the context, so that the turn that repairs it is learned from it.",
    LossOn.ALL_TURNS: "All assistant turns give loss, mistakes included (the paper's ablation with erroneous loss).",
    LossOn.NO_REFINEMENT_TURNS: "Neither mistakes nor the turns that repair them give loss (the paper's ablation without refinement "
    "loss).",
}
METRIC_TITLES: Final[Mapping[str, str]] = {
    events.LOSS: "trained tokens",
    events.LOSS_CORRECT: "correct turns",
    events.LOSS_REFINEMENT: "refinements",
    events.LOSS_MISTAKE: "mistakes (not trained on)",
}
"""What the held-out losses are of, in the order in which they are shown."""

_SHOWN: Final = (
    "revision",
    "tokenizer_revision",
    "learning_rate",
    "schedule",
    "warmup",
    "batch_size",
    "epochs",
    "max_steps",
    "max_length",
    "over_length",
    "weight_decay",
    "max_grad_norm",
    "seed",
)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the card says."""

    config: TrainConfig
    plan: Plan
    result: TrainResult
    versions: Mapping[str, str | int]


def shown_name(name: str) -> str:
    """A hub name or relative path as it was given; of an absolute path, which may name a user, the end."""
    return Path(name).name if Path(name).is_absolute() or name.startswith("~") else name


def header(facts: ModelFacts) -> str:
    """The YAML header, without its fences."""
    lora = facts.config.lora is not None
    base = published(facts.plan.model.name)[0]
    is_hub_name = _HUB_NAME.fullmatch(base) is not None and not Path(base).exists()
    values: dict[str, Any] = {
        "library_name": "peft" if lora else "transformers",
        "pipeline_tag": "text-generation",
        **({"base_model": base} if is_hub_name else {}),
        "tags": ["refinesynth", "refinement-tuning", "agent", *(["lora"] if lora else [])],
    }
    text: str = require("yaml", "train").safe_dump(values, sort_keys=False, allow_unicode=False)
    return text.rstrip("\n")


def render_card(facts: ModelFacts) -> str:
    """The card's text."""
    from jinja2 import Environment, StrictUndefined

    # Markdown, not HTML: all text of others goes through the filter `code`.
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)  # noqa: S701
    environment.filters.update(code=code_in_table, name=shown_name, json=json.dumps, count=lambda number: f"{number:,}")
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    config = facts.config
    settings = {name: getattr(config, name) for name in _SHOWN if getattr(config, name) is not None}
    settings |= {f"trainer.{name}": value for name, value in deciding(config.trainer).items()}
    if config.max_steps is not None:
        settings.pop("epochs")
    losses = facts.result.held_out
    by_source = {name: code_in_table(of) for name in losses if (of := name.removeprefix(events.LOSS_OF_SOURCE)) != name}
    held_out = {
        what: f"{losses[name]:.4f}"
        for name, what in {**METRIC_TITLES, **by_source}.items()
        if math.isfinite(losses.get(name, math.nan))
    }
    return (
        template.render(
            facts=facts,
            base=published(facts.plan.model.name)[0],
            header=header(facts),
            title=shown_name(config.output.rstrip("/")),
            loss=LOSSES[config.loss_on],
            settings=settings,
            held_out=held_out,
            counts=facts.plan.sizes.counts,
        ).strip()
        + "\n"
    )
