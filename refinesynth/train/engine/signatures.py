"""The libraries' functions without a promise that are called here, as they were when that was written.

A release that changes one would fail in the middle of a training, or, worse, pass it
by.
"""

import inspect
from collections.abc import Mapping
from importlib import metadata
from operator import attrgetter
from pkgutil import resolve_name
from typing import Any, Final

from refinesynth.errors import ConfigurationError

TRAINING: Final[Mapping[str, str]] = {
    "transformers.core_model_loading:revert_weight_conversion": "model state_dict",
}
STARTING: Final[Mapping[str, str]] = {
    "torch.distributed.elastic.multiprocessing.api:_terminate_process_handler": "signum frame"
}
_TESTED: Final = {"transformers": "5.23.0", "torch": "2.13.0"}


def check(expected: Mapping[str, str]) -> None:
    """Make sure that a library is the one that ours was written for, in all that one of these tables names.

    Raises:
        ConfigurationError: It is not; the message names the version that is.
    """
    changed = [f"{place}{what}" for place, names in expected.items() if (what := _change(place, names))]
    if changed:
        package = next(iter(expected)).partition(":")[0].partition(".")[0]
        raise ConfigurationError(
            f"the installed {package} {metadata.version(package)} is not the one that this was written for: {'; '.join(changed)}. "
            f"{package} {_TESTED[package]} works: pip install '{package}=={_TESTED[package]}'"
        )


def _change(place: str, names: str) -> str:
    """How what is found at `place` differs; empty if it does not."""
    owner, _, member = place.partition(":")[2].rpartition(".")
    try:
        module: Any = resolve_name(place.partition(":")[0])
        found = inspect.getattr_static(attrgetter(owner)(module) if owner else module, member)
    except AttributeError:
        return " is not there"
    got = " ".join(inspect.signature(getattr(found, "__func__", found)).parameters)
    return "" if got == names else f" takes ({got.replace(' ', ', ')}), not ({names.replace(' ', ', ')})"
