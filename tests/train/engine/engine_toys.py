"""Toy conversations as tokens, toy models, and a loop on them: everything in a fraction of a second on one core."""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Gemma3Config, LlamaConfig, LlamaForCausalLM
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import PrefixChange

from refinesynth.train.config import TrainConfig
from refinesynth.train.engine.lm_head import pack_batch, token_losses
from refinesynth.train.engine.loading import describe_model
from refinesynth.train.engine.loop import Loop
from refinesynth.train.engine.parallel import Distributed, make_accelerator
from refinesynth.train.engine.rank_training import PreparedTraining
from refinesynth.train.engine.schedule import Schedule
from refinesynth.train.events import Events, NullEvents
from refinesynth.train.labelled_conversation import LossOn, TurnLabel
from refinesynth.train.plan import ComputeSettings, Devices, Sizes, make_plan
from refinesynth.train.tokens import Label, Rendered, Span, TokenStore

__all__ = [
    "Devices",
    "Kept",
    "Label",
    "LlamaForCausalLM",
    "NullEvents",
    "Rendered",
    "TokenStore",
    "TurnLabel",
    "config",
    "environment",
    "example",
    "loop",
    "model",
    "multimodal",
    "pack_batch",
    "ready",
    "schedule",
    "store",
    "token_losses",
]

VOCABULARY = 64
ORDER = (TurnLabel.CORRECT, TurnLabel.MISTAKE, TurnLabel.REFINEMENT)


def environment() -> dict[str, str]:
    """Of a process of its own: without what accelerate and torchrun have left in ours."""
    theirs = ("ACCELERATE_", "FSDP_", "TORCHELASTIC_", "MASTER_", "RANK", "LOCAL_", "WORLD_", "GROUP_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    return kept | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}


def on_two_ranks(warm: Path, script: Path, *arguments: object) -> None:
    """Run a script on two ranks, to its end."""
    command = [warm / "torchrun", "--standalone", "--nproc-per-node", "2", script, *arguments]
    done = subprocess.run(
        [str(part) for part in command], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-20000:]


def example(
    seed: int, turns: Sequence[TurnLabel] = ORDER, loss_on: LossOn = LossOn.REFINEMENT, longest: int = 9
) -> Rendered:
    """A prompt, then turns of an agent with an observation after each."""
    random = np.random.default_rng(seed)
    ids, labels, spans = [int(token) for token in random.integers(0, VOCABULARY, random.integers(2, longest))], [0], []
    labels *= len(ids)
    for turn_label in turns:
        said = random.integers(0, VOCABULARY, random.integers(2, longest)).tolist()
        trains = Label.TRAINED if loss_on.trains(turn_label) else Label.CONTEXT
        label = Label.MISTAKE if turn_label is TurnLabel.MISTAKE and trains is Label.CONTEXT else trains
        spans.append(Span(len(ids), len(ids) + len(said), turn_label))
        seen = random.integers(0, VOCABULARY, random.integers(1, 5)).tolist()
        ids += [*said, *seen]
        labels += [label] * len(said) + [Label.CONTEXT] * len(seen)
    return Rendered(f"t{seed}", np.asarray(ids, np.int32), np.asarray(labels, np.int8), tuple(spans))


SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
"""Of a model of two layers with grouped queries."""
NO_SPECIAL = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))


def store(number: int, *, seed: int = 0, longest: int = 9, loss_on: LossOn = LossOn.REFINEMENT) -> TokenStore:
    """Conversations of one to four turns."""
    random = np.random.default_rng(seed)
    shapes = [tuple(ORDER[k % 3] for k in range(random.integers(1, 5))) for _ in range(number)]
    return TokenStore(example(1000 * seed + k, shape, loss_on, longest) for k, shape in enumerate(shapes))


def model(*, dtype: torch.dtype = torch.float32, seed: int = 0, **changes: Any) -> LlamaForCausalLM:
    """Two layers, grouped queries, wide enough in its weights for differences to show."""
    torch.manual_seed(seed)
    settings: dict[str, Any] = {**SIZES, **NO_SPECIAL, "initializer_range": 0.2, "max_position_embeddings": 4096}
    made: Any = LlamaForCausalLM(LlamaConfig(**settings | changes))
    return made.to(dtype)


def multimodal(**changes: Any) -> Any:
    """Gemma 3 with a vision tower and a projector, as checkpoints of 4B and more have them."""
    torch.manual_seed(0)
    text = {**SIZES, "head_dim": 8}
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    made = Gemma3Config(text_config=text | changes, vision_config=vision, mm_tokens_per_image=4)
    model: Any = AutoModelForCausalLM.from_config(made)
    # As one that was loaded has it: it is saved under the names that it came with.
    every = get_model_conversion_mapping(model, add_legacy=False)
    model._weight_conversions = [each for each in every if not isinstance(each, PrefixChange)]
    return model


def config(output: Path, **fields: Any) -> TrainConfig:
    """Settings of a short training on a CPU."""
    short = {
        "data": ("toys",),
        "model": "toy",
        "output": str(output),
        "max_length": 64,
        "batch_size": 4,
        "epochs": 1,
        "learning_rate": 1e-2,
        "precision": "fp32",
        "device": "cpu",
        "held_out": 0,
        "save_every": "never",
        "log_every": 1,
    }
    return TrainConfig.model_validate(short | fields)


class Kept(NullEvents):
    """Keeps everything that a training tells."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, dict[str, float]]] = []
        self.evaluations: list[tuple[int, dict[str, float]]] = []
        self.notes: list[str] = []

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        self.lines.append((step, dict(metrics)))

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        self.evaluations.append((step, dict(metrics)))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def values(self, name: str) -> list[float]:
        """One metric of every line, in order."""
        return [metrics[name] for _, metrics in self.lines]


def schedule(examples: TokenStore, asked: TrainConfig, *, ranks: int = 1) -> Schedule:
    return Schedule.from_config(examples, asked, ranks=ranks)


def ready(
    asked: TrainConfig,
    examples: TokenStore,
    held_out: TokenStore | None = None,
    *,
    parallel: Any = "none",
    tokenizer: Any = None,
) -> PreparedTraining:
    """What `run_training` takes in the place of texts."""
    counts: Any = SimpleNamespace(records=len(examples), trained_tokens=1, tokens=2, conversations=20, mistake_tokens=1)
    sizes = Sizes(counts, counts if held_out else None, VOCABULARY - 1, 64, examples.digest)
    means = ComputeSettings(
        cast("Any", asked.precision),
        parallel,
        gradient_checkpointing=bool(asked.gradient_checkpointing is True),
        attention="auto",
    )
    described = describe_model(asked, tokenizer)
    plan = make_plan(asked, sizes=sizes, model=described, devices=Devices("cpu", "CPU"), compute=means)
    return PreparedTraining(tokenizer, examples, held_out, plan)


def loop(
    toy: torch.nn.Module,
    examples: TokenStore,
    asked: TrainConfig,
    *,
    held_out: TokenStore | None = None,
    events: Events | None = None,
    parallel: Any = "none",
    before: Callable[[], object] = bool,
    **options: Any,
) -> Loop:
    """A loop on this rank; `before` is called before its accelerator is made."""
    distributed = Distributed.from_environment(asked)
    means = ComputeSettings(
        asked.precision if asked.precision != "auto" else "fp32",
        parallel,
        gradient_checkpointing=False,
        attention="auto",
    )
    before()
    accelerator = make_accelerator(asked, means, distributed)
    identity = {"learning_rate": asked.learning_rate, "tokens and labels": examples.digest}
    inputs = PreparedTraining(None, examples, held_out, cast("Any", None))
    return Loop(toy, inputs, asked, accelerator, identity=identity, events=events or NullEvents(), **options)
