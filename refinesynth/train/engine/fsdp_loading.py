"""Loading for FSDP: the first rank of each machine reads the weights; all ranks get their shards when the model is
wrapped.

Eight ranks that read a model of 8B in fp32 would need 256 GB of host memory, one needs 32. transformers leaves the
other ranks' weights without memory where these variables say so; accelerate broadcasts those of rank 0.
"""

# torch and transformers are typed in part: pyright may not know all of a member that is used here.
# pyright: reportUnknownMemberType=false

from collections.abc import Callable
from typing import Final, cast

import torch
from torch import nn

from refinesynth.errors import RefinesynthError
from refinesynth.train.engine.distributed import Distributed, all_gather_objects, environment_variables

_FSDP_VARIABLES: Final = {"ACCELERATE_USE_FSDP": "true", "FSDP_CPU_RAM_EFFICIENT_LOADING": "true"}
"""What transformers looks for in the environment when it loads a model."""


def read_once(load: Callable[..., nn.Module], distributed: Distributed) -> nn.Module:
    """What `load` gives, called with whether this rank's model stays `empty`. All ranks call this, when the process
    group stands.

    Raises:
        RefinesynthError: On every rank, where one of them cannot load its model.
    """
    with environment_variables(_FSDP_VARIABLES):
        loaded = _loaded(load, empty=distributed.local_rank != 0)
    if isinstance(loaded, nn.Module) and not can_be_broadcast(loaded):
        loaded = _loaded(load, empty=False) if distributed.local_rank != 0 else loaded
    failed = all_gather_objects(None if isinstance(loaded, nn.Module) else loaded)
    for each in (loaded, *failed):
        if isinstance(each, RefinesynthError):
            raise each
    model = cast("nn.Module", loaded)
    _give_addresses(model)
    return model


def _loaded(load: Callable[..., nn.Module], *, empty: bool) -> nn.Module | RefinesynthError:
    try:
        return load(empty=empty)
    except RefinesynthError as exc:
        return exc


def can_be_broadcast(model: nn.Module) -> bool:
    """Whether accelerate can: it takes all that is saved for parameters, and some routers have buffers that are
    saved.
    """
    return len({*model.state_dict()} - {name for name, _ in model.named_parameters(remove_duplicate=False)}) == 0


def _give_addresses(model: nn.Module) -> None:
    """Give parameters without memory an address: accelerate knows an optimizer's parameters by theirs when it wraps
    them.
    """
    made: dict[int, nn.Parameter] = {}  # tied weights stay tied
    for module in model.modules():
        for name, one in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            if one.is_meta:
                shown = torch.zeros((), dtype=one.dtype).expand(one.shape)  # one number, seen everywhere
                made.setdefault(id(one), nn.Parameter(shown, requires_grad=one.requires_grad))
                setattr(module, name, made[id(one)])
