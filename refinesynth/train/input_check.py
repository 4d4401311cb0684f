"""Checks that all named inputs of a training exist, before torch is imported, data read or a model fetched."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refinesynth.errors import InputError
from refinesynth.extras import check_installed
from refinesynth.files.gguf import check_gguf, is_gguf
from refinesynth.train.config import SCRATCH, TrainConfig
from refinesynth.train.data.conversation_reader import kind_of, weighed
from refinesynth.train.data.record_files import hub_name
from refinesynth.train.deepspeed_file import own_deepspeed
from refinesynth.train.existing_adapter import base_revision, underlying
from refinesynth.train.hub import bare, check_model_name, find_on_hub
from refinesynth.train.render.template import read_template


def check_inputs(config: TrainConfig, sources: Sequence[Any] | None = None) -> None:
    """Find everything that `config` names, here and then on the hub, or raise `InputError`; `sources` replace its data."""
    plain = [weighed(source)[0] for source in (config.data if sources is None else sources)]
    datasets = [hub_name(str(name)) for name in plain if isinstance(name, str | Path) and kind_of(name) == "hub"]
    read_template(config.chat_template)
    if config.deepspeed is not None:
        own_deepspeed(config.deepspeed)
    if config.lora is not None and config.lora.quantize is not None:
        check_installed("quantize", "bitsandbytes")
    models = {(config.model, config.revision), config.tokenizer_source}
    if config.lora is not None and Path(config.model).is_dir():
        base, adapter = underlying(config)
        models.add((base, base_revision(config, adapter) if not Path(base).is_dir() else None))
    elsewhere = sorted((name, revision or "") for name, revision in models if not _is_here(name, revision))
    for name, _ in elsewhere:
        if Path(name).is_file():
            raise InputError(
                f"{name!r} is a file; expected a folder with config.json and safetensors, a GGUF file (NAME.gguf), or a name of the hub"
            )
        check_model_name(name)
    for name in datasets:
        find_on_hub(name, "dataset")
    for name, revision in elsewhere:
        find_on_hub(bare(name), "model", revision or None)


def _is_here(name: str, revision: str | None) -> bool:
    """Raises: InputError: A revision is given for a folder, a file or a model from scratch; or it is a bad GGUF file."""
    if is_gguf(name):
        check_gguf(name)
    is_here = name == SCRATCH or Path(name).is_dir() or is_gguf(name)
    if is_here and revision is not None:
        what = "made here" if name == SCRATCH else "a file" if is_gguf(name) else "a folder"
        raise InputError(f"{name!r} is {what} and has no revision {revision!r}; revisions are of names on the hub")
    return is_here
