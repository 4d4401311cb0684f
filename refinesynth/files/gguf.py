"""GGUF files as models, unpacked once to model folders with fp32 weights, because transformers cannot save a model that
it loaded from GGUF. The module imports torch and gguf lazily.
"""

import hashlib
from errno import ENOSPC
from importlib.metadata import version
from math import isclose
from os import strerror
from pathlib import Path
from shutil import disk_usage, rmtree
from textwrap import shorten
from typing import Any, Final, cast

import orjson
from filelock import FileLock, Timeout

from refinesynth.errors import InputError, StorageError
from refinesynth.files.output_folder import CACHE, cache_folder
from refinesynth.lazy_imports import check_installed

_MAGIC: Final = b"GGUF"
_UNFINISHED: Final = "unfinished-"
_UNPACKING: Final = 2
"""Version of the unpacked folder; folders of other versions are not used."""
_SIZES_FILE: Final = "unpacked.json"
"""File with the names and sizes of all other files of an unpacked folder."""
_COMPARED_ROWS: Final = 4096
"""Number of compared rows of embedding and head."""
_MIN_SIMILARITY: Final = 0.9
"""Minimum cosine similarity of two quantizations of one matrix; separately trained matrices are far below."""
_LLAMA_3: Final = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""Rotary scaling of Llama 3.1 to 3.3 (source: their config.json), without the factor."""

_SCALED_BY_WIDTH: Final = {("gemma2", 46), ("gemma3_text", 62)}
"""Types and numbers of blocks of the models of 27B that scale attention by width per head (source: llama.cpp)."""


def is_gguf(name: str) -> bool:
    """Return True for a name that ends in `.gguf` and is no folder."""
    return name.lower().endswith(".gguf") and not Path(name).is_dir()


def check_gguf(name: str) -> None:
    """Raise `InputError` if the file has not GGUF's first bytes, and `ConfigurationError` if a package is missing."""
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


def unpack_gguf(name: str) -> str:
    """Unpack a GGUF file, unless it was unpacked before, and return the folder; return other names unchanged.

    Raises `InputError` if the file cannot be read, and `StorageError` if the folder cannot be written.
    """
    if not is_gguf(name):
        return name
    check_gguf(name)
    with Path(name).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(f"{version('transformers')} {_UNPACKING}".encode())
    folder = cache_folder().absolute() / "gguf" / f"{Path(name).stem}-{digest.hexdigest()[:12]}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_unfinished(folder.parent)
        with FileLock(f"{folder}.lock"):  # one rank unpacks, the others wait
            if not _is_complete(folder):
                unfinished = folder.with_name(f"{_UNFINISHED}{folder.name}")
                rmtree(folder, ignore_errors=True)
                rmtree(unfinished, ignore_errors=True)
                try:
                    _unpack(Path(name), unfinished)
                    unfinished.rename(folder)
                finally:
                    rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        raise StorageError(
            f"{name!r} cannot be unpacked to {folder}: {error}; make room (4 bytes per parameter), or set {CACHE} to another folder"
        ) from error
    return str(folder)


def _remove_unfinished(cache: Path) -> None:
    """Remove folders of processes that died while unpacking, recognized by a free lock."""
    for unfinished in cache.glob(f"{_UNFINISHED}*"):
        try:
            with FileLock(cache / f"{unfinished.name.removeprefix(_UNFINISHED)}.lock", timeout=0):
                rmtree(unfinished, ignore_errors=True)
        except Timeout:
            continue


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir() if path.name != _SIZES_FILE}


def _is_complete(folder: Path) -> bool:
    """Return whether all written files exist with their sizes."""
    try:
        sizes: dict[str, int] = orjson.loads((folder / _SIZES_FILE).read_bytes())
        return sizes.items() <= _sizes(folder).items()
    except (OSError, ValueError, AttributeError):
        return False


def _unpack(path: Path, folder: Path) -> None:
    from transformers import AutoTokenizer

    try:
        model = _load_dequantized(path)
        tokenizer = cast("Any", AutoTokenizer).from_pretrained(str(path.parent), gguf_file=path.name)
    except Exception as error:  # transformers raises many exception types for invalid files
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
    except Exception as error:  # safetensors and tokenizers raise their own exception types for a full disk
        raise OSError(str(error)) from error
    (folder / _SIZES_FILE).write_bytes(orjson.dumps(_sizes(folder)))


def _load_dequantized(path: Path) -> Any:
    """Return the file's model with plain weights. Raises `ValueError` if the model would differ from the file's."""
    import torch
    from gguf import GGUFReader
    from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig

    reader, model_class = GGUFReader(str(path)), cast("Any", AutoModelForCausalLM)
    if (parts := reader.get_field("split.count")) is not None and parts.contents() > 1:
        raise ValueError(f"it is one of {parts.contents()} parts; join them with llama-gguf-split --merge")
    source = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    config = cast("Any", AutoConfig).from_pretrained(**source)
    _restore_settings(reader, config)
    _restore_rotation(reader, config)
    loaded, info = model_class.from_pretrained(
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
        plain_model = model_class.from_config(config)
    plain_model.load_state_dict(weights, assign=True, strict=False)
    plain_model.tie_weights()
    plain_model.generation_config = loaded.generation_config
    extra_prefixes = ("rope_", f"blk.{config.num_hidden_layers}.")  # rotary factors, and layers for drafting tokens
    stored = sum(int(tensor.n_elements) for tensor in reader.tensors if not tensor.name.startswith(extra_prefixes))
    used = sum(parameter.numel() for parameter in plain_model.parameters()) + restored
    if info["missing_keys"] or stored != used:
        raise ValueError(
            f"its tensors have {stored:,} numbers, and transformers' {type(plain_model).__name__} takes {used:,}"
        )
    return plain_model


def _restore_tie(weights: dict[str, Any], loaded: Any, config: Any) -> int:
    """Tie embedding and head if the file has one matrix twice, and keep the head, which has more bits. Return the number
    of dropped values.
    """
    import torch

    head, embedding = loaded.get_output_embeddings().weight, loaded.get_input_embeddings().weight
    if config.tie_word_embeddings or head.shape != embedding.shape:
        return 0
    similarity = torch.cosine_similarity(head[:_COMPARED_ROWS].flatten(), embedding[:_COMPARED_ROWS].flatten(), dim=0)
    if similarity < _MIN_SIMILARITY:
        return 0
    config.tie_word_embeddings = True
    name = next(name for name, tensor in weights.items() if tensor.data_ptr() == embedding.data_ptr())
    weights[name] = head.detach()
    return embedding.numel()


def _restore_settings(reader: Any, config: Any) -> None:
    """Set what transformers replaces by a default: base and width of the rotary embedding, and the scale of attention.
    Raises `ValueError` for a width that the model cannot have.
    """
    if (config.model_type, config.num_hidden_layers) in _SCALED_BY_WIDTH:
        config.query_pre_attn_scalar = config.hidden_size // config.num_attention_heads
    rotation: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    if "rope_theta" not in rotation:  # none, or one per kind of layer
        return
    architecture = reader.get_field("general.architecture").contents()
    base, width = (reader.get_field(f"{architecture}.rope.{name}") for name in ("freq_base", "dimension_count"))
    if base is not None and not isclose(base.contents(), rotation["rope_theta"], rel_tol=1e-6):
        rotation["rope_theta"] = base.contents()
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if width is not None and width.contents() != int(head * rotation.get("partial_rotary_factor", 1.0)):
        if "partial_rotary_factor" not in rotation:
            raise ValueError(f"it rotates {width.contents()} of {head} dimensions, and transformers rotates all")
        rotation["partial_rotary_factor"] = width.contents() / head
    config.rope_parameters = rotation


def _restore_rotation(reader: Any, config: Any) -> None:
    """Set the scaled rotary embedding of Llama 3.1 to 3.3, which transformers does not read from GGUF. Raises
    `ValueError` for another scaling that was not read.
    """
    import torch
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    factors = {tensor.name: torch.tensor(tensor.data) for tensor in reader.tensors if tensor.name.startswith("rope_")}
    scaling = reader.get_field(f"{reader.get_field('general.architecture').contents()}.rope.scaling.type")
    rotation: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    rotations: list[Any] = [rotation] if "rope_type" in rotation else list(rotation.values())
    is_scaled = bool(factors) or (scaling is not None and scaling.contents() != "none")
    if not is_scaled or any(parameters["rope_type"] != "default" for parameters in rotations):
        return
    if rotation in rotations and set(factors) == {"rope_freqs.weight"}:
        scales = factors["rope_freqs.weight"]
        freqs = rotation["rope_theta"] ** -(torch.arange(len(scales)) / len(scales))
        config.rope_parameters = {**rotation, **_LLAMA_3, "rope_type": "llama3", "factor": float(scales.max())}
        if torch.allclose(ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))[0], freqs / scales, rtol=1e-4):
            return
    raise ValueError("its rotary embedding is scaled in a way that transformers does not read from GGUF")
