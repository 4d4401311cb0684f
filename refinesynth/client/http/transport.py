"""The choice between the direct HTTP client and litellm for a backend; the presets with that choice.

Importing this loads no heavy library.
"""

import os
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel

from refinesynth.backends.backend import Backend, Mixed
from refinesynth.backends.presets import PRESETS
from refinesynth.backends.providers import key_of, key_variables, server_of, split
from refinesynth.backends.replayed import replayed_folder
from refinesynth.client.http.provider_params import ELSEWHERE, PASSED_ON, asked_straight, taken

_ONLY_LITELLM_READS = (
    "OPENAI_ORGANIZATION", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "SSL_VERIFY", "SSL_CERTIFICATE", "SSL_SECURITY_LEVEL",
    "SSL_ECDH_CURVE", "USE_LITELLM_PROXY",
)  # fmt: skip
"""Variables that change what litellm sends or trusts; if one is set, litellm is used."""


MANY = 128
"""Requests in flight from which litellm's CPU time matters: 3 ms per request, eight times the direct client's."""

_PROXIES = ("http", "https")
"""Kinds of proxies that the direct client can use."""

_SERVERS = {"openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"), "hosted_vllm": ("HOSTED_VLLM_API_BASE",)}
"""Providers of the direct client, with the environment variables that may name the server, in order."""
_OPENAI = "https://api.openai.com/v1"

Path: TypeAlias = Literal["direct", "litellm", "built in"]
"""Way of a request: our own HTTP client, litellm's SDK, or none."""


class TransportChoice(NamedTuple):
    """A path with its reason."""

    path: Path
    why: str


def path_of(backend: Backend, *, in_flight: int) -> TransportChoice:
    """Return the path of one backend in the present environment, in a run with so many requests in flight.

    `path=direct` gives the direct client even if it cannot be used; opening it says why.
    """
    if backend.rehearses or replayed_folder(backend):
        return TransportChoice("built in", "no server is asked")
    if backend.path != "auto":
        return TransportChoice(backend.path, f"path={backend.path}")
    if (why_not := why_not_direct(backend)) is not None:
        return TransportChoice("litellm", why_not)
    many = min(in_flight, backend.max_in_flight or in_flight)
    if many < MANY:
        return TransportChoice("litellm", f"fewer than {MANY} requests in flight")
    return TransportChoice("direct", f"up to {many:,} requests in flight")


def routed(backend: Backend, *, in_flight: int) -> Backend:
    """Return the backend with `auto` replaced by the chosen path; each of a mixture for itself."""
    paths = [(one, path_of(one, in_flight=in_flight).path) for one in backend.each]
    return Mixed.of([one if path == "built in" else one.model_copy(update={"path": path}) for one, path in paths])


def why_not_direct(backend: Backend) -> str | None:
    """Return why a backend cannot use the direct client, to follow a colon; None if it can. Opens nothing."""
    provider, model = split(backend.model)
    if provider not in _SERVERS:
        return f"only litellm knows how {provider or 'its provider'} is asked"
    if provider == "openai" and not asked_straight(backend, model):
        return f"{model} needs what only litellm does for it"
    if (unknown := _unknown(backend, provider, model)) is not None:
        return f"only litellm knows what {unknown} means there"
    if (variable := next((name for name in _ONLY_LITELLM_READS if os.environ.get(name)), None)) is not None:
        return f"the variable {variable} is set, which only litellm heeds"
    if (proxy_of(base_url_of(backend)) or _PROXIES[0]).partition("://")[0] not in _PROXIES:
        return "the proxy that the environment names is not one of HTTP's"
    return None


def _unknown(backend: Backend, provider: str, model: str) -> str | None:
    own = {"temperature": backend.temperature, "top_p": backend.top_p, "max_tokens": backend.max_tokens}
    asked = [name for name, value in (*own.items(), *backend.extra.items()) if value is not None]
    body = backend.extra.get("extra_body")
    if isinstance(body, dict) and "model" in body:
        return "another model in extra_body"
    known = taken(provider, model) | PASSED_ON | (ELSEWHERE - {"model", "messages", "api_base", "api_key"})
    return next((name for name in asked if name not in known), None)


def base_url_of(backend: Backend) -> str:
    """Return the server's base URL."""
    variables = _SERVERS[split(backend.model)[0]]
    named = next((value for name in variables if (value := os.environ.get(name))), None)
    return server_of(backend) or named or _OPENAI


def proxy_of(url: str) -> str | None:
    """Return the URL of the environment's proxy for this one; None if there is none or none is needed."""
    from urllib.request import getproxies, proxy_bypass

    address, proxies = urlsplit(url), getproxies()
    named = proxies.get(address.scheme) or proxies.get("all")
    if named is None or proxy_bypass(address.hostname or ""):
        return None
    return named if "://" in named else f"http://{named}"


_NO_BOUND = 1_000_000


class BackendRow(BaseModel, frozen=True, extra="forbid"):
    """One preset, and whether it can be used now."""

    name: str
    model: str
    """litellm model string."""
    path: Path
    """With as many requests in flight as possible."""
    key_variable: str | None
    """Environment variable that must hold the key; None if none is needed."""
    key_set: bool
    """True if that variable is set, or none is needed."""
    note: str


def describe() -> list[BackendRow]:
    """Return all presets, in the table's order, with the state of the present environment."""
    return [
        BackendRow(
            name=name,
            model=preset.backend.model,
            path=path_of(preset.backend, in_flight=_NO_BOUND).path,
            key_variable=next(iter(key_variables(preset.backend)), None),
            key_set=not key_variables(preset.backend) or key_of(preset.backend) is not None,
            note=preset.note,
        )
        for name, preset in PRESETS.items()
    ]
