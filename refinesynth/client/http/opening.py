"""From a backend to its completion function over the direct client."""

import os

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import key_of, server_of, split
from refinesynth.client.http.choosing import base_url_of, why_not_direct
from refinesynth.client.http.completion import DirectCompletion
from refinesynth.client.http.connection import Route
from refinesynth.client.http.dialects import DIALECTS, Dialect
from refinesynth.errors import ConfigurationError

_ENDPOINT = "chat/completions"
_NO_KEY = "none"
"""What servers that look at no key are given, as on the other path."""


def direct_completion(backend: Backend) -> DirectCompletion:
    """The completion function for a backend that is asked directly. Imports nothing of litellm.

    Raises:
        ConfigurationError: It cannot be.
    """
    why_not = why_not_direct(backend)
    if why_not is not None:
        raise ConfigurationError(f"{backend.label} cannot be asked with path=direct: {why_not}; take path=auto")
    provider, model = split(backend.model)
    dialect = DIALECTS[provider]
    return DirectCompletion(dialect, model, Route.to(_address(backend, dialect)), _key(backend, dialect))


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
