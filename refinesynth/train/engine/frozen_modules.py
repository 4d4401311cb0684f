"""Parameters that text never reaches: vision towers and projectors, layers whose output is not used.

DDP would wait for their gradients, and adapters there learn nothing. They are frozen before the model is wrapped, and
get no adapters.
"""

import re
from collections.abc import Iterable
from copy import deepcopy
from operator import attrgetter
from typing import Any, Final, cast

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoModelForCausalLM
from transformers.initialization import no_init_weights

from refinesynth.train.engine.lm_head import base_model, output_head

_TOKENS: Final = 8
_EXPERT: Final = re.compile(r"(.*experts?)\.\d+\.")
"""One of a list of experts: its gradient depends on the tokens."""


def unused_by_text(config: Any, *, trust_remote_code: bool = False) -> dict[str, int]:
    """Parameters of a model of this configuration that text gives no gradient, by prefix of their names.

    A forward and a backward pass on tensors without values finds them exactly, before the model is loaded. Where a
    model's course depends on values, all but decoder and head is taken to be unused if the configuration has parts
    beside text, else nothing; `choose_layout` then repeats the pass with values.
    """
    with FakeTensorMode(), no_init_weights():
        # Grouped matrix products of experts exist in bf16 alone. The library notes the type in the configuration that
        # it is given.
        model = cast(
            "nn.Module",
            AutoModelForCausalLM.from_config(
                deepcopy(config), trust_remote_code=trust_remote_code, dtype=torch.bfloat16
            ),
        )
        try:
            logits = cast("Any", model)(input_ids=torch.zeros(1, _TOKENS, dtype=torch.long), use_cache=False).logits
            logits.sum().backward()
        except Exception:  # noqa: BLE001 - third-party code, on tensors that it was not written for
            return _under_prefixes(model, _beside_text(model))
        return without_gradient(model)


def without_gradient(model: nn.Module) -> dict[str, int]:
    """Trainable parameters without a gradient after a backward pass, by prefix, without experts that got no token."""
    wanting = {name: one.grad is not None for name, one in model.named_parameters() if one.requires_grad}
    routed = {found[1] for name, reached in wanting.items() if reached and (found := _EXPERT.match(name))}
    names = {
        name
        for name, reached in wanting.items()
        if not reached and not ((found := _EXPERT.match(name)) and found[1] in routed)
    }
    return _under_prefixes(model, names)


def freeze(model: nn.Module, prefixes: Iterable[str]) -> None:
    """Freeze the parameters under `prefixes`."""
    for prefix in prefixes:
        cast("nn.Module | nn.Parameter", attrgetter(prefix)(model)).requires_grad_(False)


def _beside_text(model: nn.Module) -> set[str]:
    base = cast("Any", base_model(model))
    if base.config.get_text_config() is base.config:
        return set()
    text = [base.get_decoder(), base.get_input_embeddings(), output_head(model)]
    kept = {id(one) for part in text if part is not None for one in part.parameters()}
    return {name for name, one in model.named_parameters() if id(one) not in kept}


def _under_prefixes(model: nn.Module, names: set[str]) -> dict[str, int]:
    """The fewest prefixes that cover `names` and no other parameter."""
    parameters = dict(model.named_parameters())
    kept_in = {parent for name in parameters.keys() - names for parent in _parents(name)}
    found: dict[str, int] = {}
    for name in (name for name in parameters if name in names):
        whole = next((parent for parent in _parents(name) if parent not in kept_in), name)
        found[whole] = found.get(whole, 0) + parameters[name].numel()
    return found


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]
