"""Training loop on accelerate, whose step loss is the mean over all trained tokens of the step.

A step is `batch_size` conversations in micro-batches over ranks. accelerate averages gradients over ranks (DDP, ZeRO,
FSDP) and sums them over micro-batches. The sum of a micro-batch's losses is divided by the step's trained tokens and
multiplied by the number of ranks: the gradient does not depend on packing, accumulation and ranks.
"""

import math
import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any, Final, Literal, cast

import torch
import torch.distributed as dist
from accelerate import Accelerator, DistributedType
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from refinesynth.errors import TrainingError
from refinesynth.train import events as names
from refinesynth.train.config import TrainConfig, interval
from refinesynth.train.engine.batch_layout import choose_layout
from refinesynth.train.engine.checkpoints import Checkpoints, Progress
from refinesynth.train.engine.lm_head import (
    CHUNK_ELEMENTS,
    KINDS,
    TURN_LABELS,
    Batch,
    base_model,
    labelled_targets,
    pack_batch,
    token_losses,
)
from refinesynth.train.engine.model_writer import ModelWriter, TrainedTensors
from refinesynth.train.engine.parallel import make_optimizer, make_schedule, start_trackers, wrap_layers
from refinesynth.train.engine.schedule import Schedule, Step, pack_best_fit
from refinesynth.train.events import Events
from refinesynth.train.inputs import base_name
from refinesynth.train.labelled_conversation import TurnLabel
from refinesynth.train.plan import Plan
from refinesynth.train.tokens import TokenStore
from refinesynth.train.training_folder import CHECKPOINTS

_LOSS_NAMES: Final = {
    TurnLabel.CORRECT: names.LOSS_CORRECT,
    TurnLabel.REFINEMENT: names.LOSS_REFINEMENT,
    TurnLabel.MISTAKE: names.LOSS_MISTAKE,
}


@dataclass(frozen=True, slots=True, eq=False)
class PreparedTraining:
    """Inputs of a training except its model and settings."""

    tokenizer: PreTrainedTokenizerBase | None
    """Saved with every checkpoint."""
    store: TokenStore
    held_out: TokenStore | None
    plan: Plan


class Loop:
    """Training on one rank; all ranks call its methods in the same order.

    `identity` is everything that determines the weights, and stored in every checkpoint. Raises `InputError` if the model
    cannot be packed, or cannot use the attention of the settings.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: PreparedTraining,
        config: TrainConfig,
        accelerator: Accelerator,
        *,
        identity: Mapping[str, Any],
        events: Events,
        chunk_elements: int = CHUNK_ELEMENTS,
    ) -> None:
        self.config, self.accelerator, self.events, self.model = config, accelerator, events, model
        self.store, self.held_out = inputs.store, inputs.held_out
        self.schedule = Schedule.from_config(inputs.store, config, ranks=accelerator.num_processes)
        self.interruption = Interruption(events.note)
        self.progress = Progress()
        self._tokens = self._trained_tokens = 0
        self._seconds = 0.0
        """Duration of the steps since the last log line, without evaluations and saving."""
        self._losses: list[Tensor] = []
        """Loss of each of the step's micro-batches."""
        kind = accelerator.distributed_type
        choose = partial(
            choose_layout,
            model,
            attention=config.attention,
            packing=config.packing,
            backward=kind != DistributedType.DEEPSPEED,
            autocast=cast("Any", accelerator.autocast),
        )
        # DDP reads `requires_grad` when it wraps the model: freeze before. A sharded model can be called only wrapped.
        is_sharded = kind in {DistributedType.DEEPSPEED, DistributedType.FSDP}
        layout = None if is_sharded else choose()
        alpha = config.trainer.neftune_noise_alpha
        self._noise = None if alpha is None else EmbeddingNoise(model, alpha)
        trained = TrainedTensors.from_model(model)
        wrap_layers(accelerator, model)
        optimizer = make_optimizer(model, config, cuda=accelerator.device.type == "cuda")
        wrapped, self.optimizer = cast("tuple[nn.Module, Any]", accelerator.prepare(model, optimizer))
        self.wrapped = wrapped
        self.lr_scheduler = make_schedule(self.optimizer, config, self.schedule.steps)
        self.writer = ModelWriter(accelerator, wrapped, trained, inputs.tokenizer, base_name(config))
        folder = Path(config.output) / CHECKPOINTS
        self.checkpoints = Checkpoints(
            folder, self.writer, self.optimizer, self.lr_scheduler, identity, config.keep, events
        )
        self.layout = layout or choose(wrapped=wrapped)
        if self.layout.note:
            events.note(self.layout.note)
        self._chunk_elements = chunk_elements if self.layout.plain_head else None
        start_trackers(accelerator, config)

    # Steps.

    def train(self, start: Path | None = None) -> None:
        """Train from the checkpoint `start` to the end of the schedule or a signal.

        Raises:
            TrainingError: A gradient is not finite, or a checkpoint cannot be written or read. DeepSpeed has then
                already applied the gradient.
        """
        if start is not None:
            self.progress = self.checkpoints.read(start)
        config, progress, schedule = self.config, self.progress, self.schedule
        eval_every = config.evaluate_every if self.held_out is not None else "never"
        evaluating, saving = (interval(every, schedule.steps_per_epoch) for every in (eval_every, config.save_every))
        while progress.step < schedule.steps and self.interruption.signal is None:
            started = monotonic()
            norm, rate = self._step(*divmod(progress.step, schedule.steps_per_epoch))
            self._seconds += monotonic() - started
            progress.step += 1
            last = progress.step == schedule.steps
            interrupted = self.interruption.check_all_ranks(self.accelerator.device)
            if last or interrupted or progress.step % config.log_every == 0:
                self._log(norm, rate)
            save_now = saving is not None and (last or progress.step % saving == 0)
            if evaluating is not None and (last or progress.step % evaluating == 0):
                improved = self.evaluate_and_report()
                save_now = save_now or (saving is not None and improved)
            if save_now or interrupted:
                self.checkpoints.write(progress)
        for tracker in self.accelerator.trackers:
            tracker.finish()

    def _step(self, epoch: int, step_in_epoch: int) -> tuple[float, float]:
        """Do one optimizer step; return the gradient norm before clipping and the learning rate."""
        accelerator, wrapped, config = self.accelerator, self.wrapped, self.config
        kind = accelerator.distributed_type
        packs = self.schedule.step(epoch, step_in_epoch)
        self._tokens += int(self.schedule.lengths[self.schedule.conversations(epoch, step_in_epoch)].sum())
        self._trained_tokens += packs.trained
        self._losses.clear()
        wrapped.train()
        for number, batch in enumerate(batches := [*self._batches(packs)], start=1):
            accelerator.sync_gradients = number == len(batches)
            # accelerate passes `sync_gradients` to DeepSpeed; FSDP without sync would hold unsharded gradients.
            skip_sync = kind in {DistributedType.MULTI_CPU, DistributedType.MULTI_GPU} and number < len(batches)
            with accelerator.no_sync(wrapped) if skip_sync else nullcontext():
                loss = self.loss(batch, packs.trained)
                # The loss is already a share of the step's mean: DeepSpeed must not divide it again.
                options = {"scale_wrt_gas": False} if kind == DistributedType.DEEPSPEED else {}
                accelerator.backward(loss, **options)
        total_norm = cast("Any", accelerator.clip_grad_norm_(wrapped.parameters(), config.max_grad_norm or math.inf))
        norm = float(total_norm.full_tensor() if hasattr(total_norm, "full_tensor") else total_norm)
        if not math.isfinite(norm):
            raise TrainingError(
                f"the gradient of step {self.progress.step + 1} is {norm}. No checkpoint holds this step; those of earlier steps are sound. A "
                "lower learning rate or precision fp32 helps if the loss had been rising; broken weights or data show in the first steps."
            )
        rate = float(self.lr_scheduler.get_last_lr()[0])
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.lr_scheduler.step()
        step_loss = torch.stack(self._losses).sum()
        self.progress.loss += float(cast("Tensor", accelerator.reduce(step_loss, "mean")))
        self.progress.unlogged += 1
        return norm, rate

    def _batches(self, step: Step) -> Iterator[Batch]:
        for packs in step.packs:
            pack = packs[self.accelerator.process_index]
            yield pack_batch([self.store[k] for k in pack]).to(self.accelerator.device)

    def loss(self, batch: Batch, trained: int) -> Tensor:
        """A micro-batch's share of the step's mean loss, times the number of ranks.

        `trained` counts tokens of the whole step, over all ranks and micro-batches.
        """
        loss = self.losses(batch).sum() * (batch.weight * self.schedule.ranks / max(1, trained))
        self._losses.append(loss.detach())
        return loss

    def losses(self, batch: Batch) -> Tensor:
        """(K,) Negative log probability of the predicted tokens of `batch`."""
        if self._noise is not None:
            self._noise.tokens = batch.lengths
        inputs = self.layout.inputs(batch)
        return token_losses(self.wrapped, self.model, inputs, batch, chunk_elements=self._chunk_elements)

    # Evaluation.

    def evaluate(self) -> dict[str, float]:
        """Mean held-out loss per token over all ranks, by name (`train/events.py`); kinds without tokens are absent."""
        held_out, schedule, device = self.held_out, self.schedule, self.accelerator.device
        if held_out is None:
            return {}
        lengths = [int(length) for length in held_out.lengths]
        packs = pack_best_fit(lengths, max(schedule.capacity, max(lengths, default=1)) if schedule.packed else 1)
        packs += [()] * (-len(packs) % schedule.ranks)  # all ranks need the same number of forward passes
        source_index = {name: index for index, name in enumerate(held_out.sources)}
        sums = torch.zeros(2, len(source_index) * KINDS, dtype=torch.float64, device=device)
        self.wrapped.eval()
        with torch.no_grad():
            for indices in packs[self.accelerator.process_index :: schedule.ranks]:
                examples = [held_out[k] for k in indices]
                batch = pack_batch(examples, lambda item: labelled_targets(item, source_index[item.source])).to(device)
                losses = self.losses(batch).double() * batch.weight
                sums[0].index_add_(0, batch.kind, losses)
                sums[1].index_add_(0, batch.kind, torch.full_like(losses, batch.weight))
        sums = cast("Tensor", self.accelerator.reduce(sums, "sum"))
        parts = sums.view(2, -1, len(TURN_LABELS) + 1, 2)  # loss and count; source; turn label; not trained, trained
        by_label, trained = parts.sum(1), parts[..., 1].sum(2)
        means = {names.LOSS: trained.sum(1)}
        means |= {_LOSS_NAMES[label]: by_label[:, k].sum(1) for k, label in enumerate(TURN_LABELS)}
        if len({*source_index, *self.store.sources}) > 1:
            means |= {f"{names.SOURCE_LOSS}{name}": trained[:, index] for name, index in source_index.items()}
        return {name: float(total / count) for name, (total, count) in means.items() if count > 0}

    def evaluate_and_report(self) -> bool:
        """Evaluate and report; return True if the loss is the lowest so far."""
        means = self.evaluate()
        improved = self.progress.evaluated(means)
        self._report("eval", means)
        return improved

    # Reports.

    def _log(self, norm: float, rate: float) -> None:
        progress, seconds = self.progress, max(self._seconds, 1e-9)
        progress.last_loss = progress.loss / max(1, progress.unlogged)
        metrics: dict[str, float] = {
            names.LOSS: progress.last_loss,
            names.GRAD_NORM: norm,
            names.LEARNING_RATE: rate,
            names.EPOCH: progress.step / self.schedule.steps_per_epoch,
            names.TOKENS_PER_SECOND: self._tokens / seconds,
            names.TRAINED_TOKENS_PER_SECOND: self._trained_tokens / seconds,
        }
        if self.accelerator.device.type == "cuda":
            metrics[names.MEMORY] = torch.cuda.max_memory_allocated() / 2**30
        progress.loss, progress.unlogged = 0.0, 0
        self._tokens, self._trained_tokens, self._seconds = 0, 0, 0.0
        self._report("train", metrics)

    def _report(self, kind: Literal["train", "eval"], metrics: Mapping[str, float]) -> None:
        if self.accelerator.is_main_process:
            (self.events.logged if kind == "train" else self.events.evaluated)(self.progress.step, metrics)
        self.accelerator.log({f"{kind}/{name}": value for name, value in metrics.items()}, step=self.progress.step)


class EmbeddingNoise:
    """Uniform noise up to alpha / sqrt(tokens x width) on the embeddings in training (NEFTune).

    `tokens` is the length of each token's conversation; transformers' hook counts the whole row.
    """

    def __init__(self, model: nn.Module, alpha: float) -> None:
        self._alpha = alpha
        self.tokens = torch.ones(1, 1)
        """(1, T) Length of each token's conversation in the next forward pass."""
        cast("Any", base_model(model)).get_input_embeddings().register_forward_hook(self._add_noise)

    def _add_noise(self, embeddings: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        if not embeddings.training:
            return output
        # The trial of a sharded model runs before the first batch.
        bound = self._alpha / (self.tokens.to(output.device) * output.shape[-1]).sqrt()
        return output + torch.empty_like(output).uniform_(-1, 1) * bound[..., None].to(output.dtype)


_SAME_SIGNAL_SECONDS: Final = 0.2
"""Seconds in which a second signal counts as the same: launcher and terminal may both send one."""
_INTERRUPTED_NOTE: Final = "interrupted: finishing this step and saving a checkpoint; once more ends it at once"


class Interruption:
    """Handler of signals that end the training; `note` gets a message at once, because a step may take a minute."""

    def __init__(self, note: Callable[[str], object]) -> None:
        self._note = note
        self.signal: int | None = None
        """Signal that any rank received, as of the last call of `check_all_ranks`."""
        self._received = 0

    @contextmanager
    def watched(self) -> Generator[None]:
        """Context in which the first SIGTERM or SIGINT is only recorded; a second one has its usual effect.

        In threads other than the main thread, nothing is changed.
        """
        previous: dict[int, Any] = {}
        received_at = 0.0

        def restore() -> None:
            for number, handler in previous.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

        def handle(number: int, _frame: FrameType | None) -> None:
            nonlocal received_at
            if self._received:
                if monotonic() - received_at > _SAME_SIGNAL_SECONDS:
                    restore()
                    signal.raise_signal(number)
                return
            self._received, received_at = number, monotonic()
            # A write to the same stream may be in progress; the message is then dropped.
            with suppress(RuntimeError):
                self._note(_INTERRUPTED_NOTE)

        try:
            with suppress(ValueError):
                previous.update((number, signal.signal(number, handle)) for number in (signal.SIGTERM, signal.SIGINT))
            yield
        finally:
            restore()

    def check_all_ranks(self, device: torch.device) -> bool:
        """Return True if any rank received a signal; all ranks call this after the same steps."""
        received = self._received
        if dist.is_initialized():
            maximum = torch.tensor(received, device=device)
            dist.all_reduce(maximum, op=dist.ReduceOp.MAX)
            received = int(maximum)
        self.signal = received or None
        return bool(received)
