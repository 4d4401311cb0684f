"""From what a user writes after `--model` to a model of Inspect: a folder, a control, one of our backends, `hf/...`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import orjson
from inspect_ai.model import GenerateConfig, Model, ModelInfo, get_model, set_model_info

from refinesynth.client.budget.budget import Budget
from refinesynth.errors import InputError
from refinesynth.evaluate import controls, provider
from refinesynth.evaluate.pool import MOST
from refinesynth.extras import check_installed

INSPECTS_OWN = frozenset({"hf", "transformer_lens", "nnterp", "mockllm", "llama-cpp-python", "sglang"})
"""Providers that are left to Inspect; all other names are backends of ours."""


def open_model(name: str, *, temperature: float, settings: Mapping[str, Any], budget: str | None = None) -> Model:
    """The model of that name.

    Args:
        name: `models/first` (a folder with weights), `random`, `first` or `oracle` (see `controls`), `hf/NAME`, or a
            backend: a preset, `rehearsal`, a litellm model string. `vllm/NAME` is a server of vLLM that is running.
        temperature: 0 is greedy, which transformers must be told apart.
        settings: Further arguments: of `Backend`, or those that Inspect passes to its provider.
        budget: `5usd`, `2Mtok`; for backends of ours.

    Raises:
        InputError: There is no such model, or it cannot be opened.
    """
    bare = name.removeprefix(f"{controls.PROVIDER}/")
    local = Path(name)
    if bare in controls.CONTROLS and not local.is_dir():
        _refuse(name, settings, budget)
        return get_model(f"{controls.PROVIDER}/{bare}")
    if local.is_dir():
        folder = _weights(local)
        # Inspect would look the name up by loading such a model from the hub, which is to hear of none of it.
        set_model_info(f"hf/{local.resolve().name}", ModelInfo(context_length=_window(folder)))
        arguments = {"model_path": str(folder), "tokenizer_path": str(folder), **settings}
        return _of_inspect(f"hf/{local.resolve().name}", arguments, budget, greedy=temperature == 0)
    prefix, _, rest = name.partition("/")
    if prefix in INSPECTS_OWN:
        return _of_inspect(name, settings, budget, greedy=prefix == "hf" and temperature == 0)
    if prefix == "vllm" and rest:
        name = f"hosted_vllm/{rest}"
    backend = name.removeprefix(f"{provider.PROVIDER}/")
    # Looked at here, as an error within Inspect has a frame of its own around it.
    provider.backend_of(backend, settings)
    model = get_model(f"{provider.PROVIDER}/{backend}", memoize=False, **settings)
    # Not as an argument: those decide which finished samples are kept.
    cast("Any", model.api).budget = Budget.of(budget)
    return model


def _weights(folder: Path) -> Path:
    if any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
        return folder
    raise InputError(
        f"the folder {str(folder)!r} holds no model; expected config.json with weights and a tokenizer, as `refinesynth train` writes"
    )


def _window(folder: Path) -> int | None:
    """Most tokens of a chat that the model was made for, as its configuration says."""
    try:
        found: Any = orjson.loads((folder / "config.json").read_bytes())
        window = found.get("max_position_embeddings") or found["text_config"]["max_position_embeddings"]
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return None
    return window if isinstance(window, int) and window > 0 else None


def _of_inspect(name: str, settings: Mapping[str, Any], budget: str | None, *, greedy: bool) -> Model:
    if budget is not None:
        raise InputError(f"--budget is for models that are paid for, not for {name!r}; leave it out")
    if name.startswith("hf/"):
        check_installed("train", "torch", "transformers", "accelerate")
    arguments: dict[str, Any] = {"do_sample": False, **settings} if greedy else dict(settings)
    # Inspect's provider waits two seconds for more before each batch that has fewer than `max_connections`, and takes no
    # notice of its own `batch_size`.
    batch = arguments.get("batch_size", MOST) if name.startswith("hf/") else None
    if batch is not None and (not isinstance(batch, int) or batch < 1):
        raise InputError(f"batch_size is {batch!r}; expected 1 or more")
    try:
        return get_model(name, config=GenerateConfig(max_connections=batch), **arguments)
    except Exception as error:  # Inspect, transformers and torch raise what they like.
        raise InputError(f"the model {name!r} cannot be opened: {error}") from error


def _refuse(name: str, settings: Mapping[str, Any], budget: str | None) -> None:
    if settings or budget is not None:
        raise InputError(
            f"{name!r} is a control, which takes no settings and costs nothing; leave --set and --budget out"
        )
