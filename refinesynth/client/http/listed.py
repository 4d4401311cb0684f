"""What litellm's price map says of a model, read from its file: the import would take seconds and 177 MiB."""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from refinesynth.backends.providers import read_table

_TABLE = "model_prices_and_context_window_backup.json"
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Listed(NamedTuple):
    """A model's entry, and that of its name without a provider, which may say what the first does not."""

    own: Mapping[str, Any]
    """Empty for a model that is not listed."""
    bare: Mapping[str, Any]


@lru_cache(maxsize=64)
def listed(provider: str, model: str) -> Listed:
    """The entries of one of a provider's models, found as litellm finds them."""
    table = read_table(_TABLE)
    names = {name.lower(): name for name in table}

    def entry(name: str) -> Mapping[str, Any] | None:
        found = name if name in table else names.get(name.lower())
        return None if found is None else table[found]

    bare = entry(model)
    candidates = [entry(f"{provider}/{model}"), bare]
    if provider == "openai" and model.startswith("ft:"):
        # ft:BASE:organization:name:id
        candidates.append(entry(":".join(model.split(":")[:2])))
    own = next((one for one in candidates if one is not None and one.get("litellm_provider") == provider), None)
    return Listed(_NOTHING, _NOTHING) if own is None else Listed(own, bare or _NOTHING)


def says(provider: str, model: str, fact: str) -> bool | None:
    """Whether a model can do something (`supports_reasoning`); None if the map does not say."""
    found = listed(provider, model)
    value = found.own.get(fact)
    if value is None and found.bare.get(fact) is True:
        return True
    return value if isinstance(value, bool) else None
