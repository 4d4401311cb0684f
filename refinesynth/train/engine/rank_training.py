"""Training on one rank: data, plan, model, steps and the finished model."""

import logging
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import patch_environment
from transformers import set_seed
from transformers.utils import logging as library

from refinesynth.errors import InputError, TrainingError
from refinesynth.train.config import SCRATCH, TrainConfig
from refinesynth.train.data import read_configured, split
from refinesynth.train.engine import checkpoints, loading, parallel
from refinesynth.train.engine.adapters import is_quantized
from refinesynth.train.engine.checkpoints import Checkpoint
from refinesynth.train.engine.lm_head import base_model
from refinesynth.train.engine.loop import Loop, PreparedTraining
from refinesynth.train.engine.model_writer import file_errors, written_dtype
from refinesynth.train.engine.parallel import Distributed, gather_objects
from refinesynth.train.events import Events, NullEvents, TrainResult
from refinesynth.train.layered_settings import portable_config
from refinesynth.train.plan import Sizes, compute_settings, make_plan
from refinesynth.train.prepare import prepare
from refinesynth.train.ranks import rank
from refinesynth.train.training_folder import CHECKPOINTS, FREE_SETTINGS, cut_metrics


@contextmanager
def libraries_silenced() -> Generator[None]:
    """Context in which libraries log errors only and show no progress bars."""
    bars = library.is_progress_bar_enabled()
    loggers = [logging.getLogger(name) for name in ("transformers", "accelerate", "peft", "DeepSpeed")]
    levels = [logger.level for logger in loggers]
    library.disable_progress_bar()
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # DeepSpeed and FSDP use deprecated names of torch, which a user cannot change.
            warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if bars:
            library.enable_progress_bar()


def prepare_training(
    config: TrainConfig, distributed: Distributed, sources: Sequence[Any] | None = None
) -> PreparedTraining:
    """Read and render the data and make the plan, on every rank separately. `sources` replaces `config.data`.

    Raises `InputError` if data, tokenizer or model cannot be used, or if the plan is infeasible.
    """
    reader = read_configured(config, sources)
    parallel.check_loop(config)
    conversations = list(reader) if config.model == SCRATCH else reader
    tokenizer = loading.load_tokenizer(config, conversations)
    renderer = loading.make_renderer(config, tokenizer)
    shape, devices = loading.describe_model(config, tokenizer), distributed.devices()
    compute = compute_settings(config, devices, shape)
    training, held_out = split(conversations, config.held_out, config.seed)
    trained, held_out_data = (prepare(part, renderer, config.max_length) for part in (training, held_out))
    held_out_store = held_out_data.store if len(held_out_data.store) else None
    by_source = {source.name: source for source in reader.sizes}
    for example in trained.store:
        by_source[example.source].tokens += len(example)
        by_source[example.source].trained_tokens += example.trained
    for conversation in held_out:
        by_source[conversation.source].held_out += 1
    sizes = Sizes(
        counts=trained.counts,
        held_out=held_out_data.counts if held_out else None,
        largest_id=max(trained.store.largest_id, held_out_data.store.largest_id),
        longest=max(trained.counts.longest, held_out_data.counts.longest),
        digest=trained.store.digest,
        sources=tuple(reader.sizes),
    )
    plan = make_plan(config, sizes=sizes, model=shape, devices=devices, compute=compute)
    plan = replace(plan, remarks=(*plan.remarks, *reader.remarks()))
    return PreparedTraining(renderer.tokenizer, trained.store, held_out_store, plan)


def data_digest(config: TrainConfig, sources: Sequence[Any] | None = None) -> tuple[str, int] | None:
    """Digest of the training data's tokens and number of held-out tokens; None if the tokenizer cannot be loaded.

    Does not check model and devices. Raises `InputError` if the data cannot be rendered.
    """
    reader = read_configured(config, sources)
    conversations = list(reader) if config.model == SCRATCH else reader
    try:
        tokenizer = loading.load_tokenizer(config, conversations)
    except InputError:
        return None
    renderer, parts = loading.make_renderer(config, tokenizer), split(conversations, config.held_out, config.seed)
    trained, held_out = (prepare(part, renderer, config.max_length) for part in parts)
    return trained.store.digest, held_out.counts.tokens


_COVERED_SETTINGS = frozenset({"data", "held_out", "deepspeed", "recipe", "trainer"})
"""Settings whose effect is part of other entries of the identity."""


def run_training(
    config: TrainConfig, *, events: Events, inputs: PreparedTraining | None = None, sources: Sequence[Any] | None = None
) -> TrainResult:
    """Train on this rank; every rank of a training calls this function.

    `sources` replaces `config.data`; `inputs` replaces the data, tokenizer and plan.

    Raises:
        InputError: The settings cannot be used.
        TrainingError: The training cannot continue; earlier checkpoints are sound.
    """
    try:
        with libraries_silenced():
            result = _train(config, events if rank() == 0 else NullEvents(), inputs, sources)
    except torch.OutOfMemoryError as exc:
        raise TrainingError(
            f"the device's memory is full: {str(exc).splitlines()[0]} Take fewer tokens_per_pack, gradient_checkpointing true, lora, "
            f"or parallel zero3 or fsdp on more devices."
        ) from exc
    parallel.destroy_process_group()
    return result


def _train(
    config: TrainConfig, events: Events, prepared: PreparedTraining | None, sources: Sequence[Any] | None
) -> TrainResult:
    distributed = Distributed.from_environment(config)
    set_seed(config.seed)
    prepared = prepared or prepare_training(config, distributed, sources)
    identity = _identity(config, prepared, distributed.world_size)
    # `planned` writes settings and plan into the folder; a refused command must not change them.
    start, remarks = _find_checkpoint(config, identity)
    events.planned(prepared.plan)
    if rank() == 0:
        cut_metrics(Path(config.output), start.step if start else 0)
    for remark in remarks:
        events.note(remark)
    # accelerate leaves these variables set; a later training in this process would read them.
    environment = patch_environment(ACCELERATE_USE_DEEPSPEED="false", ACCELERATE_USE_FSDP="false")
    with environment, parallel.single_process_environment(prepared.plan.means.parallel):
        loop = _make_loop(config, events, prepared, identity, distributed)
        with loop.interruption.watched():
            loop.train(start.path if start else None)
        if loop.interruption.signal is None:
            loop.checkpoints.restore_best(loop.progress)
            with file_errors(output := Path(config.output), "written"):
                loop.writer.write(output, dtype=written_dtype(config, prepared.plan.model))
            events.saved(output)
        return _make_result(config, loop, start)


def _make_loop(
    config: TrainConfig,
    events: Events,
    prepared: PreparedTraining,
    identity: Mapping[str, Any],
    distributed: Distributed,
) -> Loop:
    compute = prepared.plan.means
    accelerator = parallel.make_accelerator(config, compute, distributed)
    digests = gather_objects((prepared.store.digest, prepared.held_out.digest if prepared.held_out else ""))
    if any(digest != digests[0] for digest in digests):
        raise TrainingError(
            f"the ranks have read different data (digests {digests}); give them the same files and versions of the libraries"
        )
    load = partial(
        loading.load_model,
        config,
        compute.precision,
        gradient_checkpointing=compute.gradient_checkpointing,
        tokenizer=prepared.tokenizer,
        unused=prepared.plan.model.unused,
    )
    model = parallel.load_once(load, distributed) if compute.parallel == "fsdp" else load()
    loading.add_end_tokens(model, prepared.store)
    if compute.parallel in {"none", "ddp"} and not is_quantized(base_model(model)):
        model.to(accelerator.device)
    return Loop(model, prepared, config, accelerator, identity=identity, events=events)


def _identity(config: TrainConfig, prepared: PreparedTraining, ranks: int) -> Mapping[str, Any]:
    """Everything that determines the weights, by name."""
    compute, excluded = prepared.plan.means, FREE_SETTINGS | _COVERED_SETTINGS
    settings = {name: value for name, value in portable_config(config).items() if name not in excluded}
    trainer_settings = {f"trainer.{name}": value for name, value in config.trainer.weight_settings().items()}
    is_sharded = compute.parallel in {"zero2", "zero3", "fsdp"}
    computed_values = {
        "tokens and labels": prepared.store.digest,
        "held-out tokens": prepared.held_out.digest if prepared.held_out else None,
        "precision": compute.precision,
        # Sharded optimizer states fit only the same number of ranks; whole states fit any number.
        "parallel": compute.parallel if is_sharded else "whole",
        "ranks": ranks if is_sharded else None,
    }
    return settings | trainer_settings | computed_values


def _find_checkpoint(config: TrainConfig, identity: Mapping[str, Any]) -> tuple[Checkpoint | None, list[str]]:
    """The checkpoint to resume from, and notes for the user. Raises `InputError` if its identity differs."""
    checkpoint, remarks = checkpoints.find_newest(Path(config.output) / CHECKPOINTS)
    if checkpoint is not None:
        checkpoints.refuse_differences(checkpoint, identity)
        remarks.append(f"Going on from {checkpoint.path}, after step {checkpoint.step}.")
    return checkpoint, remarks


def _make_result(config: TrainConfig, loop: Loop, start: Checkpoint | None) -> TrainResult:
    progress = loop.progress
    best = progress.best[0] if progress.best is not None else None
    if best is not None and (not loop.checkpoints.path(best).is_dir() or progress.kept not in {None, best}):
        best = None
    held_out = [metrics for step, metrics in progress.evaluations if step == (best or progress.step)]
    return TrainResult(
        output=Path(config.output),
        steps=progress.step,
        planned_steps=loop.schedule.steps,
        epochs=progress.step / loop.schedule.steps_per_epoch,
        loss=progress.last_loss,
        held_out=held_out[-1] if held_out else {},
        best_step=best,
        signal=loop.interruption.signal,
        resumed_from=start.step if start else None,
    )
