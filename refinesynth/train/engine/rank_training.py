"""Training on one rank: data, plan, model, steps and the finished model."""

import logging
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import patch_environment
from transformers import PreTrainedTokenizerBase, enable_full_determinism, set_seed
from transformers.utils import logging as library

from refinesynth.errors import InputError, RefinesynthError, TrainingError
from refinesynth.train.config import SCRATCH, TrainConfig
from refinesynth.train.data import Reading, read_configured, split
from refinesynth.train.engine import checkpoints
from refinesynth.train.engine.adapters import is_quantized
from refinesynth.train.engine.checkpoints import Checkpoint
from refinesynth.train.engine.lm_head import base_model, coefficient
from refinesynth.train.engine.loading import (
    describe_model,
    load_model,
    load_tokenizer,
    make_renderer,
    stop_at,
)
from refinesynth.train.engine.loop import Loop, Task
from refinesynth.train.engine.model_writer import file_errors, written_dtype
from refinesynth.train.engine.parallel import (
    Distributed,
    all_gather_objects,
    destroy_process_group,
    make_accelerator,
    read_once,
    single_process_environment,
)
from refinesynth.train.engine.schedule import Schedule
from refinesynth.train.events import Events, NullEvents, TrainResult
from refinesynth.train.inputs import base_name
from refinesynth.train.layered_settings import portable, portable_config
from refinesynth.train.plan import Plan, Sizes, compute_settings, make_plan
from refinesynth.train.prepare import prepare
from refinesynth.train.ranks import rank, write_outcome
from refinesynth.train.tokens import TokenStore
from refinesynth.train.training_folder import CHECKPOINTS, MAY_CHANGE


@contextmanager
def libraries_silenced() -> Generator[None]:
    """Context in which libraries log errors only and show no progress bars."""
    bars = library.is_progress_bar_enabled()
    loggers = [logging.getLogger(name) for name in ("transformers", "accelerate", "peft", "DeepSpeed")]
    levels = [each.level for each in loggers]
    library.disable_progress_bar()
    for each in loggers:
        each.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # DeepSpeed and FSDP use deprecated names of torch, which a user cannot change.
            warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
            yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)
        if bars:
            library.enable_progress_bar()


@dataclass(frozen=True, slots=True, eq=False)
class PreparedTraining:
    """Inputs of a training except its model."""

    tokenizer: PreTrainedTokenizerBase
    store: TokenStore
    held_out: TokenStore | None
    plan: Plan


def prepare_training(
    config: TrainConfig, distributed: Distributed, sources: Sequence[Any] | None = None
) -> PreparedTraining:
    """Read and render the data and make the plan, on every rank separately. `sources` replaces `config.data`.

    Raises `InputError` if data, tokenizer or model cannot be used, or if the plan is infeasible.
    """
    reading = read_configured(config, sources).open()
    conversations = list(reading) if config.model == SCRATCH else reading
    tokenizer = load_tokenizer(config, conversations)
    renderer = make_renderer(config, tokenizer)
    shape, devices = describe_model(config, tokenizer), distributed.devices()
    means = compute_settings(config, devices, shape)
    training, held_out = split(conversations, config.held_out, config.seed)
    trained, kept_out = (
        prepare(part, renderer, config.max_length, config.over_length) for part in (training, held_out)
    )
    evaluated = kept_out.store if len(kept_out.store) else None
    by_source = {source.name: source for source in reading.taken}
    for example in trained.store:
        by_source[example.source].tokens += len(example)
        by_source[example.source].trained_tokens += example.trained
    for conversation in held_out:
        by_source[conversation.source].held_out += 1
    sizes = Sizes(
        counts=trained.counts,
        held_out=None if evaluated is None else kept_out.counts,
        largest_id=max(trained.store.largest_id, kept_out.store.largest_id),
        longest=max(int(part.store.lengths.max(initial=0)) for part in (trained, kept_out)),
        digest=trained.store.digest,
        sources=tuple(reading.taken),
    )
    plan = make_plan(config, sizes=sizes, model=shape, devices=devices, means=means)
    plan = replace(plan, remarks=(*plan.remarks, *_remarks(reading)))
    return PreparedTraining(renderer.tokenizer, trained.store, evaluated, plan)


def _remarks(reading: Reading) -> Iterator[str]:
    for where in reading.torn:
        yield f"{portable(where)}: the last line is cut off, as a run that was killed leaves it; it is left out"
    if reading.emptied:
        yield f"{reading.emptied} conversations are left out: without mistakes and the answers to them nothing is left of them"


_STOOD_FOR = frozenset({"data", "held_out", "deepspeed", "recipe", "trainer"})
"""Settings whose effect is part of other entries of the identity."""


def run_training(
    config: TrainConfig, *, events: Events, ready: PreparedTraining | None = None, sources: Sequence[Any] | None = None
) -> TrainResult:
    """Train on this rank; every rank of a training calls this function.

    `sources` replaces `config.data`; `ready` replaces the data, tokenizer and plan.

    Raises:
        InputError: The settings cannot be used.
        TrainingError: The training cannot continue; earlier checkpoints are sound.
    """
    is_main = rank() == 0
    try:
        with libraries_silenced():
            result = _Training(config, events, sources).result(ready)
    except RefinesynthError as exc:
        write_outcome(exc, is_main=is_main)
        raise
    except torch.OutOfMemoryError as exc:
        short = TrainingError(
            f"the device's memory is full: {str(exc).splitlines()[0]} Take fewer tokens_per_pack, gradient_checkpointing true, lora, "
            f"or parallel zero3 or fsdp on more devices."
        )
        write_outcome(short, is_main=is_main)
        raise short from exc
    if is_main:
        write_outcome(result)
    destroy_process_group()
    return result


class _Training:
    def __init__(self, config: TrainConfig, events: Events, sources: Sequence[Any] | None) -> None:
        self._config = config
        self._sources = sources
        self._distributed = Distributed.from_environment(config)
        self._events: Events = events if self._distributed.rank == 0 else NullEvents()

    def result(self, ready: PreparedTraining | None) -> TrainResult:
        config, distributed = self._config, self._distributed
        (enable_full_determinism if config.trainer.full_determinism else set_seed)(config.seed)
        ready = ready or prepare_training(config, distributed, self._sources)
        identity = self._identity(ready)
        # `planned` writes settings and plan into the folder; a refused command must not change them.
        start, remarks = self._checkpoint(identity)
        self._events.planned(ready.plan)
        for remark in remarks:
            self._events.note(remark)
        # accelerate leaves these variables set; a later training in this process would read them.
        neither = patch_environment(ACCELERATE_USE_DEEPSPEED="false", ACCELERATE_USE_FSDP="false")
        with neither, single_process_environment(ready.plan.means.parallel):
            return self._trained(ready, identity, start)

    def _trained(self, ready: PreparedTraining, identity: Mapping[str, Any], start: Checkpoint | None) -> TrainResult:
        config, means, ranks = self._config, ready.plan.means, self._distributed.world_size
        schedule = Schedule.configured(ready.store, config, ranks=ranks)
        accelerator = make_accelerator(config, means, self._distributed)
        digests = all_gather_objects((ready.store.digest, ready.held_out.digest if ready.held_out else ""))
        if any(each != digests[0] for each in digests):
            raise TrainingError(
                f"the ranks have read different data (digests {digests}); give them the same files and versions of the libraries"
            )
        load = partial(
            load_model,
            config,
            means.precision,
            gradient_checkpointing=means.gradient_checkpointing,
            tokenizer=ready.tokenizer,
            unused=ready.plan.model.unused,
        )
        model = read_once(load, self._distributed) if means.parallel == "fsdp" else load()
        stop_at(model, ready.store)

        if means.parallel in {"none", "ddp"} and not is_quantized(base_model(model)):
            model.to(accelerator.device)
        task = Task(
            ready.store,
            ready.held_out,
            schedule,
            identity,
            ready.tokenizer,
            written_dtype(config, ready.plan.model),
            coefficient(config, model),
            base_name(config),
        )
        loop = Loop(model, task, config, accelerator, events=self._events)
        with loop.interruption.watched():
            loop.train(start.path if start else None)
        if loop.interruption.signal is None:
            loop.checkpoints.bring_best_back(loop.progress)
            with file_errors(output := Path(config.output), "written"):
                loop.writer.write(output, dtype=loop.task.save_dtype)
            self._events.saved(output)
        return self._result(loop, start)

    def _identity(self, ready: PreparedTraining) -> Mapping[str, Any]:
        """Everything that determines the weights, by name."""
        means, left_out = ready.plan.means, MAY_CHANGE | _STOOD_FOR
        settings = {name: value for name, value in portable_config(self._config).items() if name not in left_out}
        passed = {f"trainer.{name}": value for name, value in self._config.trainer.deciding().items()}
        split = means.parallel in {"zero2", "zero3", "fsdp"}
        computed = {
            "tokens and labels": ready.store.digest,
            "held-out tokens": ready.held_out.digest if ready.held_out else None,
            "precision": means.precision,
            # Sharded optimizer states fit only the same number of ranks; whole states fit any number.
            "parallel": means.parallel if split else "whole",
            "ranks": self._distributed.world_size if split else None,
        }
        return settings | passed | computed

    def _checkpoint(self, identity: Mapping[str, Any]) -> tuple[Checkpoint | None, list[str]]:
        """The checkpoint to resume from, and notes for the user. Raises `InputError` if its identity differs."""
        resume = self._config.resume
        if resume == "never":
            return None, []
        if resume == "auto":
            found, remarks = checkpoints.newest(Path(self._config.output) / CHECKPOINTS)
        else:
            found, remarks = checkpoints.read(Path(resume)), []
            if isinstance(found, str):
                raise InputError(
                    f"the checkpoint {resume!r} cannot be used: {found}. Give another, or auto for the newest sound one."
                )
        if found is not None:
            checkpoints.refuse_differences(found, identity)
            remarks.append(f"Going on from {found.path}, after step {found.step}.")
        return found, remarks

    def _result(self, loop: Loop, start: Checkpoint | None) -> TrainResult:
        progress = loop.progress
        best = progress.best[0] if progress.best is not None else None
        if best is not None and (not loop.checkpoints.path(best).is_dir() or progress.kept not in {None, best}):
            best = None
        held_out = [means for step, means in progress.evaluations if step == (best or progress.step)]
        return TrainResult(
            output=Path(self._config.output),
            steps=progress.step,
            planned_steps=loop.task.schedule.steps,
            epochs=progress.step / loop.task.schedule.steps_per_epoch,
            loss=progress.last_loss,
            held_out=held_out[-1] if held_out else {},
            best_step=best,
            stopped_early=loop.stopped_early,
            signal=loop.interruption.signal,
            resumed_from=start.step if start else None,
        )
