"""The type in which the finished model's weights are written: the base's, unless another is asked for.

Training holds fp32 weights over a bf16 checkpoint; users of the result expect a checkpoint as large as the one it came
from. Checkpoints to go on from are not touched: what they hold decides about the weights to come.
"""

# torch and transformers are typed in part: pyright may not know all of a member that is used here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import orjson
import torch
from torch import Tensor, nn
from transformers.modeling_utils import get_state_dict_dtype, load_state_dict
from transformers.utils.hub import cached_file

from refinesynth.errors import TrainingError
from refinesynth.files.atomic_write import write_json_file
from refinesynth.train.config import SCRATCH, TrainConfig
from refinesynth.train.engine.head import base_model
from refinesynth.train.hub import bare
from refinesynth.train.memory import ModelShape

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
