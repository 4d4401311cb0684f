"""transformers' Trainer with the refinement loss, equation 1: the mean over the trained tokens of the whole optimizer
step.

Whole means over all ranks and all micro-batches, so that the same conversations give the same gradient however they are
packed, accumulated and spread. The library averages gradients over ranks (DDP, ZeRO and FSDP alike) and sums them over
micro-batches, so the sum of a micro-batch's losses is divided by the step's trained tokens and multiplied by the number
of ranks, once.
"""

import math
from collections.abc import Callable
from time import monotonic
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.utils.data import DataLoader
from transformers import PrinterCallback, TrainingArguments

from refinesynth.errors import TrainingError
from refinesynth.train.engine.batch import Batch, EpochLoader, MicroBatch
from refinesynth.train.engine.distributed import all_gather_objects
from refinesynth.train.engine.evaluation import held_out_batches, held_out_losses, sources_of
from refinesynth.train.engine.head import CHUNK_ELEMENTS, base_model, token_losses
from refinesynth.train.engine.interruption import Interruption, IntervalsCallback
from refinesynth.train.engine.layout import Layout
from refinesynth.train.engine.loading import can_be_broadcast
from refinesynth.train.engine.routing import Balanced
from refinesynth.train.engine.save_check import Trained
from refinesynth.train.engine.saving import SavingTrainer, Task, settings_kept
from refinesynth.train.events import LOSS, MEMORY, TOKENS_PER_SECOND, TRAINED_TOKENS_PER_SECOND, Events

_PREFIX = "eval_"
_NAMED = 10
"""Conversations that a message names."""


class RefinementTrainer(SavingTrainer):
    """Trains on a schedule of packed conversations; everything else is the library's.

    `layout` may be left out where the model can be called only once it is wrapped (ZeRO-3, FSDP); `lay_out` then finds
    it, at the beginning of the training.
    """

    def __init__(
        self,
        model: nn.Module,
        arguments: TrainingArguments,
        task: Task,
        *,
        events: Events,
        layout: Layout | None,
        lay_out: Callable[[nn.Module], Layout] | None = None,
        chunk_elements: int = CHUNK_ELEMENTS,
    ) -> None:
        self.task, self.events, self.layout = task, events, layout
        self.trained = Trained.of(model)
        self.interruption = Interruption(events.note)
        self.stopped_early = False
        self._lay_out = lay_out
        self._chunk_elements = chunk_elements
        self._pace = _Throughput()
        self._losses: list[tuple[Tensor, tuple[str, ...]]] = []
        # The library asks for an evaluation set by its own rules; `evaluate` below reads it.
        with settings_kept(model):
            super().__init__(model=cast("Any", model), args=arguments, eval_dataset=cast("Any", task.held_out))
        # compute_loss divides by the whole step's tokens itself; by these the library neither counts nor divides again.
        self.model_accepts_loss_kwargs = True
        self.loss_is_scaled_for_ga = True
        self.remove_callback(PrinterCallback)  # events report everything
        alpha, self.neftune_noise_alpha = arguments.neftune_noise_alpha, None
        self._noise = None if alpha is None else EmbeddingNoise(model, alpha)
        self.add_callback(IntervalsCallback(self.interruption, evaluates=task.held_out is not None))
        if self.is_fsdp_enabled:
            plugin = cast("Any", self.accelerator.state).fsdp_plugin
            plugin.transformer_cls_names_to_wrap = plugin.transformer_cls_names_to_wrap or _layers(model)
            plugin.cpu_ram_efficient_loading = can_be_broadcast(model)
            if arguments.bf16:
                # Sums over ranks in fp32, and losses that come out of the model as they are.
                plugin.mixed_precision_policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)

    # The loss.

    def compute_loss(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        model: nn.Module,
        inputs: MicroBatch,
        return_outputs: bool = False,  # noqa: ARG002 - the library's signature
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """This micro-batch's part of the step's mean, times the number of ranks; `num_items_in_batch` is
        `inputs["trained"]`.
        """
        batch = inputs["batch"]
        trained = int(num_items_in_batch) if num_items_in_batch is not None else inputs["trained"]
        ranks, weight = self.task.schedule.ranks, self.task.router_aux_loss
        if weight:
            balanced = Balanced(model, batch)
            loss = self.losses(model, batch, balanced).sum() * (batch.weight * ranks / max(1, trained))
            loss = loss + balanced.loss * (weight * ranks * balanced.tokens / max(1, inputs["tokens"]))
        else:
            loss = self.losses(model, batch).sum() * (batch.weight * ranks / max(1, trained))
        self._losses.append((loss.detach(), batch.ids))
        return loss

    def losses(self, model: nn.Module, batch: Batch, call: Callable[..., Any] | None = None) -> Tensor:
        """(K,) Minus log probability of the predicted tokens of `batch`; `call` is called in the model's stead."""
        layout = self._found_layout(model)
        chunk = self._chunk_elements if layout.plain_head else None
        if self._noise is not None:
            self._noise.tokens = batch.lengths
        inner = cast("nn.Module", self.accelerator.unwrap_model(cast("Any", model), keep_torch_compile=False))
        return token_losses(call or model, inner, layout.inputs(batch), batch, chunk_elements=chunk)

    def _found_layout(self, model: nn.Module) -> Layout:
        if self.layout is None:
            if self._lay_out is None:
                raise TypeError("a trainer needs a layout, or what finds one")
            self.layout = self._lay_out(model)
        return self.layout

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> int | None:
        # The schedule knows the tokens of all ranks: none have to be counted and sent.
        del device
        if not batch_samples:
            return None
        self._losses.clear()
        self._pace.step(batch_samples[0])
        return cast("MicroBatch", batch_samples[0])["trained"]

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        # Of all ranks' gradients: a loss that is no number on one rank ends all of them here, and none waits for
        # another.
        norm = cast("Any", super()._get_grad_norm(model, grad_norm=grad_norm))
        if norm is not None and not math.isfinite(float(norm)):
            raise TrainingError(self._why_not_finite(float(norm)))
        return norm

    def _why_not_finite(self, norm: float) -> str:
        step = self.state.global_step + 1
        here = [(float(loss), ids) for loss, ids in self._losses if not math.isfinite(float(loss))]
        found = [each for rank in all_gather_objects(here) for each in rank]
        sound = "The step was not done, and checkpoints of earlier steps are sound."
        if not found:
            return f"the gradient of step {step} is {norm} though its losses are finite. {sound} Try a lower learning rate, or precision fp32."
        names = sorted({name for _, ids in found for name in ids})
        shown = ", ".join([*names[:_NAMED], *(["..."] if len(names) > _NAMED else [])])
        return (
            f"the loss of step {step} is {found[0][0]}, in conversations {shown}. {sound} A lower learning rate helps if the loss had "
            f"been rising; weights or data that are broken show themselves in the first steps."
        )

    # The data.

    @property
    def _rank(self) -> int:
        return cast("int", self.args.process_index)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """This rank's micro-batches."""
        return EpochLoader(self.task.store, self.task.schedule, self._rank)

    def _prepare_inputs(self, inputs: Any) -> Any:
        return {**inputs, "batch": cast("Batch", inputs["batch"]).to(self.args.device)}

    def floating_point_ops(self, inputs: Any) -> int:  # noqa: ARG002 - the library's signature
        """Not counted: the library's estimate knows neither packs nor a head on some positions."""
        return 0

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # The library begins one more step when it resumes at the very end of a training that ends within an epoch.
        if self.state.global_step >= self.state.max_steps:
            return
        if self._is_no_better():  # its end was saved, and what follows was not
            self.stopped_early = self.control.should_training_stop = True
            return
        super()._run_epoch(*args, **kwargs)

    # Evaluation.

    def evaluate(self, *_args: Any, **_kwargs: Any) -> dict[str, float]:
        """The losses on what is held out, by the names in `train/events.py` with `eval_` before them."""
        if self.task.held_out is None:
            return {}
        model = cast("nn.Module", self.model_wrapped)
        schedule = self.task.schedule
        batches = held_out_batches(
            self.task.held_out,
            capacity=schedule.capacity,
            packed=schedule.packed,
            rank=self._rank,
            ranks=schedule.ranks,
        )
        sources = sources_of(self.task.held_out)
        model.eval()
        with self.compute_loss_context_manager():
            means = held_out_losses(
                batches,
                lambda batch: self.losses(model, batch),
                self.args.device,
                sources,
                each_source=len({*sources, *self.task.store.sources}) > 1,
            )
        metrics = {f"{_PREFIX}{name}": value for name, value in means.items()}
        self.log(metrics)
        if self.is_world_process_zero():
            self.events.evaluated(self.state.global_step, means)
        self.control = cast("Any", self.callback_handler).on_evaluate(self.args, self.state, self.control, metrics)
        self._pace.leave_out()
        return metrics

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        best = super()._determine_best_metric(metrics, trial)
        if best:
            self.control.should_save = self.args.save_strategy != "no"
        elif self._is_no_better():
            self.stopped_early = True
            self.control.should_training_stop = True
            self.control.should_save = self.args.save_strategy != "no"
        return best

    def _is_no_better(self) -> bool:
        """Whether as many evaluations as are waited for came after the best one, be that saved or not."""
        name = f"{_PREFIX}{LOSS}"
        every = [float(entry[name]) for entry in self.state.log_history if name in entry]
        losses = [math.inf if math.isnan(loss) else loss for loss in every]
        if self.task.early_stop is None or not losses:
            return False
        return len(losses) - 1 - losses.index(min(losses)) >= self.task.early_stop

    # Reports and logs.

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the throughput to what the library logs, and report it."""
        training = LOSS in logs
        if training:
            logs = {**logs, **self._pace.taken()}
            if torch.cuda.is_available() and self.args.device.type == "cuda":
                logs[MEMORY] = torch.cuda.max_memory_allocated() / 2**30
        super().log(logs, start_time)
        if training and self.is_world_process_zero():
            metrics = {name: float(value) for name, value in self.state.log_history[-1].items() if name != "step"}
            self.events.logged(self.state.global_step, metrics)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        self._pace.leave_out()


def _layers(model: nn.Module) -> list[str] | None:
    """Classes that FSDP splits one by one: those that the library names, which in multimodal models need not all be
    there.
    """
    named = set[str](getattr(base_model(model), "_no_split_modules", None) or ())
    return sorted(named.intersection(type(module).__name__ for module in model.modules())) or None


class _Throughput:
    """Tokens and seconds since the last line of metrics, evaluations and saving left out."""

    def __init__(self) -> None:
        self._tokens = self._trained = 0
        self._seconds = 0.0
        self._since: float | None = None

    def step(self, first: MicroBatch) -> None:
        self._count_time()
        self._since = monotonic()
        self._tokens += first["tokens"]
        self._trained += first["trained"]

    def leave_out(self) -> None:
        if self._since is not None:
            self._since = monotonic()

    def taken(self) -> dict[str, float]:
        self._count_time()
        self._since = monotonic()
        seconds = max(self._seconds, 1e-9)
        pace = {TOKENS_PER_SECOND: self._tokens / seconds, TRAINED_TOKENS_PER_SECOND: self._trained / seconds}
        self._tokens = self._trained = 0
        self._seconds = 0.0
        return pace

    def _count_time(self) -> None:
        if self._since is not None:
            self._seconds += monotonic() - self._since


class EmbeddingNoise:
    """Adds uniform noise up to alpha / sqrt(tokens x width) to what the model's embeddings give in training.

    The tokens are those of a token's conversation. The library's own hook would count those of the whole row: a pack of
    ten conversations would get a third of the noise, and padding would change it.
    """

    def __init__(self, model: nn.Module, alpha: float) -> None:
        self._alpha = alpha
        self.tokens = torch.ones(1, 1)
        """(rows, T) or (rows, 1) Tokens of the conversation that each token of the next forward pass is of."""
        cast("Any", base_model(model)).get_input_embeddings().register_forward_hook(self._added)

    def _added(self, embeddings: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        if not embeddings.training:
            return output
        most = self._alpha / (self.tokens * output.shape[-1]).sqrt()
        return output + torch.empty_like(output).uniform_(-1, 1) * most[..., None].to(output.dtype)
