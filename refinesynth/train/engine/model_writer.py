"""Writer of the model in the hub's file format, gathered from all ranks, with its tokenizer.

Training keeps fp32 weights of a bf16 model. The finished model is written in the base's type unless another type is
given; checkpoints keep the type in training.
"""

import json
import re
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final, Literal, Self, cast

import orjson
import torch
from accelerate import Accelerator, DistributedType
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from transformers import PreTrainedTokenizerBase
from transformers.core_model_loading import revert_weight_conversion
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME
from transformers.utils.peft_utils import ADAPTER_SAFE_WEIGHTS_NAME

from refinesynth.errors import TrainingError
from refinesynth.files.atomic_write import write_json_file
from refinesynth.lazy_imports import require
from refinesynth.train.config import TrainConfig
from refinesynth.train.engine.lm_head import base_model
from refinesynth.train.engine.parallel import gather_objects
from refinesynth.train.plan import ModelShape

SHARDS: Final = "pytorch_model_fsdp_0"
"""Folder of the shards in a checkpoint, as accelerate names it."""
_MAX_NAMES: Final = 4

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ExpectedTensors:
    """Expected tensors of a saved model."""

    shapes: Shapes
    """Shapes of all allowed tensors, by name."""
    required: tuple[frozenset[str], ...]
    """Groups of names. One name per group is required: tied weights are saved once, under any of their names."""

    def differences(self, actual: Shapes) -> list[str]:
        """Descriptions of the differences of the tensors `actual`."""
        lines: list[str] = []
        if missing := [" or ".join(sorted(names)) for names in self.required if not names & actual.keys()]:
            lines.append(f"{len(missing)} of {len(self.required)} tensors are missing: {_shorten_names(missing)}")
        if unknown := actual.keys() - self.shapes.keys():
            lines.append(f"{len(unknown)} were not trained: {_shorten_names(unknown)}")
        if reshaped := [
            f"{name} is {list(actual[name])} and was {list(shape)}"
            for name, shape in self.shapes.items()
            if name in actual and actual[name] != shape
        ]:
            lines.append(f"{len(reshaped)} have other shapes: {_shorten_names(reshaped)}")
        return lines


@dataclass(frozen=True, slots=True)
class TrainedTensors:
    """Names and shapes of the trained tensors, of adapters or a whole model.

    Libraries silently omit tensors with unknown names. The names are therefore taken from the unwrapped model, in both
    saved forms: files in the hub's format (adapter or hub names), and shards of ranks.
    """

    adapters: bool
    in_files: ExpectedTensors
    in_shards: ExpectedTensors

    @classmethod
    def from_model(cls, model: nn.Module) -> Self:
        """Read names and shapes from an unwrapped model, whose weights may be sharded (ZeRO-3) or on `meta`."""
        tensors = {name: item for name, item in model.state_dict(keep_vars=True).items() if isinstance(item, Tensor)}
        # A meta tensor for each distinct tensor identifies tied weights after renaming.
        placeholders = {
            id(item): torch.empty(tuple(getattr(item, "ds_shape", item.shape)), dtype=item.dtype, device="meta")
            for item in tensors.values()
        }
        meta = {name: placeholders[id(item)] for name, item in tensors.items()}
        if hasattr(model, "peft_config"):
            trained = {name: meta[name] for name, p in model.named_parameters() if p.requires_grad}
            in_files = _expected(_saved_names(model, meta), trained.values())
            return cls(adapters=True, in_files=in_files, in_shards=_expected(trained, trained.values()))
        left_out = set(cast("Iterable[str]", getattr(model, "_keys_to_ignore_on_save", None) or ()))
        kept = {name: tensor for name, tensor in meta.items() if name not in left_out}
        named = cast("dict[str, Tensor]", revert_weight_conversion(cast("Any", model), kept))
        return cls(adapters=False, in_files=_expected(named, named.values()), in_shards=_expected(meta, meta.values()))


def saved_differences(trained: TrainedTensors, folder: Path, *, shards: bool = False) -> list[str]:
    """Descriptions of the differences between the safetensors (or `shards`) in `folder` and the trained tensors."""
    try:
        if not shards:
            return trained.in_files.differences(_file_shapes(folder, adapters=trained.adapters))
        saved = cast("dict[str, Any]", FileSystemReader(folder / SHARDS).read_metadata().state_dict_metadata)
        sizes = {name.removeprefix("model."): tuple(item.size) for name, item in saved.items() if hasattr(item, "size")}
        return trained.in_shards.differences(sizes)
    except (OSError, ValueError, KeyError, SafetensorError) as exc:
        return [f"it cannot be read again: {exc}"]


def _saved_names(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """All tensors, adapters under peft's saved names. Tensors that peft does not save keep their names."""
    adapter = cast("str", cast("Any", model).active_adapter)
    # With the default `save_embedding_layers="auto"`, peft would look up the base model on the hub.
    named: dict[str, Tensor] = require("peft", "train").get_peft_model_state_dict(
        model, dict(tensors), adapter_name=adapter, save_embedding_layers=False
    )
    saved = {id(tensor) for tensor in named.values()}
    return named | {name: tensor for name, tensor in tensors.items() if id(tensor) not in saved}


def _expected(named: Mapping[str, Tensor], required: Iterable[Tensor]) -> ExpectedTensors:
    groups: dict[int, set[str]] = {}
    for name, tensor in named.items():
        groups.setdefault(id(tensor), set()).add(name)
    groups_by_id = {id(tensor): frozenset(groups[id(tensor)]) for tensor in required}
    return ExpectedTensors({name: tuple(tensor.shape) for name, tensor in named.items()}, tuple(groups_by_id.values()))


def _file_shapes(folder: Path, *, adapters: bool) -> Shapes:
    single = folder / (ADAPTER_SAFE_WEIGHTS_NAME if adapters else SAFE_WEIGHTS_NAME)
    index = folder / SAFE_WEIGHTS_INDEX_NAME
    if single.exists() or adapters or not index.exists():
        return dict(_tensor_shapes(single)) if single.exists() else {}
    files = cast("dict[str, str]", json.loads(index.read_text(encoding="utf-8"))["weight_map"])
    # A tensor counts only in the file that the index names.
    return {
        name: shape
        for file in sorted(set(files.values()))
        for name, shape in _tensor_shapes(folder / file)
        if files.get(name) == file
    }


def _tensor_shapes(path: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    with cast("Any", safe_open(path, framework="pt")) as file:
        for name in cast("list[str]", file.keys()):
            yield name, tuple(file.get_slice(name).get_shape())


def _shorten_names(names: Collection[str]) -> str:
    return ", ".join([*sorted(names)[:_MAX_NAMES], *(["..."] if len(names) > _MAX_NAMES else [])])


@dataclass(frozen=True, slots=True)
class ModelWriter:
    """Writer of a model, which compares the written files with the trained tensors."""

    accelerator: Accelerator
    model: nn.Module
    """Wrapped model."""
    trained: TrainedTensors
    """Names and shapes of the unwrapped model."""
    tokenizer: PreTrainedTokenizerBase | None
    base: tuple[str, str | None]
    """Published name and revision of the adapters' base model."""

    def write(self, folder: Path, *, dtype: torch.dtype | None = None) -> None:
        """Write model, settings and tokenizer; every rank calls this. `dtype` None: the type in training.

        Raises `TrainingError` on every rank, if the files differ from the model.
        """
        is_main = self.accelerator.is_main_process
        model = cast("Any", self.accelerator.unwrap_model(cast("Any", self.model)))
        state = self._gather_state()
        if is_main and dtype is not None:
            state = convert_dtype(model, state, dtype)
        differences: list[str] = []
        if is_main:
            folder.mkdir(parents=True, exist_ok=True)
            model.save_pretrained(str(folder), **({} if state is None else {"state_dict": state}))
            update_settings(model, folder, dtype, self.base)
            if self.tokenizer is not None:
                differences += save_tokenizer(self.tokenizer, folder)
            differences += saved_differences(self.trained, folder)
        self._refuse_differences(folder, differences)

    def check_shards(self, folder: Path) -> None:
        """Compare the ranks' shards with the trained tensors. Raises `TrainingError` on every rank if they differ."""
        is_main = self.accelerator.is_main_process
        self._refuse_differences(folder, saved_differences(self.trained, folder, shards=True) if is_main else [])

    def _gather_state(self) -> dict[str, Any] | None:
        """All weights, at least on the first rank, if they are sharded; None if every rank has whole weights."""
        kind = self.accelerator.distributed_type
        if kind == DistributedType.FSDP:
            adapters = self.trained.adapters
            options = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=adapters)
            state = get_model_state_dict(self.model, options=options)
        elif kind == DistributedType.DEEPSPEED and cast("Any", self.model).zero_optimization_stage() == _ZERO_3:
            state = cast("dict[str, Any] | None", self.accelerator.get_state_dict(self.model))
        else:
            return None
        # Gathering makes a copy of a tied weight for each of its names.
        for names in self.trained.in_shards.required if state else ():
            if state and len(names) > 1 and names <= state.keys():
                state.update(dict.fromkeys(names, state[min(names)]))
        return state

    def _refuse_differences(self, folder: Path, differences: list[str]) -> None:
        """Raises: TrainingError: On every rank, if the first rank has found differences."""
        if reported := gather_objects(differences)[0]:
            raise TrainingError(
                f"what was saved in {folder} is not what was trained: {'; '.join(reported)}. Do not use it. Checkpoints of earlier steps are "
                f"sound, and stay. Another parallel or gradient_checkpointing may be saved whole; please report this one."
            )


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> list[str]:
    """Write a tokenizer with its chat template, and read it back; return descriptions of the differences."""
    tokenizer.save_pretrained(str(folder))
    reloaded: Any = cast("Any", type(tokenizer)).from_pretrained(str(folder), local_files_only=True)
    if _prompt_tokens(reloaded) == _prompt_tokens(tokenizer):
        return []
    return [
        f"the tokenizer ({type(tokenizer).__name__}) is read back with another chat template, or other tokens of a prompt"
    ]


def _prompt_tokens(tokenizer: Any) -> tuple[Any, Any]:
    if tokenizer.chat_template is None:
        return None, tokenizer("Thought: go on.")["input_ids"]
    messages = [{"role": "user", "content": "Go on."}]
    return tokenizer.chat_template, tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True)[
        "input_ids"
    ]


@contextmanager
def file_errors(folder: Path, verb: Literal["written", "read"]) -> Generator[None]:
    """Convert errors on a checkpoint's files, such as full disks and damaged files, to `TrainingError`."""
    advice = "Make room or take another output folder" if verb == "written" else "Remove that folder"
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (OSError, RuntimeError, ValueError, KeyError, EOFError, UnpicklingError, SafetensorError) as exc:
        if verb == "written" and not isinstance(exc, OSError | RuntimeError | SafetensorError):
            raise  # a bug in a library, which more disk space does not fix
        raise TrainingError(
            f"{folder} cannot be {verb}: {exc}. {advice}, and start again: the training goes on from the newest sound checkpoint."
        ) from exc


_ZERO_3: Final = 3
_DTYPES: Final = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}


def written_dtype(config: TrainConfig, base: ModelShape) -> torch.dtype | None:
    """Type of the finished model's weights, by default the base's, or fp32 if its settings name none; None: the type in
    training, which is the default for adapters.
    """
    if config.save_dtype != "auto":
        return _DTYPES[config.save_dtype]
    if config.lora is not None:
        return None
    return torch.float32 if base.dtype is None else cast("torch.dtype", getattr(torch, base.dtype))


def convert_dtype(model: nn.Module, state: Mapping[str, Tensor] | None, dtype: torch.dtype) -> dict[str, Tensor]:
    """The state dict of `model` (or `state`, if gathered from the ranks) on the CPU and in `dtype`.

    Weights that the architecture requires in fp32 are written in fp32, and tied weights stay tied. Frozen weights under
    adapters are not written and not converted.
    """
    # transformers has no public name for the weights that it always loads in fp32.
    plan: Any = getattr(cast("Any", base_model(model)), "_get_dtype_plan", None)
    patterns = [re.compile(glob.replace("*", ".*")) for glob in cast("Iterable[str]", plan(dtype) if plan else ())]
    adapted = base_model(model) is not model
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad} if adapted else set[str]()
    converted: dict[object, Tensor] = {}
    cast_state: dict[str, Tensor] = {}
    for name, tensor in (model.state_dict() if state is None else state).items():
        if name in frozen or not tensor.is_floating_point():
            cast_state[name] = tensor
            continue
        target = torch.float32 if any(glob.search(name) for glob in patterns) else dtype
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), target)
        if key not in converted:
            converted[key] = tensor.detach().to("cpu", target)
        cast_state[name] = converted[key]
    return cast_state


def update_settings(model: nn.Module, folder: Path, dtype: torch.dtype | None, base: tuple[str, str | None]) -> None:
    """Write the weights' type to `config.json`, and the published base model to the adapter's settings."""
    config = cast("Any", base_model(model)).config
    settings = _read_json(folder / "config.json")
    if settings is not None and dtype is not None:
        for section in (settings, *(settings.get(name) for name in config.sub_configs)):
            if isinstance(section, dict) and "dtype" in section:
                section["dtype"] = str(dtype).removeprefix("torch.")
        write_json_file(folder / "config.json", settings)
    adapter = _read_json(folder / "adapter_config.json")
    if adapter is not None:
        adapter |= {"base_model_name_or_path": base[0], "revision": base[1]}
        write_json_file(folder / "adapter_config.json", adapter)
        (folder / "README.md").unlink(missing_ok=True)  # peft's README contains the local path; the model card follows
        if (generation := getattr(base_model(model), "generation_config", None)) is not None:
            generation.save_pretrained(str(folder))  # a merge needs the tokens that end turns


def _read_json(path: Path) -> dict[str, Any] | None:
    return orjson.loads(path.read_bytes()) if path.is_file() else None
