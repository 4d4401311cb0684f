"""Settings of a training, each with unit, default and source. Imports no torch.

`train/layered_settings.py` reads a `TrainConfig` from recipes, files and the command line.
"""

import keyword
import math
import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from refinesynth.option import INPUT, LEARNING, LIMITS, MACHINES, MODEL, OUTPUT, Option
from refinesynth.train.labelled_conversation import LossOn

Name = Annotated[str, Field(min_length=1)]


def _check_share_or_number(value: float) -> float:
    """Raises: ValueError: The number is above 1 and not whole."""
    if value >= 1 and not value.is_integer():
        raise ValueError("expected a share (below 1) or a whole number (from 1 on)")
    return value


ShareOrNumber = Annotated[float, AfterValidator(_check_share_or_number)]
"""A share below 1, or a whole number."""
LearningRateSchedule = Literal["cosine", "linear", "constant"]
Every = Literal["epoch", "never"] | Annotated[ShareOrNumber, Field(gt=0)]
"""`epoch`, `never`, a share of an epoch (below 1), or a number of optimizer steps (from 1 on)."""

SCRATCH: Final = "scratch"
"""Name of a tiny model with random weights and a tokenizer made from the data."""
ALL: Final = "all"
HUB_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+")
"""Pattern of a hub name with its owner."""
PATH_FIELDS: Final = ("data", "model", "output", "tokenizer", "chat_template", "deepspeed")
"""Fields that may hold paths."""

_RESERVED: Final = frozenset({"add_generation_prompt", "continue_final_message", "documents", "messages", "tools"})
"""Variables that every rendering sets in a chat template, in addition to special tokens."""


def _check_variable_name(name: str) -> str:
    """Raises: ValueError: No chat template can have a variable of this name, or every rendering sets it."""
    if not name.isidentifier() or keyword.iskeyword(name) or name in _RESERVED or name.endswith(("_token", "_tokens")):
        raise ValueError("expected the name of a variable that the chat template reads, such as enable_thinking")
    return name


TemplateName = Annotated[str, AfterValidator(_check_variable_name)]

_MODEL_CONFIG = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class LoraConfig(BaseModel):
    """Low-rank adapters (peft) instead of all weights."""

    model_config = _MODEL_CONFIG

    rank: Annotated[int, Field(ge=1)] = 32
    """Rank of each adapter."""
    alpha: Annotated[float, Field(gt=0)] = 64.0
    """Scale: an adapter's output is multiplied by alpha / rank."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout rate of an adapter's input in training."""
    targets: str | tuple[str, ...] = "all-linear"
    """Modules with an adapter: `all-linear` (all except the head), a regular expression, or a list of name endings."""
    modules_to_save: tuple[Name, ...] = ()
    """Modules trained whole and saved with the adapters, by name endings: lm_head, embed_tokens."""
    quantize: Literal["4bit"] | None = None
    """Quantize frozen weights with bitsandbytes to 4 bits (QLoRA: nf4, double quantization); not for zero3 and fsdp."""


Optim = Literal["adamw_8bit", "paged_adamw_8bit"]


Tracker = Literal["tensorboard", "wandb", "trackio", "mlflow", "comet_ml", "aim", "clearml", "dvclive", "swanlab"]


def _as_names(value: object) -> object:
    return [value] if isinstance(value, str) else value


class TrainerConfig(BaseModel):
    """Rarer settings of the training loop, by their names in transformers' `TrainingArguments`."""

    model_config = _MODEL_CONFIG

    optim: Optim | None = None
    """Optimizer of bitsandbytes. By default torch's AdamW, fused on GPUs."""
    neftune_noise_alpha: Annotated[float, Field(ge=0)] | None = None
    """Strength of NEFTune's noise on embeddings, which does not depend on packing."""
    report_to: Annotated[tuple[Tracker, ...], BeforeValidator(_as_names)] = ()
    """Trackers of the metrics: tensorboard (into `tensorboard/` of the output folder), wandb, trackio, mlflow, comet_ml, aim, clearml, dvclive, swanlab."""
    ddp_timeout: Annotated[int, Field(ge=1)] = 1800
    """Seconds that ranks wait for each other."""

    def weight_settings(self) -> dict[str, Any]:
        """Settings that determine the weights and differ from their defaults."""
        changed = self.model_dump(mode="json", exclude_defaults=True)
        return {name: value for name, value in sorted(changed.items()) if name in WEIGHT_SETTINGS}


WEIGHT_SETTINGS: Final = frozenset({"optim", "neftune_noise_alpha"})


class TrainConfig(BaseModel):
    """Settings of one training. Defaults are the paper's (section 4.1 and its appendix) wherever it gives them."""

    model_config = _MODEL_CONFIG

    # Data, model and output.
    data: tuple[Name, ...]
    """Run folders or files of JSON lines: in one of our export forms, or general chat without flags, of which all turns
    of the assistant are trained. `NAME:0.3` takes a share of a source's conversations, drawn by
    `seed`; above 1 it repeats them."""
    model: Annotated[Name, Option(MODEL, "NAME", ("-m", "--model"))]
    """Hub name, folder or GGUF file of a causal language model; or `scratch`: a tiny random one, with a tokenizer from
    the data."""
    output: Annotated[Name, Option(OUTPUT, "FOLDER", ("-o", "--output"))]
    """Folder that gets the model, its card and everything to repeat the training."""
    recipe: Annotated[str | None, Option(INPUT, "NAME")] = None
    """Named defaults, which all other settings override: paper-8b, paper-70b, lora or smoke."""
    revision: Name | None = None
    """Branch, tag or commit of the model and its tokenizer on the hub; by default the newest."""
    tokenizer: Annotated[str | None, Option(MODEL, "NAME")] = None
    """Hub name, folder or GGUF file; by default the model's."""
    chat_template: Annotated[str | None, Option(MODEL, "NAME-OR-FILE")] = None
    """llama-3, chatml or react, or a file with a Jinja chat template; by default the tokenizer's, else react."""
    chat_template_kwargs: dict[TemplateName, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """Variables of the chat template, such as enable_thinking: false; defaults of the tuned tokenizer's template."""
    form: Annotated[Literal["react", "tools"], Option(LEARNING)] = "react"
    """Form of trajectories for the chat template: `react` as text, `tools` with each action as a native tool call and
    the actions as its `tools`. Exported files keep their form."""
    thought_as: Annotated[Literal["content", "reasoning", "omit"], Option(LEARNING)] = "content"
    """Place of an assistant's thoughts: in its message (`content`), apart for templates that write thinking apart
    (`reasoning`: as reasoning_content, the message then begins with Action), or left out (`omit`)."""
    trust_remote_code: Annotated[bool, Option(MODEL)] = False
    """Run Python code that comes with the model. It can do anything that you can."""

    # Rendering and loss.
    max_length: Annotated[int, Field(ge=1), Option(LIMITS, "TOKENS")] = 8192
    """Largest number of tokens of a training example (paper: 8192; 4096 for 70B). Longer ones are cut after their last
    trained turn that fits, and counted."""
    loss_on: Annotated[LossOn, Option(LEARNING)] = LossOn.REFINEMENT
    """Turns that are trained: `refinement` (equation 1: all but mistakes), `all_turns` (mistakes too, the paper's
    erroneous loss), `no_refinement_turns` (neither mistakes nor the turns that repair them), `repairs` (only the right
    turns after a mistake, and those of a repairer)."""
    without_refinement: Annotated[bool, Option(LEARNING)] = False
    """Remove mistakes and their observations from the data (the paper's ablation without refinement data)."""
    on_rewrite: Literal["refuse", "expand"] = "refuse"
    """For chat templates that rewrite earlier turns: refuse, or make one exact record per trained turn (many more
    tokens)."""
    held_out: Annotated[ShareOrNumber, Field(ge=0), Option(LEARNING, "SHARE|N")] = 0.02
    """Share (below 1) or number (from 1 on) of personas/environments kept out of training to evaluate; 0: none."""

    # Length and steps.
    epochs: Annotated[float, Field(gt=0), Option(LIMITS)] = 10.0
    """Passes over the data (paper: 10, the best checkpoint kept)."""
    max_steps: Annotated[Annotated[int, Field(ge=1)] | None, Option(LIMITS, "N")] = None
    """Optimizer steps; overrides `epochs`."""
    batch_size: Annotated[int, Field(ge=1), Option(LEARNING, "N")] = 64
    """Conversations per optimizer step, over all ranks and micro-batches (paper: 64)."""
    packing: bool = True
    """Put several conversations into one row, without padding or attention across them. The loss is the same."""
    tokens_per_pack: Annotated[Annotated[int, Field(ge=1)] | None, Option(MACHINES, "TOKENS")] = None
    """Tokens per forward pass on one device; by default `max_length`. It affects memory, not results."""

    # Optimizer.
    learning_rate: Annotated[float, Field(gt=0), Option(LEARNING, None, ("--learning-rate", "--lr"))] = 5e-6
    """Peak learning rate (paper: 5e-6, all weights; recipe lora: 2e-4)."""
    schedule: LearningRateSchedule = "cosine"
    """Learning rate after the warm-up: to 0 at the last step, or constant (paper: cosine)."""
    warmup: Annotated[ShareOrNumber, Field(ge=0)] = 0.0
    """Share of all steps (below 1) or steps (from 1 on) in which the learning rate rises from 0 (paper: none)."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Weight decay, decoupled in AdamW; biases and norms do not decay."""
    adam_betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """AdamW's decay rates of the two moments."""
    max_grad_norm: Annotated[float, Field(ge=0)] = 1.0
    """Largest gradient norm; larger gradients are scaled down. 0: no limit."""
    trainer: TrainerConfig = Field(default_factory=TrainerConfig)
    """Rarer settings of the training loop: optimizers, trackers."""

    # Computation.
    precision: Annotated[Literal["auto", "bf16", "fp32", "fp64"], Option(MACHINES)] = "auto"
    """`bf16`: fp32 weights, computed under bf16 autocast. `auto`: bf16 on a GPU, fp32 on a CPU."""
    gradient_checkpointing: Literal["auto"] | bool = "auto"
    """Recompute activations in the backward pass; `auto`: on GPUs whose memory they would fill, by estimate."""
    attention: str = "auto"
    """`auto`, or the name of an attention implementation of transformers or `refinesynth_segments`."""
    lora: LoraConfig | None = None
    """Train low-rank adapters instead of all weights."""
    parallel: Literal["auto", "none", "ddp", "zero2", "zero3", "fsdp"] = "auto"
    """Parallelism of processes: copies (ddp), sharded optimizer and gradients (zero2), also weights (zero3, fsdp)."""
    deepspeed: Annotated[str | None, Option(MACHINES, "STAGE|FILE")] = None
    """Your own DeepSpeed JSON file; as an option also a stage, zero2 or zero3."""
    device: Literal["auto", "cpu"] = "auto"
    """`auto`: GPUs if there are any. `cpu`: no GPUs."""
    seed: Annotated[int, Field(ge=0, lt=2**32), Option(LEARNING, "N")] = 0
    """Seed of the split, the order of the data and all randomness. The same seed gives the same training."""

    # Metrics and files.
    evaluate_every: Every = "epoch"
    """Evaluate on held-out data: `epoch`, `never`, a share of an epoch (below 1) or a number of steps (from 1 on)."""
    save_every: Every = "epoch"
    """Write a checkpoint to resume from, in the same units."""
    keep: Literal["all"] | Annotated[int, Field(ge=1)] = 2
    """Number of newest checkpoints to keep, or `all`; the best checkpoint is also kept."""
    log_every: Annotated[int, Field(ge=1)] = 10
    """Steps between two lines of metrics."""
    save_dtype: Annotated[Literal["auto", "bf16", "fp32", "fp64"], Option(OUTPUT)] = "auto"
    """Type of the finished model's weights; `auto`: the base's, fp32 for adapters. Checkpoints hold all that was
    trained."""

    @property
    def tokenizer_source(self) -> tuple[str, str | None]:
        """Hub name, folder or file of the tokenizer, and its revision."""
        return self.tokenizer or self.model, None if self.tokenizer else self.revision

    @property
    def quantize(self) -> Literal["4bit"] | None:
        """`lora.quantize`; None without adapters."""
        return self.lora and self.lora.quantize

    @property
    def pack_tokens(self) -> int:
        """Tokens of one pack."""
        return self.tokens_per_pack or self.max_length

    def steps_per_epoch(self, records: int) -> int:
        """Optimizer steps of one pass over `records` records."""
        return max(1, -(-records // self.batch_size))

    def steps(self, records: int) -> int:
        """Optimizer steps of a training on `records` records."""
        # Floating point must not add a step: 0.07 * 100 is 7.000000000000001.
        return self.max_steps or max(1, math.ceil(round(self.epochs * self.steps_per_epoch(records), 6)))

    def warmup_steps(self, steps: int) -> int:
        """Steps of warm-up in a training of `steps` steps."""
        return round(self.warmup * steps) if self.warmup < 1 else round(self.warmup)

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if not self.data:
            raise ValueError("data names nothing to train on")
        if self.pack_tokens < self.max_length:
            raise ValueError(
                f"tokens_per_pack is {self.pack_tokens}, and a conversation of max_length {self.max_length} would not fit in; "
                "give a larger one, or a smaller max_length"
            )
        if self.quantize is not None and self.precision == "fp64":
            raise ValueError(
                f"precision is {self.precision!r}; weights of lora.quantize are computed with in bf16 or fp32"
            )
        if self.model == SCRATCH and self.lora is not None:
            raise ValueError(
                "model is 'scratch', whose weights are kept nowhere: adapters would fit nothing; give --no-lora"
            )
        return self


def interval(every: "Every", steps_per_epoch: int) -> int | None:
    """Optimizer steps between two events of `every`, at least 1; None: never."""
    if every == "never":
        return None
    if every == "epoch":
        return max(1, steps_per_epoch)
    return max(1, round(every * steps_per_epoch)) if every < 1 else round(every)
