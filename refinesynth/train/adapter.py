"""An adapter that is there already, to train on: what its own settings say of it. No torch, no peft."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import orjson
from pydantic import ValidationError

from refinesynth.errors import InputError
from refinesynth.train.config import SCRATCH, LoraConfig, TrainConfig
from refinesynth.train.hub import bare, find_on_hub
from refinesynth.train.layers import portable, published

SETTINGS: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
TOKENIZER: Final = "tokenizer_config.json"
_BESIDE: Final = [WEIGHTS, "*.json", "*.jinja", "*.model", "*.txt"]
"""Of a repository: an adapter with its tokenizer, chat template and generation settings."""
_FIELDS: Final = {
    "rank": "r",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
    "targets": "target_modules",
    "modules_to_save": "modules_to_save",
}
"""Our names of what peft calls otherwise."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """LoRA as peft writes it."""

    folder: Path
    """Holds its settings and its weights."""
    base: str
    """Folder or hub name of what it belongs to."""
    revision: str | None
    """Of the base, on the hub."""
    lora: LoraConfig


def find_adapter(name: str, at: str | None = None) -> Adapter | None:
    """The adapter in a folder, or of this name on the hub, in its revision `at`; None where there is a whole model, or
    nothing.

    Raises:
        InputError: It cannot be read, is no LoRA, or has no safetensors.
    """
    folder = Path(name)
    path = (
        folder / SETTINGS
        if folder.is_dir()
        else None
        if name == SCRATCH or _is_path(name)
        else _fetched(bare(name), at)
    )
    if path is None or not path.is_file():
        return None
    try:
        found = _read(path.parent, orjson.loads(path.read_bytes()))
    except (OSError, orjson.JSONDecodeError, ValidationError, KeyError, TypeError, ValueError) as exc:
        problem = " ".join(str(exc).split())
        raise InputError(f"the adapter {name!r} cannot be used: in its {SETTINGS}, {problem}") from exc
    if not (found.folder / WEIGHTS).is_file():
        raise InputError(
            f"the adapter {name!r} has no {WEIGHTS}; pickled weights are not read, save them as safetensors"
        )
    return found


def _read(folder: Path, settings: Mapping[str, Any] | list[Any]) -> Adapter:
    if not isinstance(settings, Mapping):
        raise TypeError("settings were expected")
    if settings.get("peft_type") != "LORA" or settings.get("megatron_config"):
        raise ValueError(f"peft_type is {settings.get('peft_type')!r}; expected 'LORA', without megatron_config")
    values = {ours: settings[theirs] for ours, theirs in _FIELDS.items()}
    for name in ("targets", "modules_to_save"):  # of which peft makes sets
        if isinstance(values[name], list):
            values[name] = tuple(sorted(cast("list[str]", values[name])))
    values["modules_to_save"] = values["modules_to_save"] or ()
    base, revision = settings.get("base_model_name_or_path"), settings.get("revision")
    base = base if isinstance(base, str) else ""
    return Adapter(
        folder,
        str(Path(base).expanduser()) if base.startswith("~/") else base,
        revision if isinstance(revision, str) else None,
        LoraConfig.model_validate(values),
    )


@cache
def _fetched(name: str, at: str | None) -> Path | None:
    """The settings of an adapter of the hub; beside them its weights, and what it has of a tokenizer and of settings
    for generation.
    """
    reachable = find_on_hub(name, "model", at)
    from huggingface_hub import HfApi, errors

    hub, how = cast("Any", HfApi()), {"revision": at, "local_files_only": not reachable}
    try:
        path = Path(hub.hf_hub_download(name, SETTINGS, **how))
        hub.snapshot_download(name, allow_patterns=_BESIDE, ignore_patterns=["*/*"], **how)
    except (errors.EntryNotFoundError, errors.HfHubHTTPError):
        return None
    return path


def _is_path(name: str) -> bool:
    """Whether it can be no name of the hub."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1


def base_of(adapter: Adapter) -> str:
    """Folder or hub name of the adapter's base.

    Raises:
        InputError: The adapter names none, or a folder that is not here.
    """
    base, how = adapter.base, f"write it as base_model_name_or_path into its {SETTINGS}"
    if not base:
        raise InputError(f"the adapter {str(adapter.folder)!r} does not name its base model; {how}")
    if _is_path(base) and not Path(base).is_dir():
        raise InputError(f"the base {portable(base)!r} of the adapter {str(adapter.folder)!r} is not here; {how}")
    return base


def underlying(config: TrainConfig) -> tuple[str, Adapter | None]:
    """What is loaded from, and the adapter that is trained on; `model` itself and none, unless that is an adapter."""
    adapter = find_adapter(config.model, config.revision) if config.lora is not None else None
    return (config.model, None) if adapter is None else (base_of(adapter), adapter)


def base_revision(config: TrainConfig, adapter: Adapter | None) -> str | None:
    """Of what is loaded: the model's, or that of the base that an adapter names."""
    return config.revision if adapter is None else adapter.revision


def base_name(config: TrainConfig) -> tuple[str, str | None]:
    """Name and revision of what was trained, or of what adapters belong to, as others know it."""
    base, adapter = underlying(config)
    return published(base, base_revision(config, adapter))


def with_own_settings(config: TrainConfig) -> TrainConfig:
    """`config`, whose `lora` is the adapter's own where `model` is an adapter.

    Raises:
        InputError: Other settings of adapters were asked for than it has, or all weights are to be trained.
    """
    if not Path(config.model).is_dir() and config.lora is None:
        return config  # whether a name of the hub is an adapter's is asked of those who want one
    adapter = find_adapter(config.model, config.revision)
    if adapter is None:
        return config
    if config.lora is None:
        raise _lora_is_off(config, adapter)
    asked, own = config.lora.model_dump(exclude_unset=True, exclude={"quantize"}), adapter.lora.model_dump()
    other = [
        f"lora.{name} is {value!r}, and it has {own[name]!r}" for name, value in asked.items() if value != own[name]
    ]
    if other:
        raise InputError(
            f"the adapter {config.model!r} is trained on as it is: {'; '.join(other)}. Leave these settings out, or begin a new "
            f"adapter on its base (--model {portable(adapter.base)})"
        )
    return config.model_copy(update={"lora": adapter.lora.model_copy(update={"quantize": config.lora.quantize})})


def refuse_adapter(config: TrainConfig) -> None:
    """Raises: InputError: All weights are to be trained, and `model` is an adapter."""
    adapter = find_adapter(config.model, config.revision) if config.lora is None else None
    if adapter is not None:
        raise _lora_is_off(config, adapter)


def _lora_is_off(config: TrainConfig, adapter: Adapter) -> InputError:
    return InputError(
        f"{config.model!r} is an adapter of {portable(adapter.base)!r}, and lora is off. Train the adapter on (--lora), or merge it "
        "with peft's merge_and_unload and give the folder that you save the merged model to"
    )
