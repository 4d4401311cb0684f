"""Plan of a training: steps, memory, the user's DeepSpeed file, and checks of feasibility. Imports no torch."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from refinesynth.errors import InputError
from refinesynth.train.config import Every, TrainConfig, interval

if TYPE_CHECKING:
    # At run time, these modules would import numpy.
    from refinesynth.train.data.conversation_reader import SourceSizes
    from refinesynth.train.prepare import Counts

_GIB: Final = 2**30
_MAX_PREFIXES: Final = 4
_USABLE_SHARE: Final = 0.9
"""Largest share of a device's memory that an estimate may use."""
Precision = Literal["bf16", "fp32", "fp64"]
Parallel = Literal["none", "ddp", "zero2", "zero3", "fsdp"]

_FP32_BYTES: Final = 4
_PRECISION_BYTES: Final[Mapping[Precision, int]] = {"bf16": 2, "fp32": _FP32_BYTES, "fp64": 8}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a model, for estimates and checks."""

    name: str
    parameters: int
    """Number of parameters, including adapters."""
    trainable: int
    """Number of parameters that require a gradient."""
    layers: int
    hidden: int
    """Width of the residual stream."""
    intermediate: int
    """Width of the feed-forward part (`intermediate_size`, or 4 x `hidden` without one); of all experts that a token takes."""
    vocabulary: int
    """Rows of the embedding; token ids are smaller."""
    positions: int | None = None
    """Longest sequence that the positions allow; None: no limit."""
    dtype: str | None = None
    """Type of the checkpoint's weights, by torch's name; None if its settings have no type."""
    frozen_bytes: int | None = None
    """Bytes of the quantized base model; None without quantization (frozen weights then have the compute precision)."""
    unused: Mapping[str, int] = field(default_factory=dict[str, int])
    """Numbers of parameters without a gradient from text (a vision tower), by name prefix: frozen, without adapters."""

    @property
    def has_adapters(self) -> bool:
        """True if adapters are trained instead of all weights."""
        return self.trainable + sum(self.unused.values()) < self.parameters


def describe_unused(unused: Mapping[str, int]) -> str:
    """Describe the frozen parameters that text does not reach, in one sentence."""
    shown = [f"{prefix} ({number:,})" for prefix, number in list(unused.items())[:_MAX_PREFIXES]]
    rest = [f"{len(unused) - _MAX_PREFIXES} more"] if len(unused) > _MAX_PREFIXES else []
    return f"{sum(unused.values()):,} parameters are frozen and get no adapters, since text gives them no gradient: {', '.join(shown + rest)}"


@dataclass(frozen=True, slots=True)
class ComputeSettings:
    """Settings of the computation, with every `auto` resolved."""

    precision: Precision
    parallel: Parallel
    gradient_checkpointing: bool
    attention: str

    @property
    def deepspeed(self) -> bool:
        """True if DeepSpeed shards the training."""
        return self.parallel in {"zero2", "zero3"}

    @property
    def splits_weights(self) -> bool:
        """True if no rank holds all weights."""
        return self.parallel in {"zero3", "fsdp"}


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Estimated bytes on one device, without fragmentation and the libraries' own memory."""

    weights: int
    gradients: int
    optimizer: int
    """AdamW's two moments, and DeepSpeed's fp32 copy of the weights."""
    activations: int
    """Activations of one pack, including the logits of trained tokens and working copies of weights."""

    @property
    def fixed(self) -> int:
        """The part that does not depend on the data."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> int:
        return self.fixed + self.activations


def estimate_memory(
    model: ModelShape, compute: ComputeSettings, *, tokens: int, trained: int, ranks: int
) -> MemoryEstimate:
    """Estimate bytes on each of `ranks` devices for a pack of `tokens`, of which `trained` reach the head.

    The estimate of activations is high; the other parts are exact except for padding.
    """
    compute_bytes, mixed = _PRECISION_BYTES[compute.precision], compute.precision == "bf16"
    # A trained weight is fp32 under bf16. With DeepSpeed it has the compute type, and the optimizer has the fp32 copy.
    stored = _FP32_BYTES if mixed and not compute.deepspeed else compute_bytes
    # Sharded weights are gathered one layer or embedding at a time: the largest one counts.
    largest_layer = max(model.parameters // max(1, model.layers), model.vocabulary * model.hidden)
    frozen = (model.parameters - model.trainable) * (compute_bytes if model.has_adapters else stored)
    weights = model.trainable * stored + (frozen if model.frozen_bytes is None else model.frozen_bytes)
    gradients = model.trainable * stored * (2 if compute.parallel == "ddp" else 1)  # DDP keeps buckets of gradients
    moments = 2 * (_FP32_BYTES if mixed else compute_bytes) + (_FP32_BYTES if mixed and compute.deepspeed else 0)
    # Sharded weights are gathered layer by layer, with the next layer prefetched. Autocast keeps the bf16 copy of every
    # trained weight during a forward pass.
    copies = model.trainable * compute_bytes if mixed and not compute.deepspeed else 0
    working = 2 * largest_layer * compute_bytes if compute.splits_weights else copies
    # Per token and layer: the residual stream before each half and the norm's output (4 widths), query, key and value
    # before and after rotation (at most 6), attention's output (1), the gated feed-forward part (4 of its width), and
    # the norms' two fp32 copies. Attention stores no score matrix. With checkpointing, a layer stores only its input,
    # and one layer at a time is recomputed.
    layer = tokens * (compute_bytes * (11 * model.hidden + 4 * model.intermediate) + 2 * _FP32_BYTES * model.hidden)
    inputs = tokens * model.layers * model.hidden * compute_bytes
    layers = inputs + layer if compute.gradient_checkpointing else model.layers * layer
    logits = trained * model.vocabulary * (compute_bytes + 2 * _FP32_BYTES)  # with their fp32 copy and its gradient
    gradient_shards = ranks if compute.deepspeed or compute.splits_weights else 1
    return MemoryEstimate(
        weights=weights // (ranks if compute.splits_weights else 1),
        gradients=gradients // gradient_shards,
        optimizer=model.trainable * moments // gradient_shards,
        activations=working + layers + logits,
    )


@dataclass(frozen=True, slots=True)
class Devices:
    """Devices of the training."""

    kind: Literal["cpu", "gpu"]
    name: str
    ranks: int = 1
    """Processes over all machines, each with one device."""
    memory: int | None = None
    """Memory of one device, in bytes; None if unknown."""
    bf16: bool = True
    """False if the device only emulates bf16, like GPUs before Ampere."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts of the rendered data."""

    counts: "Counts"
    """Counts of the training data."""
    held_out: "Counts | None"
    """Counts of the held-out data, also if none of it is left to evaluate on; None if nothing is held out."""
    largest_id: int
    """Largest token id."""
    longest: int
    """Number of tokens of the longest record."""
    digest: str
    """SHA-256 of the training data's tokens and labels (`TokenStore.digest`)."""
    sources: "tuple[SourceSizes, ...]" = ()
    """Counts of each source, in the order given."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a training."""

    model: ModelShape
    devices: Devices
    sizes: Sizes
    means: ComputeSettings
    steps: int
    steps_per_epoch: int
    passes_per_step: int
    """Minimum number of forward passes per optimizer step and rank."""
    evaluations: int
    checkpoints: int
    memory: MemoryEstimate
    """Estimate for one device."""
    remarks: tuple[str, ...] = ()
    """Notes for the user before the first step."""

    def as_json(self) -> dict[str, Any]:
        """All fields, in the form of `plan.json`."""
        return asdict(self)


def make_plan(
    config: TrainConfig, *, sizes: Sizes, model: ModelShape, devices: Devices, compute: ComputeSettings
) -> Plan:
    """Plan a training. Raises `InputError` if the data does not fit the model or the devices."""
    _check_data(config, sizes, model, devices)
    counts = sizes.counts
    batch = min(config.batch_size, counts.records)
    steps_per_epoch, steps = config.steps_per_epoch(counts.records), config.steps(counts.records)
    # Tokens of the largest possible pass, with the average share of trained tokens.
    tokens = min(config.pack_tokens, (batch if config.packing else 1) * min(sizes.longest, config.max_length))
    trained = math.ceil(tokens * counts.trained_tokens / max(1, counts.tokens))
    memory = estimate_memory(model, compute, tokens=tokens, trained=trained, ranks=devices.ranks)
    _check_memory(memory, devices, compute, config)

    def count_events(every: Every) -> int:
        steps_between = interval(every, steps_per_epoch)
        return 0 if steps_between is None else math.ceil(steps / steps_between)

    packs = batch * counts.tokens / counts.records / config.pack_tokens if config.packing else batch
    return Plan(
        model=model,
        devices=devices,
        sizes=sizes,
        means=compute,
        steps=steps,
        steps_per_epoch=steps_per_epoch,
        passes_per_step=max(1, math.ceil(packs / devices.ranks)),
        evaluations=count_events(config.evaluate_every) if sizes.held_out and sizes.held_out.records else 0,
        checkpoints=count_events(config.save_every),
        memory=memory,
        remarks=(*_remarks_on_compute(model, devices, memory), *_remarks_on_data(config, sizes)),
    )


def compute_settings(config: TrainConfig, devices: Devices, model: ModelShape) -> ComputeSettings:
    """Resolve every `auto`, before the data is read.

    Precision: bf16 on GPUs with native bf16 (T4 and V100 emulate it, slower than fp32), else fp32. Parallel: copies
    (ddp) if one fits into 90 % of a device, if necessary with checkpointing: it computes a third more but sends less.
    Else fsdp. Checkpointing: on GPUs, if the estimate without checkpointing exceeds 90 %.

    Raises:
        InputError: `parallel` is `none` with several processes, `fsdp` on CPUs, or would shard quantized weights; or
            the DeepSpeed file cannot be used, or has another stage than `parallel`.
    """
    gpu = devices.kind == "gpu"
    precision = config.precision if config.precision != "auto" else "bf16" if gpu and devices.bf16 else "fp32"
    tokens = config.pack_tokens

    def fits(parallel: Parallel, *, checkpointing: bool) -> bool:
        compute = ComputeSettings(precision, parallel, checkpointing, config.attention)
        needed = estimate_memory(model, compute, tokens=tokens, trained=tokens // 2, ranks=devices.ranks)
        return devices.memory is not None and needed.total < _USABLE_SHARE * devices.memory

    requested = config.gradient_checkpointing
    parallel = _requested_parallel(config, devices)
    if parallel == "auto":
        one_copy = devices.ranks == 1 or config.quantize is not None or devices.memory is None
        copies = one_copy or fits("ddp", checkpointing=gpu if requested == "auto" else requested)
        parallel = "none" if devices.ranks == 1 else "ddp" if copies else "fsdp"
    checkpointing = gpu and not fits(parallel, checkpointing=False) if requested == "auto" else requested
    return ComputeSettings(precision, parallel, checkpointing, config.attention)


def _requested_parallel(config: TrainConfig, devices: Devices) -> Parallel | Literal["auto"]:
    if config.parallel == "none" and devices.ranks > 1:
        raise InputError(
            f"parallel is 'none', and there are {devices.ranks} processes; give ddp, zero2, zero3, fsdp or auto"
        )
    if config.parallel == "fsdp" and devices.kind == "cpu":
        # accelerate would silently use copies (ddp).
        raise InputError("parallel is 'fsdp', which accelerate does on GPUs only; on CPUs give zero3, zero2 or ddp")
    requested = config.parallel
    if config.deepspeed is not None:
        requested = "zero3" if read_deepspeed(config.deepspeed)["zero_optimization"]["stage"] == _ZERO_3 else "zero2"
    if config.parallel not in {"auto", requested}:
        raise InputError(
            f"the DeepSpeed file {config.deepspeed!r} asks for {requested}, and parallel is {config.parallel!r}; leave parallel out, or change one"
        )
    if config.quantize is not None and requested in {"zero3", "fsdp"}:
        raise InputError(
            f"parallel is {requested!r}, which cannot split quantized weights (lora.quantize); give ddp, zero2 or auto"
        )
    return requested


def _describe_lost(config: TrainConfig, counts: "Counts") -> str:
    """The numbers of conversations that are left out, by cause; empty if there are none."""
    dropped = {
        f"without a turn that loss_on={config.loss_on} learns from": counts.dropped_untrained,
        f"longer than max_length={config.max_length:,}": counts.dropped_long,
        "with text that looks like a control token": counts.dropped_forged,
    }
    return ", ".join(f"{number:,} {cause}" for cause, number in dropped.items() if number)


def _check_data(config: TrainConfig, sizes: Sizes, model: ModelShape, devices: Devices) -> None:
    """Raises: InputError: The data does not fit the model, or the batch does not fit the devices."""
    counts, ranks = sizes.counts, devices.ranks
    if not counts.records or not counts.trained_tokens:
        lost = _describe_lost(config, counts)
        text = f"of {counts.conversations:,} conversations none is left: {lost}" if lost else "there is no conversation"
        raise InputError(
            f"nothing to train on: {text}. Check DATA, --max-length and loss_on; --preview shows what the model would see"
        )
    if sizes.largest_id >= model.vocabulary:
        raise InputError(
            f"the tokenizer makes token ids up to {sizes.largest_id:,}, and {model.name!r} has embeddings for {model.vocabulary:,} "
            "tokens only. Give the model's own tokenizer (leave --tokenizer out), or a model that was resized for this one"
        )
    if model.positions is not None and sizes.longest > model.positions:
        raise InputError(
            f"a conversation has {sizes.longest:,} tokens, and {model.name!r} has {model.positions:,} positions; "
            f"give --max-length {model.positions}"
        )
    if config.batch_size < ranks or (config.batch_size % ranks and not config.packing):
        batch_size = max(ranks, config.batch_size - config.batch_size % ranks)
        raise InputError(
            f"batch_size is {config.batch_size}, and there are {ranks} processes, each of which needs a conversation in every step (without "
            f"packing as many as the others); give --batch-size {batch_size} or {batch_size + ranks}, or leave packing on"
        )


def _check_memory(memory: MemoryEstimate, devices: Devices, compute: ComputeSettings, config: TrainConfig) -> None:
    """Raises: InputError: Weights, gradients and optimizer do not fit into a GPU."""
    # The optimizer in `trainer.optim` may keep less state than AdamW.
    required = memory.fixed - (memory.optimizer if config.trainer.optim else 0)
    if devices.kind != "gpu" or devices.memory is None or required <= devices.memory:
        return
    lora = "" if config.lora else "--lora, "
    remedy = f"more GPUs than {devices.ranks}" if compute.splits_weights else "--deepspeed zero3 on more GPUs"
    raise InputError(
        f"the model is too large for the devices: weights, gradients and optimizer take {memory.fixed / _GIB:,.0f} GiB on each, and "
        f"{devices.name} has {devices.memory / _GIB:,.0f} GiB. Use {lora}{remedy} or a smaller model"
    )


def _remarks_on_data(config: TrainConfig, sizes: Sizes) -> Iterator[str]:
    counts = sizes.counts
    if sizes.held_out and not sizes.held_out.records:
        yield (
            f"all {sizes.held_out.conversations:,} held-out conversations are left out: {_describe_lost(config, sizes.held_out)}; evaluations and "
            "the choice of a best checkpoint fall away. Another held_out or seed holds out others"
        )
    if (warmup := config.warmup_steps(steps := config.steps(counts.records))) >= steps:
        yield f"the warm-up takes {warmup:,} steps and the training {steps:,}: the learning rate is never reached; lower warmup"
    for source in sizes.sources:
        if source.unmarked:
            yield (
                f"{source.name}: {source.unmarked:,} of {source.conversations:,} conversations have no flags, so no turn of them is marked as a "
                "mistake, and all turns of the assistant are learned"
            )
    unmarked = bool(sizes.sources) and all(source.unmarked == source.conversations for source in sizes.sources)
    if not counts.mistake_tokens and not config.without_refinement and not unmarked:
        yield (
            "no turn of the data is marked as a mistake. Exports with masking `split` are so: their earlier turns are context, right or "
            "wrong; from one with masking `drop` no refinement is learned"
        )


def _remarks_on_compute(model: ModelShape, devices: Devices, memory: MemoryEstimate) -> Iterator[str]:
    if model.unused:
        yield describe_unused(model.unused)
    if devices.memory is not None and memory.total > devices.memory:
        yield (
            f"memory may not suffice: about {memory.total / _GIB:,.0f} GiB are needed and {devices.name} has "
            f"{devices.memory / _GIB:,.0f} GiB; lower tokens_per_pack or max_length, or turn gradient_checkpointing on"
        )


_ZERO_2, _ZERO_3 = 2, 3
_OVERRIDDEN: Final = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
_EQUIVALENT_SETTINGS: Final = {
    "optimizer": "learning_rate, weight_decay and adam_betas",
    "scheduler": "schedule and warmup",
    "gradient_clipping": "max_grad_norm",
    "bf16": "precision",
    "fp16": "precision",
}
"""Sections of the file that `TrainConfig` sets, with the names of its settings."""


def read_deepspeed(name: str) -> dict[str, Any]:
    """Read the user's DeepSpeed file and add the settings that a training needs. Raises `InputError`."""
    try:
        file_settings = _as_object(json.loads(Path(name).read_text(encoding="utf-8")))
    except (OSError, ValueError) as exc:
        raise InputError(f"the DeepSpeed file {name!r} cannot be read: {exc}") from exc
    zero = _as_object(file_settings.get("zero_optimization"))
    stage = zero.get("stage")
    if stage not in (_ZERO_2, _ZERO_3):
        raise InputError(
            f"the DeepSpeed file {name!r} asks for ZeRO stage {stage!r}; set zero_optimization.stage to 2 or 3"
        )
    for section in (key for key in _EQUIVALENT_SETTINGS if key in file_settings):
        value: object = file_settings[section]
        value = cast("dict[str, Any]", value).get("enabled") if isinstance(value, dict) else value
        is_auto = value in (None, "auto") or (section == "fp16" and value is False)
        if not is_auto or section in {"optimizer", "scheduler"}:
            raise InputError(
                f"the DeepSpeed file {name!r} sets {section!r}; take it out, and set {_EQUIVALENT_SETTINGS[section]} instead"
            )
    settings = {key: value for key, value in file_settings.items() if key not in {*_OVERRIDDEN, "fp16"}}
    # Without this setting, the model would be saved only as DeepSpeed's shards.
    needed: dict[str, Any] = {"stage3_gather_16bit_weights_on_model_save": True} if stage == _ZERO_3 else {}
    return {"zero_allow_untested_optimizer": True} | settings | {"zero_optimization": {**zero, **needed}}


def _as_object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
