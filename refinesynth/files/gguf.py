"""GGUF files as models: unpacked once, to ordinary folders with fp32 weights, since what transformers loads from them
cannot be saved. Importing this module imports neither torch nor gguf.
"""

import hashlib
from errno import ENOSPC
from importlib.metadata import version
from os import strerror
from pathlib import Path
from shutil import disk_usage, rmtree
from textwrap import shorten
from typing import Any, Final, cast

import orjson
from filelock import FileLock, Timeout

from refinesynth.errors import InputError, StorageError
from refinesynth.extras import check_installed
from refinesynth.files.output_folder import CACHE, cache_folder

_MAGIC: Final = b"GGUF"
_UNFINISHED: Final = "unfinished-"
_WRITTEN: Final = "unpacked.json"
"""File with the names and sizes of all others of an unpacked folder."""
_COMPARED: Final = 4096
"""Rows of embedding and head that are compared."""
_SAME: Final = 0.9
"""Cosine from which on two quantized matrices are taken for one; of two that were trained apart it is far lower."""
_LLAMA_3: Final = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""Rotary scaling of Llama 3.1 to 3.3 (their config.json), besides its factor."""


def is_gguf(name: str) -> bool:
    """Return True for the name of a GGUF file."""
    return name.lower().endswith(".gguf") and not Path(name).is_dir()


def check_gguf(name: str) -> None:
    """Raise `InputError` if it is no GGUF file, by its beginning, and `ConfigurationError` if a package is missing."""
    try:
        with Path(name).open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise InputError(f"the model {name!r} cannot be read: {error.strerror}; expected a GGUF file") from error
    if magic != _MAGIC:
        raise InputError(
            f"{name!r} is no GGUF file: it begins with {magic!r} instead of {_MAGIC!r}; give another file, or a folder with "
            "config.json and safetensors"
        )
    check_installed("gguf", "gguf", "torch", "transformers", "accelerate")


def unpacked(name: str) -> str:
    """Return the folder to which a GGUF file is unpacked, made if it is not there; other names as they are.

    Raises `InputError` if it cannot be read, and `StorageError` if the folder cannot be written.
    """
    if not is_gguf(name):
        return name
    check_gguf(name)
    with Path(name).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(version("transformers").encode())
    folder = cache_folder().absolute() / "gguf" / f"{Path(name).stem}-{digest.hexdigest()[:12]}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_unfinished(folder.parent)
        with FileLock(f"{folder}.lock"):  # ranks that need it wait for the first
            if not _is_whole(folder):
                made = folder.with_name(f"{_UNFINISHED}{folder.name}")
                rmtree(folder, ignore_errors=True)
                rmtree(made, ignore_errors=True)
                try:
                    _unpack(Path(name), made)
                    made.rename(folder)
                finally:
                    rmtree(made, ignore_errors=True)
    except OSError as error:
        raise StorageError(
            f"{name!r} cannot be unpacked to {folder}: {error}; make room (4 bytes per parameter), or set {CACHE} to another folder"
        ) from error
    return str(folder)


def _remove_unfinished(cache: Path) -> None:
    """Remove folders of processes that ended before they were done: their locks are free."""
    for left in cache.glob(f"{_UNFINISHED}*"):
        try:
            with FileLock(cache / f"{left.name.removeprefix(_UNFINISHED)}.lock", timeout=0):
                rmtree(left, ignore_errors=True)
        except Timeout:
            continue


def _sizes(folder: Path) -> dict[str, int]:
    return {one.name: one.stat().st_size for one in folder.iterdir() if one.name != _WRITTEN}


def _is_whole(folder: Path) -> bool:
    """Return whether all files that were written are there, each in its size."""
    try:
        written: dict[str, int] = orjson.loads((folder / _WRITTEN).read_bytes())
        return written.items() <= _sizes(folder).items()
    except (OSError, ValueError, AttributeError):
        return False


def _unpack(path: Path, folder: Path) -> None:
    from transformers import AutoTokenizer

    try:
        model = _dequantized(path)
        tokenizer = cast("Any", AutoTokenizer).from_pretrained(str(path.parent), gguf_file=path.name)
    except Exception as error:  # The library raises many kinds, and the file is third-party data.
        problem = shorten(str(error), 300, placeholder="...") or type(error).__name__
        raise InputError(
            f"the GGUF file {str(path)!r} cannot be read: {problem}. Expected a whole file with a causal language model that transformers "
            "reads from GGUF. Fetch the file again, or take the model's folder with safetensors."
        ) from error
    if disk_usage(folder.parent).free < 4 * model.num_parameters():
        raise OSError(ENOSPC, strerror(ENOSPC))
    try:
        model.save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))
    except Exception as error:  # safetensors and tokenizers have kinds of their own for a full disk
        raise OSError(str(error)) from error
    (folder / _WRITTEN).write_bytes(orjson.dumps(_sizes(folder)))


def _dequantized(path: Path) -> Any:
    """The file's model as an ordinary one. Raises `ValueError` if it would not be the file's model."""
    import torch
    from gguf import GGUFReader
    from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig

    reader, kind = GGUFReader(str(path)), cast("Any", AutoModelForCausalLM)
    if (parts := reader.get_field("split.count")) is not None and parts.contents() > 1:
        raise ValueError(f"it is one of {parts.contents()} parts; join them with llama-gguf-split --merge")
    source = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    config = cast("Any", AutoConfig).from_pretrained(**source)
    _restore_rotation(reader, config)
    loaded, info = kind.from_pretrained(
        **source,
        config=config,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
        output_loading_info=True,
    )
    weights = loaded.state_dict()
    restored = _restore_tie(weights, loaded, config)
    config.dtype = torch.float32
    with torch.device("meta"):
        plain = kind.from_config(config)
    plain.load_state_dict(weights, assign=True, strict=False)
    plain.tie_weights()
    plain.generation_config = loaded.generation_config
    others = ("rope_", f"blk.{config.num_hidden_layers}.")  # rotary factors, layers that draft tokens
    stored = sum(int(one.n_elements) for one in reader.tensors if not one.name.startswith(others))
    taken = sum(one.numel() for one in plain.parameters()) + restored
    if info["missing_keys"] or stored != taken:
        raise ValueError(
            f"its tensors have {stored:,} numbers, and transformers' {type(plain).__name__} takes {taken:,}"
        )
    return plain


def _restore_tie(weights: dict[str, Any], loaded: Any, config: Any) -> int:
    """Tie embedding and head if quantizers wrote one matrix twice, and keep the head, which has more bits. Return how
    many numbers are dropped.
    """
    import torch

    head, embedding = loaded.get_output_embeddings().weight, loaded.get_input_embeddings().weight
    if config.tie_word_embeddings or head.shape != embedding.shape:
        return 0
    alike = torch.cosine_similarity(head[:_COMPARED].flatten(), embedding[:_COMPARED].flatten(), dim=0)
    if alike < _SAME:
        return 0
    config.tie_word_embeddings = True
    name = next(name for name, one in weights.items() if one.data_ptr() == embedding.data_ptr())
    weights[name] = head.detach()
    return embedding.numel()


def _restore_rotation(reader: Any, config: Any) -> None:
    """Set the scaled rotary embedding of Llama 3.1 to 3.3, which transformers does not read from the file, or raise
    `ValueError` if the file has another one that was not read.
    """
    import torch
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    factors = {one.name: torch.tensor(one.data) for one in reader.tensors if one.name.startswith("rope_")}
    scaling = reader.get_field(f"{reader.get_field('general.architecture').contents()}.rope.scaling.type")
    rotation: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    kinds: list[Any] = [rotation] if "rope_type" in rotation else list(rotation.values())
    is_scaled = bool(factors) or (scaling is not None and scaling.contents() != "none")
    if not is_scaled or any(one["rope_type"] != "default" for one in kinds):
        return
    if rotation in kinds and set(factors) == {"rope_freqs.weight"}:
        by = factors["rope_freqs.weight"]
        plain = rotation["rope_theta"] ** -(torch.arange(len(by)) / len(by))
        config.rope_parameters = {**rotation, **_LLAMA_3, "rope_type": "llama3", "factor": float(by.max())}
        if torch.allclose(ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))[0], plain / by, rtol=1e-4):
            return
    raise ValueError("its rotary embedding is scaled in a way that transformers does not read from GGUF")
