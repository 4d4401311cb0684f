"""Which backends go the lean way. Importing this loads no heavy library."""

import os

from refinesynth.backends.backend import Backend
from refinesynth.backends.lean.dialects import DIALECTS, Dialect
from refinesynth.backends.lean.openai_models import asked_straight
from refinesynth.backends.lean.request import ELSEWHERE, PASSED_ON
from refinesynth.backends.providers import server_of, split

_ONLY_LITELLM_READS = (
    "OPENAI_ORGANIZATION", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "SSL_VERIFY", "SSL_CERTIFICATE", "SSL_SECURITY_LEVEL",
    "SSL_ECDH_CURVE", "USE_LITELLM_PROXY", "MISTRAL_AZURE_API_BASE", "MISTRAL_AZURE_API_KEY",
)  # fmt: skip
"""Variables that change what litellm sends or trusts; where one is set, litellm is left to it."""


def why_not_lean(backend: Backend) -> str | None:
    """Why a backend does not go the lean way, to stand after a colon; None if it does. Opens nothing."""
    if backend.path == "litellm":
        return "path=litellm says otherwise"
    if backend.rehearses:
        return "it is built in"
    provider, model = split(backend.model)
    dialect = DIALECTS.get(provider)
    if dialect is None:
        return f"only litellm knows how {provider or 'its provider'} is asked"
    return _why_not_in(dialect, backend, provider, model)


def _why_not_in(dialect: Dialect, backend: Backend, provider: str, model: str) -> str | None:
    if not dialect.only(model) or (provider == "openai" and not asked_straight(backend, model)):
        return f"{model} needs what only litellm does for it"
    if (unknown := _unknown(backend, dialect, model)) is not None:
        return f"only litellm knows what {unknown} means there"
    if (variable := next((name for name in _ONLY_LITELLM_READS if os.environ.get(name)), None)) is not None:
        return f"the variable {variable} is set, which only litellm heeds"
    return None if base_url_of(backend, dialect) is not None else "it has no base_url"


def _unknown(backend: Backend, dialect: Dialect, model: str) -> str | None:
    """The first argument of a backend's requests that its dialect does not have."""
    own = {"temperature": backend.temperature, "top_p": backend.top_p, "max_tokens": backend.max_tokens}
    asked = [*(name for name, value in own.items() if value is not None), *backend.extra]
    body = backend.extra.get("extra_body")
    if isinstance(body, dict) and "model" in body:
        return "another model in extra_body"
    known = dialect.takes(model) | PASSED_ON | (ELSEWHERE - {"model", "messages", "api_base", "api_key"})
    return next((name for name in asked if name not in known), None)


def base_url_of(backend: Backend, dialect: Dialect) -> str | None:
    """The server to ask; None if nobody names one."""
    named = next((value for name in dialect.base_url_env if (value := os.environ.get(name))), None)
    return server_of(backend) or named or dialect.base_url
