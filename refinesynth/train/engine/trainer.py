"""transformers' Trainer with the refinement loss, equation 1: the mean over the trained tokens of the whole optimizer step.

Whole means over all ranks and all micro-batches, so that the same conversations give the same gradient however they are packed,
accumulated and spread. The library averages gradients over ranks (DDP, ZeRO and FSDP alike) and sums them over micro-batches,
so the sum of a micro-batch's losses is divided by the step's trained tokens and multiplied by the number of ranks, once.
"""

# torch and transformers are typed in part: pyright may not know all of a member that is used here.
# pyright: reportUnknownMemberType=false

import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from time import monotonic
from typing import Any, Literal, cast

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase, PrinterCallback, Trainer, TrainingArguments
from transformers.trainer import TRAINING_ARGS_NAME

from refinesynth.errors import TrainingError
from refinesynth.train.engine import checkpoints
from refinesynth.train.engine.batch import Batch
from refinesynth.train.engine.evaluation import held_out_batches, losses_by_kind
from refinesynth.train.engine.flow import Flow
from refinesynth.train.engine.head import CHUNK_ELEMENTS, token_losses
from refinesynth.train.engine.interruption import Interruption
from refinesynth.train.engine.loader import EpochLoader, MicroBatch
from refinesynth.train.engine.probing import Layout
from refinesynth.train.engine.schedule import Schedule
from refinesynth.train.engine.world import over_ranks
from refinesynth.train.events import LOSS, MEMORY, TOKENS_PER_SECOND, TRAINED_TOKENS_PER_SECOND, Events
from refinesynth.train.tokens import TokenStore

_PREFIX = "eval_"
_NAMED = 10
"""Conversations that a message names."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What a trainer is given besides the model and the library's arguments."""

    store: TokenStore
    held_out: TokenStore | None
    schedule: Schedule
    identity: Mapping[str, Any]
    """What decides about the weights; kept in every checkpoint."""
    keep: Literal["all"] | int
    """Checkpoints kept besides the best."""
    early_stop: int | None
    """Evaluations without a better loss before the end."""
    tokenizer: PreTrainedTokenizerBase | None
    """Saved with every checkpoint."""


class RefinementTrainer(Trainer):
    """Trains on a schedule of packed conversations; everything else is the library's.

    `layout` may be left out where the model can be called only once it is wrapped (ZeRO-3, FSDP); `lay_out` then finds it, at
    the beginning of the training.
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
        self.interruption = Interruption(events.note)
        self.stopped_early = False
        self._lay_out = lay_out
        self._chunk_elements = chunk_elements
        self._pace = _Pace()
        self._losses: list[tuple[Tensor, tuple[str, ...]]] = []
        # The library asks for an evaluation set by its own rules; `evaluate` below reads it.
        super().__init__(model=cast("Any", model), args=arguments, eval_dataset=cast("Any", task.held_out))
        # compute_loss divides by the whole step's tokens itself; by these the library neither counts nor divides again.
        self.model_accepts_loss_kwargs = True
        self.loss_is_scaled_for_ga = True
        self.remove_callback(PrinterCallback)  # what is said is said by events
        self.add_callback(Flow(self.interruption, evaluates=task.held_out is not None))
        if self.is_fsdp_enabled and arguments.bf16:
            # Sums over ranks in fp32, and losses that come out of the model as they are.
            cast("Any", self.accelerator.state).fsdp_plugin.mixed_precision_policy = MixedPrecisionPolicy(
                torch.bfloat16, torch.float32
            )

    # The loss.

    def compute_loss(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        model: nn.Module,
        inputs: MicroBatch,
        return_outputs: bool = False,  # noqa: ARG002 - the library's signature
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """This micro-batch's part of the step's mean, times the number of ranks; `num_items_in_batch` is `inputs["trained"]`."""
        batch = inputs["batch"]
        trained = int(num_items_in_batch) if num_items_in_batch is not None else inputs["trained"]
        loss = self.losses(model, batch).sum() * (batch.weight * self.task.schedule.ranks / max(1, trained))
        self._losses.append((loss.detach(), batch.ids))
        return loss

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """(K,) Minus log probability of the predicted tokens of `batch`."""
        layout = self._found_layout(model)
        chunk = self._chunk_elements if layout.plain_head else None
        inner = cast("nn.Module", self.accelerator.unwrap_model(cast("Any", model), keep_torch_compile=False))
        return token_losses(model, inner, layout.inputs(batch), batch, chunk_elements=chunk)

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
        # Of all ranks' gradients: a loss that is no number on one rank ends all of them here, and none waits for another.
        norm = cast("Any", super()._get_grad_norm(model, grad_norm=grad_norm))
        if norm is not None and not math.isfinite(float(norm)):
            raise TrainingError(self._why_not_finite(float(norm)))
        return norm

    def _why_not_finite(self, norm: float) -> str:
        step = self.state.global_step + 1
        here = [(float(loss), ids) for loss, ids in self._losses if not math.isfinite(float(loss))]
        found = [each for rank in over_ranks(here) for each in rank]
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
        model.eval()
        with self.compute_loss_context_manager():
            means = losses_by_kind(batches, lambda batch: self.losses(model, batch), self.args.device)
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

    # What is told and written down.

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the pace to what the library logs, and tell it."""
        training = LOSS in logs
        if training:
            logs = {**logs, **self._pace.taken()}
            if torch.cuda.is_available() and self.args.device.type == "cuda":
                logs[MEMORY] = torch.cuda.max_memory_allocated() / 2**30
        super().log(logs, start_time)
        if training and self.is_world_process_zero():
            told = {name: float(value) for name, value in self.state.log_history[-1].items() if name != "step"}
            self.events.logged(self.state.global_step, told)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        folder = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
        with writing(folder):
            if self.is_world_process_zero():
                checkpoints.remove(folder)  # an unsound one that an earlier run left here
            self.accelerator.wait_for_everyone()
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.is_world_process_zero():
                checkpoints.mark(folder, step=self.state.global_step, identity=self.task.identity)
                checkpoints.rotate(folder.parent, keep=self.task.keep, best=self.state.best_model_checkpoint)
                self.events.saved(folder)
        self._pace.leave_out()

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        folder = Path(output_dir or str(self.args.output_dir))
        if self.args.should_save:
            (folder / TRAINING_ARGS_NAME).unlink(missing_ok=True)  # a pickle, and the mark says it all
            if self.task.tokenizer is not None:
                self.task.tokenizer.save_pretrained(str(folder))

    def keep_best(self) -> None:
        """Take the weights of the best evaluation, if that was not the last step; those of the last if its checkpoint is damaged."""
        best = self.state.best_model_checkpoint
        if best is None or self.state.best_global_step == self.state.global_step:
            return
        found = checkpoints.read(Path(best))
        if isinstance(found, str):
            self.events.note(f"The best model, in {best}, cannot be kept: {found}. The last one is kept instead.")
            self.state.best_model_checkpoint = None
            return
        with reading(Path(best)):
            self._load_best_model()

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        with reading(Path(resume_from_checkpoint)):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with reading(Path(checkpoint or "")):
            super()._load_optimizer_and_scheduler(checkpoint)


class writing:  # noqa: N801 - reads as a statement: `with writing(folder)`
    """Turns what libraries raise when a checkpoint cannot be written into a `TrainingError`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        """Nothing to be done."""

    def __exit__(self, _kind: object, raised: BaseException | None, _trace: object) -> None:
        # torch reports a full disk as a RuntimeError, safetensors as its own.
        if isinstance(raised, torch.OutOfMemoryError):
            return
        if isinstance(raised, (OSError, RuntimeError, SafetensorError)):
            raise TrainingError(
                f"{self._folder} cannot be written: {raised}. Make room or take another output folder, and start again: the "
                f"training goes on from the newest sound checkpoint."
            ) from raised


@contextmanager
def reading(folder: Path) -> Generator[None]:
    """Turns what libraries raise when a checkpoint's large files, which are known by their size alone, are damaged inside."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (OSError, RuntimeError, ValueError, KeyError, EOFError, UnpicklingError, SafetensorError) as exc:
        raise TrainingError(
            f"{folder} cannot be read: {exc}. Remove that folder, and start again: the training goes on from the sound checkpoint before it."
        ) from exc


class _Pace:
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
