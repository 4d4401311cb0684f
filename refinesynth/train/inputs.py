"""Inputs of a training by name: local models, hub models and adapters, and a check that all exist. Imports no torch.

Each hub name costs one request with a short timeout. The libraries themselves wait over half a minute for an
unreachable hub, for every file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import orjson
from pydantic import ValidationError

from refinesynth.errors import InputError
from refinesynth.extras import check_installed, require
from refinesynth.files.gguf import check_gguf, is_gguf, unpack_gguf
from refinesynth.train.config import SCRATCH, LoraConfig, TrainConfig
from refinesynth.train.data.conversation_reader import source_file, split_weight
from refinesynth.train.layered_settings import portable, published
from refinesynth.train.plan import read_deepspeed
from refinesynth.train.render.template import read_template

_HUB_TIMEOUT: Final = 10.0
"""Timeout of a request to the hub, in seconds."""


def pretrained_arguments(name: str, revision: str | None = None) -> dict[str, Any]:
    """Arguments of `from_pretrained`, also offline; for a GGUF file, of its tokenizer only. Raises `InputError`."""
    if is_gguf(name):
        path = Path(name)
        return {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name, "local_files_only": True}
    is_local = Path(name).is_dir() or not find_on_hub(name, revision)
    optional = {} if revision is None else {"revision": revision}
    return {"pretrained_model_name_or_path": name, "local_files_only": is_local, **optional}


@cache
def find_on_hub(name: str, revision: str | None = None) -> bool:
    """Look up a model on the hub; False if the hub is unreachable and the cache has the name. Raises `InputError`."""
    require("huggingface_hub", "train")
    import huggingface_hub as hub
    from huggingface_hub import constants, errors, file_download

    try:
        hub.HfApi().repo_info(name, revision=revision, timeout=_HUB_TIMEOUT)
    except errors.GatedRepoError:
        return True  # The files may be in the cache; loading reports missing ones.
    except (errors.HFValidationError, errors.RevisionNotFoundError, errors.RepositoryNotFoundError) as error:
        at_revision = "" if revision is None else f" at {revision!r}"
        raise InputError(
            f"there is no folder {name!r}, and no model of this name{at_revision} on the Hugging Face Hub ({constants.ENDPOINT}): {error}"
        ) from error
    except errors.HfHubHTTPError:
        return True
    except Exception as error:  # The client raises many kinds of network errors.
        cached = Path(constants.HF_HUB_CACHE, file_download.repo_folder_name(repo_id=name, repo_type="model"))
        if cached.is_dir():
            return False
        raise InputError(
            f"there is no folder {name!r}, and the Hugging Face Hub ({constants.ENDPOINT}) cannot be reached "
            f"({type(error).__name__}: {error}); nothing of this name was fetched before"
        ) from error
    return True


def check_inputs(config: TrainConfig, sources: Sequence[Any] | None = None) -> None:
    """Check that every file and hub name of a training exists; `sources` replaces `config.data`.

    Raises `InputError` if one does not exist, and `ConfigurationError` if a library is missing.
    """
    check_installed("train", "torch", "transformers")
    for source in config.data if sources is None else sources:
        if isinstance(name := split_weight(source)[0], str | Path):
            source_file(name)
    read_template(config.chat_template)
    if config.deepspeed is not None:
        read_deepspeed(config.deepspeed)
    if config.quantize is not None:
        check_installed("quantize", "bitsandbytes")
    models = {(config.model, config.revision), config.tokenizer_source}
    if config.lora is not None and find_adapter(config.model) is not None:
        base, revision, _ = resolve_base(config)
        models.add((base, None if Path(base).is_dir() else revision))
    remote = sorted((name, revision or "") for name, revision in models if not _is_local(name, revision))
    for name, _ in remote:
        if Path(name).is_file():
            raise InputError(
                f"{name!r} is a file; expected a folder with config.json and safetensors, a GGUF file (NAME.gguf), or a name of the hub"
            )
    for name, revision in remote:
        find_on_hub(name, revision or None)


def _is_local(name: str, revision: str | None) -> bool:
    """Return True for a folder, GGUF file or `scratch`. Raises `InputError` for a bad GGUF file, or with a revision."""
    if is_gguf(name):
        check_gguf(name)
    is_local = name == SCRATCH or Path(name).is_dir() or is_gguf(name)
    if is_local and revision is not None:
        kind = "made here" if name == SCRATCH else "a file" if is_gguf(name) else "a folder"
        raise InputError(f"{name!r} is {kind} and has no revision {revision!r}; revisions are of names on the hub")
    return is_local


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
    return (base, None) if is_gguf(config.model) else published(base, revision)


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
