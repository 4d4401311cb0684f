"""Training loop on accelerate: optimizer steps of whole batches, with one mean over all their trained tokens.

A step is `batch_size` conversations, cut into micro-batches and dealt to ranks by the schedule. accelerate averages
gradients over ranks (DDP, ZeRO and FSDP alike) and sums them over micro-batches, so the sum of a micro-batch's losses is
divided by the step's trained tokens and multiplied by the number of ranks, once: the same conversations give the same
gradient however they are packed, accumulated and spread.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final, cast

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from transformers import get_scheduler
from transformers.trainer_pt_utils import get_parameter_names

from refinesynth.errors import TrainingError
from refinesynth.train import events as names
from refinesynth.train.config import TrainConfig, interval
from refinesynth.train.engine.batch import Batch, pack_batch, pad_batch
from refinesynth.train.engine.distributed import all_gather_objects
from refinesynth.train.engine.evaluation import held_out_batches, held_out_losses, sources_of
from refinesynth.train.engine.head import CHUNK_ELEMENTS, token_losses
from refinesynth.train.engine.interruption import Interruption
from refinesynth.train.engine.layout import Layout
from refinesynth.train.engine.resuming import Progress, Resumable
from refinesynth.train.engine.routing import Balanced
from refinesynth.train.engine.saving import Task
from refinesynth.train.engine.schedule import Schedule
from refinesynth.train.events import Events

_NAMED: Final = 10
"""Conversations that a message names."""
_NEVER_DECAYED: Final = [nn.LayerNorm]


@dataclass(frozen=True, slots=True)
class Stopped:
    """How the loop ended."""

    progress: Progress
    signal: int | None
    early: bool


def train(
    model: nn.Module,
    task: Task,
    config: TrainConfig,
    accelerator: Accelerator,
    *,
    lay_out: Callable[[nn.Module], Layout],
    events: Events,
    save: Callable[["Resumable"], Path],
    resume: Callable[["Resumable"], Progress] | None = None,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> Stopped:
    """Train `model` on this rank, to the end of the schedule, an early stop or a signal; every rank calls this.

    `lay_out` finds the layout once the model is wrapped, `save` writes a checkpoint, and `resume` brings weights,
    optimizer and random states back and says where to go on.

    Raises:
        TrainingError: A gradient is not finite; the step was not done, but for DeepSpeed, which does it by itself.
    """
    schedule = task.schedule
    optimizer = adamw(model, config)
    wrapped, prepared = cast("tuple[nn.Module, Optimizer]", accelerator.prepare(model, optimizer))
    rates = get_scheduler(
        "constant_with_warmup" if config.schedule == "constant" and config.warmup else config.schedule,
        prepared,
        round(config.warmup * schedule.steps) if config.warmup < 1 else round(config.warmup),
        schedule.steps,
    )
    layout = lay_out(wrapped)
    losses = _Losses(wrapped, accelerator, layout, chunk_elements if layout.plain_head else None)
    state = Resumable(accelerator, wrapped, prepared, rates, Progress())
    if resume is not None:
        state.progress = resume(state)
    loop = _Loop(task, config, state, losses, events, save)
    with loop.interruption.watched():
        return loop.run()


def adamw(model: nn.Module, config: TrainConfig) -> Optimizer:
    """AdamW over what is trained; biases and norms do not decay."""
    decayed = set(get_parameter_names(model, _NEVER_DECAYED, ["bias", "layernorm", "rmsnorm", r"(?:^|\.)norm(?:$|\.)"]))
    trained = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    groups = [
        {"params": [one for name, one in trained if name in decayed], "weight_decay": config.weight_decay},
        {"params": [one for name, one in trained if name not in decayed], "weight_decay": 0.0},
    ]
    fused = all(one.is_cuda for _, one in trained)
    return AdamW(groups, lr=config.learning_rate, betas=config.adam_betas, fused=fused or None)


@dataclass(slots=True)
class _Losses:
    """Losses of single tokens, by the model as it is wrapped."""

    model: nn.Module
    accelerator: Accelerator
    layout: Layout
    chunk: int | None

    def __call__(self, batch: Batch, call: Callable[..., Any] | None = None) -> Tensor:
        """(K,) Minus log probability of each predicted token of `batch`."""
        inner = cast("nn.Module", self.accelerator.unwrap_model(self.model, keep_torch_compile=False))
        inputs = self.layout.inputs(batch)
        return token_losses(call or self.model, inner, inputs, batch, chunk_elements=self.chunk)


@dataclass(slots=True)
class _Loop:
    task: Task
    config: TrainConfig
    state: Resumable
    losses: _Losses
    events: Events
    save: Callable[[Resumable], Path]
    interruption: Interruption = field(init=False)
    pace: "_Throughput" = field(init=False)

    def __post_init__(self) -> None:
        self.interruption, self.pace = Interruption(self.events.note), _Throughput()

    @property
    def accelerator(self) -> Accelerator:
        return self.state.accelerator

    @property
    def schedule(self) -> Schedule:
        return self.task.schedule

    def run(self) -> Stopped:
        progress, schedule = self.state.progress, self.schedule
        every = self.config.evaluate_every if self.task.held_out is not None else "never"
        evaluating, saving = (interval(each, schedule.steps_per_epoch) for each in (every, self.config.save_every))
        early = self.is_no_better()
        while progress.step < schedule.steps and not early and self.interruption.signal is None:
            total, norm = self.step(*divmod(progress.step, schedule.steps_per_epoch))
            progress.step += 1
            progress.loss, progress.unlogged = progress.loss + total, progress.unlogged + 1
            last = progress.step == schedule.steps
            ended = self.interruption.everywhere(self.accelerator.device)
            if last or ended or progress.step % self.config.log_every == 0:
                self.log(norm)
            saves = saving is not None and (last or progress.step % saving == 0)
            if evaluating is not None and (last or progress.step % evaluating == 0):
                better = self.evaluate()
                early = self.is_no_better()
                saves = saves or (saving is not None and (better or early))
            if saves or ended:
                self.events.saved(self.save(self.state))
                self.pace.leave_out()
        return Stopped(progress, self.interruption.signal, early)

    def step(self, epoch: int, within: int) -> tuple[float, float]:
        """One optimizer step; the loss, and the norm of the gradient before it was clipped."""
        accelerator, state = self.accelerator, self.state
        batches = [*self.batches(epoch, within)]
        trained = self.schedule.step(epoch, within).trained
        tokens = int(self.schedule.lengths[self.schedule.conversations(epoch, within)].sum())
        self.pace.step(tokens, trained)
        state.model.train()
        told: list[tuple[Tensor, tuple[str, ...]]] = []
        for number, batch in enumerate(batches, start=1):
            # DeepSpeed counts by itself; FSDP's gradients would be whole on every device without sync.
            accelerator.sync_gradients = number == len(batches)
            quiet = not accelerator.sync_gradients and self.copies
            with accelerator.no_sync(state.model) if quiet else nullcontext():
                loss = self.loss(batch, trained, tokens)
                told.append((loss.detach(), batch.ids))
                accelerator.backward(loss, **({"scale_wrt_gas": False} if self.deepspeed else {}))
        norm = accelerator.clip_grad_norm_(state.model.parameters(), self.config.max_grad_norm or math.inf)
        norm = float(cast("Any", norm))
        if not math.isfinite(norm):
            raise TrainingError(self.why_not_finite(norm, told))
        state.optimizer.step()
        state.rates.step()
        state.optimizer.zero_grad()
        mean = cast("Tensor", accelerator.reduce(sum(loss for loss, _ in told), "mean"))
        return float(mean), norm

    @property
    def copies(self) -> bool:
        return str(self.accelerator.distributed_type) in {"DistributedType.MULTI_CPU", "DistributedType.MULTI_GPU"}

    @property
    def deepspeed(self) -> bool:
        return str(self.accelerator.distributed_type) == "DistributedType.DEEPSPEED"

    def batches(self, epoch: int, within: int) -> Iterator[Batch]:
        """This rank's micro-batches of a step."""
        make = pack_batch if self.schedule.packed else pad_batch
        for packs in self.schedule.step(epoch, within).packs:
            mine = packs[self.accelerator.process_index]
            yield make([self.task.store[k] for k in mine]).to(self.accelerator.device)

    def loss(self, batch: Batch, trained: int, tokens: int) -> Tensor:
        """A micro-batch's part of the step's mean, times the number of ranks."""
        ranks, weight = self.schedule.ranks, self.task.router_aux_loss
        share = batch.weight * ranks / max(1, trained)
        if not weight:
            return self.losses(batch).sum() * share
        balanced = Balanced(self.state.model, batch)
        loss = self.losses(batch, balanced).sum() * share
        return loss + balanced.loss * (weight * ranks * balanced.tokens / max(1, tokens))

    def why_not_finite(self, norm: float, told: list[tuple[Tensor, tuple[str, ...]]]) -> str:
        step = self.state.progress.step + 1
        here = [(float(loss), ids) for loss, ids in told if not math.isfinite(float(loss))]
        found = [each for rank in all_gather_objects(here) for each in rank]
        sound = "The step was not done, and checkpoints of earlier steps are sound."
        if not found:
            return f"the gradient of step {step} is {norm} though its losses are finite. {sound} Try a lower learning rate, or precision fp32."
        every = sorted({name for _, ids in found for name in ids})
        shown = ", ".join([*every[:_NAMED], *(["..."] if len(every) > _NAMED else [])])
        return (
            f"the loss of step {step} is {found[0][0]}, in conversations {shown}. {sound} A lower learning rate helps if the loss had "
            f"been rising; weights or data that are broken show themselves in the first steps."
        )

    def evaluate(self) -> bool:
        """Evaluate on what is held out; whether the loss is the least so far."""
        held_out, progress, schedule = self.task.held_out, self.state.progress, self.schedule
        if held_out is None:
            return False
        batches = held_out_batches(
            held_out,
            capacity=schedule.capacity,
            packed=schedule.packed,
            rank=self.accelerator.process_index,
            ranks=schedule.ranks,
        )
        sources = sources_of(held_out)
        self.state.model.eval()
        means = held_out_losses(
            batches,
            self.losses,
            self.accelerator.device,
            sources,
            each_source=len({*sources, *self.task.store.sources}) > 1,
        )
        better = progress.evaluated(means)
        self.events.evaluated(progress.step, means)
        self.pace.leave_out()
        return better

    def is_no_better(self) -> bool:
        """Whether as many evaluations as are waited for came after the best one."""
        losses = [each[names.LOSS] for _, each in self.state.progress.evaluations]
        losses = [math.inf if math.isnan(loss) else loss for loss in losses]
        waits = self.task.early_stop
        return waits is not None and bool(losses) and len(losses) - 1 - losses.index(min(losses)) >= waits

    def log(self, norm: float) -> None:
        progress = self.state.progress
        metrics: Mapping[str, float] = {
            names.LOSS: progress.loss / max(1, progress.unlogged),
            names.GRAD_NORM: norm,
            names.LEARNING_RATE: self.state.rates.get_last_lr()[0],
            names.EPOCH: progress.step / self.schedule.steps_per_epoch,
            **self.pace.taken(),
            **(
                {names.MEMORY: torch.cuda.max_memory_allocated() / 2**30}
                if self.accelerator.device.type == "cuda"
                else {}
            ),
        }
        progress.last_loss, progress.loss, progress.unlogged = metrics[names.LOSS], 0.0, 0
        self.events.logged(progress.step, metrics)
        self.accelerator.log(dict(metrics), step=progress.step)


class _Throughput:
    """Tokens and seconds since the last line of metrics, evaluations and saving left out."""

    def __init__(self) -> None:
        self._tokens = self._trained = 0
        self._seconds = 0.0
        self._since: float | None = None

    def step(self, tokens: int, trained: int) -> None:
        self._count_time()
        self._since = monotonic()
        self._tokens += tokens
        self._trained += trained

    def leave_out(self) -> None:
        if self._since is not None:
            self._since = monotonic()

    def taken(self) -> dict[str, float]:
        self._count_time()
        self._since = monotonic()
        seconds = max(self._seconds, 1e-9)
        pace = {
            names.TOKENS_PER_SECOND: self._tokens / seconds,
            names.TRAINED_TOKENS_PER_SECOND: self._trained / seconds,
        }
        self._tokens = self._trained = 0
        self._seconds = 0.0
        return pace

    def _count_time(self) -> None:
        if self._since is not None:
            self._seconds += monotonic() - self._since
