"""An adapter and its base as one model, which every library loads without peft."""

# torch and transformers are typed in part: pyright may not know all of a member that is used here.
# pyright: reportUnknownMemberType=false

import shutil
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers import GenerationConfig

from refinesynth.errors import InputError, StorageError, TrainingError
from refinesynth.train.adapter import TOKENIZER, Adapter
from refinesynth.train.config import TrainConfig
from refinesynth.train.engine.adapters import with_adapter
from refinesynth.train.engine.loading import describe_model, load_model, load_tokenizer
from refinesynth.train.engine.save_check import Trained, file_differences
from refinesynth.train.engine.save_dtype import in_dtype, note_written, written_dtype
from refinesynth.train.engine.saving import writing

_GENERATION = "generation_config.json"


def merge_adapter(config: TrainConfig, adapter: Adapter) -> torch.dtype:
    """Write `adapter`, merged into the model that `config` names, to the output folder; gives the type that its weights
    are in.

    What is added to a weight is computed in fp32, and the sum is rounded once. The folder is there whole, or not at
    all.

    Raises:
        InputError: The base cannot be loaded, or is not the adapter's.
        TrainingError: It cannot be written, or what was written is not what was merged.
    """
    shape = describe_model(config)
    half = shape.dtype == "bfloat16" and config.save_dtype in {"auto", "bf16"}
    base = load_model(config, "bf16-pure" if half else "fp32", gradient_checkpointing=False)
    if getattr(cast("Any", base).config, "quantization_config", None) is not None:
        raise InputError(f"the base {config.model!r} is quantized; give the model that it was made from with --model")
    device = "cuda" if config.device == "auto" and torch.cuda.is_available() else "cpu"
    adapted: Any = with_adapter(base.to(device), adapter)
    _untie(adapted)
    with warnings.catch_warnings():
        # A head that was trained beside the adapters is no longer the embedding, which peft writes down and warns of.
        warnings.filterwarnings("ignore", "Input and output embeddings are no longer tied")
        merged = cast("nn.Module", adapted.merge_and_unload())
    dtype = written_dtype(config, shape) or torch.float32
    with _whole(Path(config.output)) as folder:
        _write(merged, folder, dtype)
        if (adapter.folder / _GENERATION).is_file():
            GenerationConfig.from_pretrained(str(adapter.folder)).save_pretrained(str(folder))
        own = (adapter.folder / TOKENIZER).is_file()
        where = config.model_copy(update={"tokenizer": str(adapter.folder)}) if own else config
        load_tokenizer(where).save_pretrained(str(folder))
    return dtype


def _untie(adapted: Any) -> None:
    """Give the head a weight of its own where it is the embedding's and one of them is adapted: merged in place, that
    would change both.
    """
    base = adapted.get_base_model()
    both = base.get_output_embeddings(), base.get_input_embeddings()
    head, embedding = (getattr(one, "base_layer", one) for one in both)
    if head is None or head.weight is not embedding.weight or not any(hasattr(one, "base_layer") for one in both):
        return
    head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=False)


def _write(model: nn.Module, folder: Path, dtype: torch.dtype) -> None:
    wanted = Trained.of(model)
    with writing(folder):
        cast("Any", model).save_pretrained(str(folder), state_dict=in_dtype(model, None, dtype))
    note_written(model, folder, dtype, ("", None))
    if differences := file_differences(wanted, folder):
        raise TrainingError(
            f"what was written to {folder} is not what was merged: {'; '.join(differences)}; please report it"
        )


@contextmanager
def _whole(output: Path) -> Generator[Path]:
    """A folder beside `output`, which takes its place at the end."""
    beside = output.with_name(f".{output.name}.unfinished")
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        yield beside
        beside.replace(output)
    except OSError as exc:
        raise StorageError(f"{str(output)!r} cannot be written: {exc.strerror}") from exc
    finally:
        shutil.rmtree(beside, ignore_errors=True)
