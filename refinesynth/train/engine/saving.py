"""transformers' Trainer with checkpoints that can be trusted, and a model that is put together from all ranks.

Training holds fp32 weights over a bf16 checkpoint; users of the result expect one as large as that, so the finished
model's weights are written in the base's type, unless another is asked for. Checkpoints to go on from hold all that was
trained.
"""

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final, Literal, cast

import orjson
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from transformers import PreTrainedTokenizerBase, Trainer
from transformers.modeling_utils import get_state_dict_dtype, load_state_dict
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.utils.hub import cached_file

from refinesynth.errors import TrainingError
from refinesynth.files.atomic_write import write_json_file
from refinesynth.train.config import ALL, SCRATCH, TrainConfig
from refinesynth.train.engine import checkpoints
from refinesynth.train.engine.distributed import all_gather_objects
from refinesynth.train.engine.head import base_model
from refinesynth.train.engine.save_check import Trained, file_differences, shard_differences
from refinesynth.train.engine.schedule import Schedule
from refinesynth.train.events import Events
from refinesynth.train.hub import bare
from refinesynth.train.memory import ModelShape
from refinesynth.train.tokens import TokenStore


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
    save_dtype: torch.dtype | None = None
    """Of the weights of the finished model; None: as they are trained."""
    router_aux_loss: float = 0.0
    """Coefficient of the load-balancing loss of a mixture of experts (`routing.py`)."""
    base: tuple[str, str | None] = ("", None)
    """Name and revision of what adapters belong to, as others know it."""


class SavingTrainer(Trainer):
    """Compares what it saves with what it trains; marks a checkpoint when it is whole, and rotates those before it only
    then.
    """

    task: Task
    events: Events
    trained: Trained
    """Of the model before it was wrapped."""
    _finished = False

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the model for others to load. With FSDP a checkpoint holds the shards of the ranks alone, unless all
        are kept.

        Raises:
            TrainingError: What was written is not what was trained.
        """
        self._finished = not _internal_call
        if self.is_fsdp_enabled and (self._finished or self.trained.adapters or self.task.keep == ALL):
            self._save(output_dir, self._gathered())
        super().save_model(output_dir, _internal_call)  # which with FSDP saves nothing where checkpoints are sharded

    def _gathered(self) -> dict[str, Any]:
        options = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=self.trained.adapters)
        return get_model_state_dict(cast("nn.Module", self.model), options=options)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        # Put together from ranks, tied weights come once under each of their names.
        for names in self.trained.in_shards.needed if state_dict else ():
            if len(names) > 1 and names <= state_dict.keys():
                state_dict.update(dict.fromkeys(names, state_dict[min(names)]))
        dtype = self.task.save_dtype if self._finished and self.args.should_save else None
        state_dict = self._in_dtype(state_dict, dtype)
        super()._save(output_dir, state_dict)
        folder = Path(output_dir or str(self.args.output_dir))
        differences: list[str] = []
        if self.args.should_save:
            note_written(cast("nn.Module", self.model), folder, dtype, self.task.base)
            (folder / TRAINING_ARGS_NAME).unlink(missing_ok=True)  # a pickle, and the mark says it all
            if self.task.tokenizer is not None:
                differences += save_tokenizer(self.task.tokenizer, folder)
        if self.is_world_process_zero():
            differences += file_differences(self.trained, folder)
        self._refuse(folder, differences)

    def _in_dtype(self, state_dict: Any, dtype: torch.dtype | None) -> Any:
        """What is written; raises: TrainingError: On every rank, where `dtype` cannot say it: the others would wait for
        the one that writes.
        """
        failed = None
        try:
            if dtype is not None:
                state_dict = in_dtype(cast("nn.Module", self.model), state_dict, dtype)
        except TrainingError as exc:
            failed = exc
        for each in all_gather_objects(failed):
            if each is not None:
                raise each
        return state_dict

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        folder = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
        is_main = self.is_world_process_zero()
        with writing(folder):
            if is_main:
                checkpoints.remove(folder)  # an unsound one that an earlier run left here
            self.accelerator.wait_for_everyone()
            super()._save_checkpoint(model, trial)
            if self.is_fsdp_enabled:
                self._refuse(folder, shard_differences(self.trained, folder) if is_main else [])
            self._refuse_other_disks(folder)
            if is_main:
                checkpoints.mark(folder, step=self.state.global_step, identity=self.task.identity)
                checkpoints.rotate(folder.parent, keep=self.task.keep, best=self.state.best_model_checkpoint)
                self.events.saved(folder)

    def _refuse(self, folder: Path, differences: list[str]) -> None:
        """Raises: TrainingError: On every rank, where the first one has found differences."""
        if found := all_gather_objects(differences)[0]:
            raise TrainingError(
                f"what was saved in {folder} is not what was trained: {'; '.join(found)}. Do not use it. Checkpoints of earlier steps are "
                f"sound, and stay. Another parallel or gradient_checkpointing may be saved whole; please report this one."
            )

    def _refuse_other_disks(self, folder: Path) -> None:
        """Wait for all ranks; raises: TrainingError: The first one does not see what another has written, so cannot
        mark it.
        """
        self.accelerator.wait_for_everyone()
        seen = all_gather_objects([str(path.relative_to(folder)) for path in checkpoints.files_of(folder)])
        for rank, names in enumerate(seen):
            if unseen := sorted(set(names) - set(seen[0])):
                raise TrainingError(
                    f"rank {rank} has written {unseen[0]} to {folder}, and rank 0 does not see it there; give an output folder that all "
                    f"machines share"
                )

    def keep_best(self) -> None:
        """Take the weights of the best evaluation, if that was not the last step; those of the last if its checkpoint
        is damaged.
        """
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


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> list[str]:
    """Write a tokenizer, with the chat template that was trained through, and read it back; what is not as it was, if
    anything is.
    """
    tokenizer.save_pretrained(str(folder))
    kept: Any = cast("Any", type(tokenizer)).from_pretrained(str(folder), local_files_only=True)
    if _prompt(kept) == _prompt(tokenizer):
        return []
    return [
        f"the tokenizer ({type(tokenizer).__name__}) is read back with another chat template, or other tokens of a prompt"
    ]


def _prompt(tokenizer: Any) -> tuple[Any, Any]:
    if tokenizer.chat_template is None:
        return None, tokenizer("Thought: go on.")["input_ids"]
    asked = [{"role": "user", "content": "Go on."}]
    return tokenizer.chat_template, tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=True)[
        "input_ids"
    ]


@contextmanager
def writing(folder: Path) -> Generator[None]:
    """Turns what libraries raise when a checkpoint cannot be written into a `TrainingError`."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (
        OSError,
        RuntimeError,
        SafetensorError,
    ) as exc:  # torch reports a full disk as a RuntimeError, safetensors as its own
        raise TrainingError(
            f"{folder} cannot be written: {exc}. Make room or take another output folder, and start again: the training goes on from "
            f"the newest sound checkpoint."
        ) from exc


@contextmanager
def reading(folder: Path) -> Generator[None]:
    """Turns what libraries raise when a checkpoint's large files, which are known by their size alone, are damaged
    inside.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (OSError, RuntimeError, ValueError, KeyError, EOFError, UnpicklingError, SafetensorError) as exc:
        raise TrainingError(
            f"{folder} cannot be read: {exc}. Remove that folder, and start again: the training goes on from the sound checkpoint before it."
        ) from exc


_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64}
_FILES: Final = ("model.safetensors", "model.safetensors.index.json")


def written_dtype(config: TrainConfig, base: ModelShape) -> torch.dtype | None:
    """What the finished model's weights are written in; None: as they were trained. Called when the base is on this
    machine.

    Adapters stay as they were trained, fp32, as peft writes them.
    """
    if config.save_dtype != "auto":
        return _DTYPES[config.save_dtype]
    if config.lora is not None:
        return None
    if base.dtype is not None:
        return cast("torch.dtype", getattr(torch, base.dtype))
    return torch.float32 if config.model == SCRATCH else _stored_dtype(config)


def _stored_dtype(config: TrainConfig) -> torch.dtype | None:
    """Of a checkpoint whose settings do not say it."""
    name, at = bare(config.model), config.revision
    found = [
        cached_file(name, each, revision=at, local_files_only=True, _raise_exceptions_for_missing_entries=False)
        for each in _FILES
    ]
    if found[0] is None and found[1] is not None:
        first = min(orjson.loads(Path(found[1]).read_bytes())["weight_map"].values())
        found = [cached_file(name, first, revision=at, local_files_only=True)]
    return (
        cast("torch.dtype", get_state_dict_dtype(load_state_dict(found[0], map_location="meta"))) if found[0] else None
    )


def in_dtype(model: nn.Module, state: Mapping[str, Tensor] | None, dtype: torch.dtype) -> dict[str, Tensor]:
    """The state dict of `model` (`state`, if that was put together from the ranks) for writing, on the CPU and in
    `dtype`.

    What the architecture always holds in fp32 stays so, tied weights stay tied, and frozen weights below adapters,
    which are not written, are handed on as they are.

    Raises:
        TrainingError: A weight is beyond what `dtype` can say.
    """
    held = [re.compile(each.replace("*", ".*")) for each in _held_in_fp32(model, dtype)]
    adapted = base_model(model) is not model
    frozen = {name for name, one in model.named_parameters() if not one.requires_grad} if adapted else set[str]()
    made: dict[object, Tensor] = {}
    cast_state: dict[str, Tensor] = {}
    for name, one in (model.state_dict() if state is None else state).items():
        if name in frozen or not one.is_floating_point():
            cast_state[name] = one
            continue
        wanted = torch.float32 if any(each.search(name) for each in held) else dtype
        place = (one.data_ptr(), one.shape, one.stride(), wanted)
        if place not in made:
            made[place] = one.detach().to("cpu", wanted)
            if wanted is torch.float16 and not torch.equal(made[place].isfinite(), one.isfinite().cpu()):
                raise TrainingError(
                    f"weights of {name} are beyond what fp16 can say (65,504); give --save-dtype bf16 or fp32. The same command "
                    "with it goes on from the last checkpoint and only writes the model."
                )
        cast_state[name] = made[place]
    return cast_state


def note_written(model: nn.Module, folder: Path, dtype: torch.dtype | None, base: tuple[str, str | None]) -> None:
    """Have the settings beside the weights say what was written, and name the base of adapters (and its revision) as
    others know it.
    """
    config = cast("Any", base_model(model)).config
    settings = _read(folder / "config.json")
    if settings is not None and dtype is not None:
        for each in (settings, *(settings.get(name) for name in config.sub_configs)):
            if isinstance(each, dict) and "dtype" in each:
                each["dtype"] = str(dtype).removeprefix("torch.")
        write_json_file(folder / "config.json", settings)
    adapter = _read(folder / "adapter_config.json")
    if adapter is not None:
        adapter |= {"base_model_name_or_path": base[0], "revision": base[1]}
        write_json_file(folder / "adapter_config.json", adapter)
        (folder / "README.md").unlink(missing_ok=True)  # peft's, with the path in it; the card is written at the end
        if (generation := getattr(base_model(model), "generation_config", None)) is not None:
            generation.save_pretrained(str(folder))  # where trained turns end; a merge needs that


def _read(path: Path) -> dict[str, Any] | None:
    return orjson.loads(path.read_bytes()) if path.is_file() else None


@contextmanager
def settings_kept(model: nn.Module) -> Generator[None]:
    """Within, the library writes `use_cache: false` into the model's settings, which are saved; no call here relies on
    them.
    """
    settings = cast("dict[str, Any]", vars(cast("Any", model).config))
    before = {name: settings[name] for name in ("use_cache",) if name in settings}
    yield
    settings.pop("use_cache", None)
    settings.update(before)


def _held_in_fp32(model: nn.Module, dtype: torch.dtype) -> Mapping[str, torch.dtype]:
    """Patterns of names; what the library itself would load so."""
    plan = getattr(cast("Any", base_model(model)), "_get_dtype_plan", None)
    return plan(dtype) if plan is not None else {}
