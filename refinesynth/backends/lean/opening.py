"""From a backend to its lean completion function."""

import os

from refinesynth.backends.backend import Backend
from refinesynth.backends.lean.choosing import base_url_of, why_not_lean
from refinesynth.backends.lean.completion import LeanCompletion
from refinesynth.backends.lean.connection import Route
from refinesynth.backends.lean.dialects import DIALECTS, Dialect
from refinesynth.backends.providers import key_of, server_of, split
from refinesynth.errors import ConfigurationError

_ENDPOINT = "chat/completions"
_NO_KEY = "none"
"""What servers that look at no key are given, as on the other path."""


def lean_completion(backend: Backend) -> LeanCompletion | None:
    """The completion function for a backend that goes the lean way; None for one that goes through litellm.

    Imports nothing of litellm.

    Raises:
        ConfigurationError: `backend.path` demands the lean way, and it does not lead there.
    """
    why_not = why_not_lean(backend)
    route = None
    if why_not is None:
        provider, model = split(backend.model)
        dialect = DIALECTS[provider]
        route = Route.to(_address(backend, dialect))
        if route is not None:
            return LeanCompletion(dialect, model, route, _key(backend, dialect))
        why_not = "the proxy that the environment names is not one of HTTP's"
    if backend.path == "lean":
        raise ConfigurationError(f"{backend.label} cannot be asked with path=lean: {why_not}; take path=auto")
    return None


def _address(backend: Backend, dialect: Dialect) -> str:
    base = (base_url_of(backend, dialect) or "").rstrip("/")
    if base.endswith(_ENDPOINT):
        return base
    return f"{base.removesuffix(dialect.ending)}{dialect.ending}/{_ENDPOINT}"


def _key(backend: Backend, dialect: Dialect) -> str:
    key = key_of(backend)
    if key is None and server_of(backend) is None:
        # A server that a provider's own variable names may be given that provider's own key.
        key = next((value for name in dialect.key_env if (value := os.environ.get(name))), None)
    return key or _NO_KEY
