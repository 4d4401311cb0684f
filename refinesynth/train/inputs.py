"""Models and adapters by name, in folders, GGUF files and on the hub. Imports no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import orjson
from pydantic import ValidationError

from refinesynth.errors import InputError
from refinesynth.files.gguf import check_gguf, is_gguf, unpack_gguf
from refinesynth.train.config import LoraConfig, TrainConfig
from refinesynth.train.layered_settings import portable, published


def pretrained_arguments(name: str, revision: str | None = None) -> dict[str, Any]:
    """Arguments of `from_pretrained`, for a GGUF file of its tokenizer only. Raises `InputError`: a file has a revision."""
    if revision is not None and Path(name).exists():
        raise InputError(
            f"{name!r} is on this machine and has no revision {revision!r}; revisions are of names on the hub"
        )
    if is_gguf(name):
        check_gguf(name)
        path = Path(name)
        return {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name, "local_files_only": True}
    optional = {} if revision is None else {"revision": revision}
    return {"pretrained_model_name_or_path": name, "local_files_only": Path(name).is_dir(), **optional}


SETTINGS_FILE: Final = "adapter_config.json"
WEIGHTS_FILE: Final = "adapter_model.safetensors"
TOKENIZER_FILE: Final = "tokenizer_config.json"
_PEFT_FIELDS: Final = {
    "rank": "r",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
    "targets": "target_modules",
    "modules_to_save": "modules_to_save",
}


@dataclass(frozen=True, slots=True)
class Adapter:
    """LoRA adapter in peft's format."""

    folder: Path
    """Folder with settings and weights."""
    base: str
    """Folder or hub name of the base model."""
    revision: str | None
    """Revision of the base on the hub."""
    lora: LoraConfig


def find_adapter(name: str) -> Adapter | None:
    """Find the adapter in a folder; None if there is no adapter.

    Raises `InputError` if the adapter cannot be read, is no LoRA, or has no safetensors.
    """
    path = Path(name) / SETTINGS_FILE
    if not path.is_file():
        return None
    try:
        adapter = _read_adapter(path.parent, orjson.loads(path.read_bytes()))
    except (OSError, orjson.JSONDecodeError, ValidationError, KeyError, TypeError, ValueError) as exc:
        problem = " ".join(str(exc).split())
        raise InputError(f"the adapter {name!r} cannot be used: in its {SETTINGS_FILE}, {problem}") from exc
    if not (adapter.folder / WEIGHTS_FILE).is_file():
        raise InputError(
            f"the adapter {name!r} has no {WEIGHTS_FILE}; pickled weights are not read, save them as safetensors"
        )
    return adapter


def _read_adapter(folder: Path, settings: Any) -> Adapter:
    if settings["peft_type"] != "LORA" or settings.get("megatron_config"):
        raise ValueError(f"peft_type is {settings['peft_type']!r}; expected 'LORA', without megatron_config")
    values = {field: settings[peft_field] for field, peft_field in _PEFT_FIELDS.items()}
    for name in ("targets", "modules_to_save"):  # peft writes sets, in any order
        if isinstance(values[name], list):
            values[name] = tuple(sorted(cast("list[str]", values[name])))
    values["modules_to_save"] = values["modules_to_save"] or ()
    base, revision = settings.get("base_model_name_or_path"), settings.get("revision")
    base = base if isinstance(base, str) else ""
    base = str(Path(base).expanduser()) if base.startswith("~/") else base
    return Adapter(folder, base, revision if isinstance(revision, str) else None, LoraConfig.model_validate(values))


def resolve_base(config: TrainConfig) -> tuple[str, str | None, Adapter | None]:
    """Name and revision of the model with the weights, and the adapter to train further if `model` is an adapter.

    A GGUF file is unpacked. Raises `InputError` for an adapter without a base, or with a missing base folder.
    """
    adapter = find_adapter(config.model) if config.lora is not None else None
    if adapter is None:
        return unpack_gguf(config.model), config.revision, None
    base, remedy = adapter.base, f"write it as base_model_name_or_path into its {SETTINGS_FILE}"
    if not base:
        raise InputError(f"the adapter {str(adapter.folder)!r} does not name its base model; {remedy}")
    if base.startswith((".", "/", "~")) and not Path(base).is_dir():
        raise InputError(f"the base {portable(base)!r} of the adapter {str(adapter.folder)!r} is not here; {remedy}")
    return base, adapter.revision, adapter


def base_name(config: TrainConfig) -> tuple[str, str | None]:
    """Published name and revision of the trained model, or of the adapters' base model."""
    base, revision, _ = resolve_base(config)
    # A GGUF file is unpacked to a local folder; peft needs its absolute path.
    return (base, None) if is_gguf(config.model) else (published(base), revision)


def with_adapter_settings(config: TrainConfig) -> TrainConfig:
    """Return `config` with the adapter's own `lora` settings if `model` is an adapter. Raises `InputError`."""
    adapter = find_adapter(config.model)
    if adapter is None:
        return config
    if config.lora is None:
        raise InputError(
            f"{config.model!r} is an adapter of {portable(adapter.base)!r}, and lora is off. Train the adapter on (--lora), or merge it "
            "with peft's merge_and_unload and give the folder that you save the merged model to"
        )
    given, old = config.lora.model_dump(exclude_unset=True, exclude={"quantize"}), adapter.lora.model_dump()
    differences = [
        f"lora.{name} is {value!r}, and it has {old[name]!r}" for name, value in given.items() if value != old[name]
    ]
    if differences:
        raise InputError(
            f"the adapter {config.model!r} is trained on as it is: {'; '.join(differences)}. Leave these settings out, or begin a new "
            f"adapter on its base (--model {portable(adapter.base)})"
        )
    return config.model_copy(update={"lora": adapter.lora.model_copy(update={"quantize": config.lora.quantize})})
