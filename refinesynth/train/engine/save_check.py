"""Check of a save: names and shapes in the files' headers against those of the trained model.

Libraries silently leave out what they do not know by name. So names are taken from the model before it is wrapped, in
both forms in which they are saved: files for others (adapter or hub names), and shards of ranks.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.distributed.checkpoint.filesystem import FileSystemReader
from transformers.core_model_loading import revert_weight_conversion
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME
from transformers.utils.peft_utils import ADAPTER_SAFE_WEIGHTS_NAME

from refinesynth.extras import require

SHARDS: Final = "pytorch_model_fsdp_0"
"""accelerate's folder for shards in a checkpoint."""
_NAMED: Final = 4

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Expected content of a save."""

    shapes: Shapes
    """Of all tensors that may be in it."""
    needed: tuple[frozenset[str], ...]
    """One name of each group must be in it: tied weights are saved once, under any of their names."""

    def differences(self, found: Shapes) -> list[str]:
        """Differences of the found tensors, in words."""
        lines: list[str] = []
        if missing := [" or ".join(sorted(names)) for names in self.needed if not names & found.keys()]:
            lines.append(f"{len(missing)} of {len(self.needed)} tensors are missing: {_some(missing)}")
        if unknown := found.keys() - self.shapes.keys():
            lines.append(f"{len(unknown)} were not trained: {_some(unknown)}")
        if other := [
            f"{name} is {list(found[name])} and was {list(shape)}"
            for name, shape in self.shapes.items()
            if name in found and found[name] != shape
        ]:
            lines.append(f"{len(other)} have other shapes: {_some(other)}")
        return lines


@dataclass(frozen=True, slots=True)
class Trained:
    """Names and shapes of the trained tensors, of adapters or a whole model."""

    adapters: bool
    in_files: Wanted
    in_shards: Wanted

    @classmethod
    def of(cls, model: nn.Module) -> Self:
        """Read them from an unwrapped model; its weights may be split (ZeRO-3) or without memory (meta)."""
        tensors = {name: one for name, one in model.state_dict(keep_vars=True).items() if isinstance(one, Tensor)}
        # One without memory for each tensor, so that tied weights are known after they were renamed.
        alike = {
            id(one): torch.empty(tuple(getattr(one, "ds_shape", one.shape)), dtype=one.dtype, device="meta")
            for one in tensors.values()
        }
        held = {name: alike[id(one)] for name, one in tensors.items()}
        if hasattr(model, "peft_config"):
            trained = {name: held[name] for name, one in model.named_parameters() if one.requires_grad}
            in_files = _wanted(_adapters(model, held), trained.values())
            return cls(adapters=True, in_files=in_files, in_shards=_wanted(trained, trained.values()))
        left_out = set(cast("Iterable[str]", getattr(model, "_keys_to_ignore_on_save", None) or ()))
        kept = {name: one for name, one in held.items() if name not in left_out}
        named = cast("dict[str, Tensor]", revert_weight_conversion(cast("Any", model), kept))
        return cls(adapters=False, in_files=_wanted(named, named.values()), in_shards=_wanted(held, held.values()))


def file_differences(wanted: Trained, folder: Path) -> list[str]:
    """Differences of the safetensors in `folder` from what was trained; empty if there are none."""
    return _differences(wanted.in_files, lambda: _in_files(folder, adapters=wanted.adapters))


def shard_differences(wanted: Trained, folder: Path) -> list[str]:
    """Differences of a checkpoint's shards from what was trained; empty if there are none."""

    def found() -> Shapes:
        held = cast("dict[str, Any]", FileSystemReader(folder / SHARDS).read_metadata().state_dict_metadata)
        return {name.removeprefix("model."): tuple(one.size) for name, one in held.items() if hasattr(one, "size")}

    return _differences(wanted.in_shards, found)


def _differences(wanted: Wanted, read: Callable[[], Shapes]) -> list[str]:
    try:
        return wanted.differences(read())
    except (OSError, ValueError, KeyError, SafetensorError) as exc:
        return [f"it cannot be read again: {exc}"]


def _adapters(model: nn.Module, held: dict[str, Tensor]) -> dict[str, Tensor]:
    """All names, adapters' as peft saves them; tensors unknown to peft keep their names, and are missed if trained."""
    adapter = cast("str", cast("Any", model).active_adapter)
    # Embeddings that are saved besides are asked for on the hub, and need not be there.
    named: dict[str, Tensor] = require("peft", "train").get_peft_model_state_dict(
        model, dict(held), adapter_name=adapter, save_embedding_layers=False
    )
    known = {id(one) for one in named.values()}
    return named | {name: one for name, one in held.items() if id(one) not in known}


def _wanted(named: Mapping[str, Tensor], needed: Iterable[Tensor]) -> Wanted:
    groups: dict[int, set[str]] = {}
    for name, one in named.items():
        groups.setdefault(id(one), set()).add(name)
    every = {id(one): frozenset(groups[id(one)]) for one in needed}
    return Wanted({name: tuple(one.shape) for name, one in named.items()}, tuple(every.values()))


def _in_files(folder: Path, *, adapters: bool) -> Shapes:
    single = folder / (ADAPTER_SAFE_WEIGHTS_NAME if adapters else SAFE_WEIGHTS_NAME)
    index = folder / SAFE_WEIGHTS_INDEX_NAME
    if single.exists() or adapters or not index.exists():
        return dict(_header(single)) if single.exists() else {}
    files = cast("dict[str, str]", json.loads(index.read_text(encoding="utf-8"))["weight_map"])
    # A tensor counts where the index says that it is.
    return {
        name: shape
        for file in sorted(set(files.values()))
        for name, shape in _header(folder / file)
        if files.get(name) == file
    }


def _header(path: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    with cast("Any", safe_open(path, framework="pt")) as file:
        for name in cast("list[str]", file.keys()):
            yield name, tuple(file.get_slice(name).get_shape())


def _some(names: Collection[str]) -> str:
    return ", ".join([*sorted(names)[:_NAMED], *(["..."] if len(names) > _NAMED else [])])
