"""From a backend to its completion function over the direct HTTP client."""

import os
from collections.abc import Mapping
from typing import cast

import orjson
from pydantic_ai.models import check_allow_model_requests

from refinesynth._version import __version__
from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import key_of, server_of, split
from refinesynth.client.http.choosing import base_url_of, why_not_direct
from refinesynth.client.http.connection import Connection, Route
from refinesynth.client.http.dialects import DIALECTS, Dialect, body_of
from refinesynth.client.http.reply import Reply, read_reply, refused
from refinesynth.errors import ConfigurationError

_SUCCESSES = range(200, 300)


class DirectCompletion:
    """What `litellm.acompletion` does for one model, with as little work per call as it takes.

    Guarantees: the body sent is the one that litellm sends; the answer is what `answers.read_answer` reads from
    litellm's; faults are classified alike. Every answer is read up to a bound. Redirects are not followed. No key is in
    its `repr`, nor in the errors it raises.

    Not promised: streaming, and a time limit; the caller sets that. `api_base` and `api_key` of a request are not
    looked at: both are settled when the backend is opened.
    """

    def __init__(self, dialect: Dialect, model: str, route: Route, key: str) -> None:
        """Nothing is sent yet.

        Args:
            dialect: What the server understands.
            model: The model's name, without the provider.
            route: The address of its chat completions.
            key: What it is given as a bearer token.
        """
        self.model = model
        self._dialect = dialect
        headers = {
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/json",
            "User-Agent": f"refinesynth/{__version__}",
        }
        self._connection = Connection(route, headers)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, {self._connection!r})"

    def accepts(self, parameter: str) -> bool:
        """Whether requests may carry this OpenAI parameter."""
        return parameter in self._dialect.takes(self.model)

    async def __call__(self, **request: object) -> Reply:
        """One completion.

        Raises:
            UnsupportedParamsError: The provider does not take one of the arguments.
            HttpError: The server answers with an error, or with something that is no JSON object.
            aiohttp.ClientError: The server cannot be reached, or breaks the connection off.
            OSError: Likewise.
        """
        check_allow_model_requests()
        body = body_of(request, model=self.model, dialect=self._dialect)
        headers = cast("Mapping[str, str] | None", request.get("extra_headers"))
        status, received, said = await self._connection.post(orjson.dumps(body), headers)
        if status not in _SUCCESSES:
            raise refused(status, said, received)
        return read_reply(said, received, prefix=self._dialect.prefix)

    async def aclose(self) -> None:
        """Close the connections that are open; a later call opens new ones."""
        await self._connection.aclose()


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
    return f"{base}/{_ENDPOINT}"


def _key(backend: Backend, dialect: Dialect) -> str:
    key = key_of(backend)
    if key is None and server_of(backend) is None:
        # A server that a provider's own variable names may be given that provider's own key.
        key = next((value for name in dialect.key_env if (value := os.environ.get(name))), None)
    return key or _NO_KEY
