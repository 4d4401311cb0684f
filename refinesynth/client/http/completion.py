"""A completion function for one backend on an OpenAI-compatible server."""

from collections.abc import Mapping
from typing import cast

import orjson
from pydantic_ai.models import check_allow_model_requests

from refinesynth._version import __version__
from refinesynth.client.http.connection import Connection, Route
from refinesynth.client.http.dialects import Dialect
from refinesynth.client.http.errors import refused
from refinesynth.client.http.reply import Reply, read_reply
from refinesynth.client.http.request import body_of

_SUCCESSES = range(200, 300)


class DirectCompletion:
    """What `litellm.acompletion` does for one model, with as little work per call as it takes.

    Guarantees: the body sent is the one that litellm sends; the answer is what `answer.read_answer` reads from
    litellm's; faults are sorted alike. Every answer is read up to a bound. Redirects are not followed. No key is in its
    `repr`, nor in the errors it raises.

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
        self._takes = dialect.takes(model)
        headers = {**dialect.headers(), "Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._connection = Connection(route, {**headers, "User-Agent": f"refinesynth/{__version__}"})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, {self._connection!r})"

    def accepts(self, parameter: str) -> bool:
        """Whether requests may carry this OpenAI parameter."""
        return parameter in self._takes

    async def __call__(self, **request: object) -> Reply:
        """One completion.

        Raises:
            UnsupportedParamsError: The provider does not take one of the arguments.
            HttpError: The server answers with an error, or with something that is no JSON object.
            aiohttp.ClientError: The server cannot be reached, or breaks the connection off.
            OSError: Likewise.
        """
        check_allow_model_requests()
        body = body_of(request, model=self.model, dialect=self._dialect, takes=self._takes)
        headers = cast("Mapping[str, str] | None", request.get("extra_headers"))
        status, received, said = await self._connection.post(orjson.dumps(body), headers)
        if status not in _SUCCESSES:
            raise refused(status, said, received)
        return self._dialect.read(read_reply(said, received, prefix=self._dialect.prefix))

    async def aclose(self) -> None:
        """Close the connections that are open; a later call opens new ones."""
        await self._connection.aclose()
