"""OpenAI's batch API, through its own SDK.

litellm's functions for it are this SDK's, with a client for each call that is never closed: with a look a minute for a
day, a thousand open sockets.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import key_of
from refinesynth.client.http.choosing import base_url_of
from refinesynth.client.http.dialects import DIALECTS
from refinesynth.client.http.errors import HttpError, refused
from refinesynth.client.http.reply import Reply, read_reply

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_KEY = "refinesynth"
"""Under which a batch's key is among its metadata."""
_LATEST = 1_000
"""Batches, the latest first, among which one is looked for that was just sent."""
_ENDPOINT: Final = "/v1/chat/completions"
_ENDED = frozenset({"completed", "expired", "cancelled", "failed"})
_SUCCESS = 200
_NOT_IN_TIME, _BUSY, _REJECTED, _BROKEN = 504, 429, 400, 500
"""What it would have been if the request had been sent by itself."""

Outcome = Reply | Exception
"""A completion, or what came instead."""


@dataclass(frozen=True)
class Ended:
    """A batch that is worked on no longer."""

    status: str
    files: tuple[str, ...]
    """With its answers and its errors."""
    errors: str
    """Why it was not begun."""


class BatchApi:
    """The batches of one backend.

    Everything raises what the SDK does; none of its errors holds a key.
    """

    def __init__(self, backend: Backend) -> None:
        """Nothing is sent yet."""
        self._backend = backend
        self._opened: AsyncOpenAI | None = None

    async def send(self, requests: Mapping[str, Mapping[str, Any]], *, key: str) -> str:
        """Send bodies of chat completions, each by its id; the id of the batch."""
        lines = [
            {"custom_id": request, "method": "POST", "url": _ENDPOINT, "body": body}
            for request, body in requests.items()
        ]
        content = b"".join([orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines])
        made = await self._client.files.create(file=(f"{key}.jsonl", content), purpose="batch")
        batch = await self._client.batches.create(
            completion_window="24h", endpoint=_ENDPOINT, input_file_id=made.id, metadata={_KEY: key}
        )
        return batch.id

    async def find(self, key: str) -> str | None:
        """The id of the batch that was sent with this key; None if none was."""
        seen = 0
        async for batch in self._client.batches.list(limit=100):
            if batch.metadata and batch.metadata.get(_KEY) == key:
                return batch.id
            seen += 1
            if seen == _LATEST:
                break
        return None

    async def look(self, batch: str) -> Ended | None:
        """What has become of a batch; None while it is worked on."""
        now = await self._client.batches.retrieve(batch)
        if now.status not in _ENDED:
            return None
        errors = [f"{error.code}: {error.message}" for error in (now.errors and now.errors.data) or ()]
        return Ended(now.status, tuple(filter(None, (now.output_file_id, now.error_file_id))), "; ".join(errors))

    async def outcomes(self, ended: Ended) -> dict[str, Outcome]:
        """What became of its requests, by their ids, as far as its files say."""
        found: dict[str, Outcome] = {}
        for file in ended.files:
            found.update(_outcomes((await self._client.files.content(file)).content))
        return found

    async def aclose(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    @property
    def _client(self) -> "AsyncOpenAI":
        if self._opened is None:
            from openai import AsyncOpenAI

            backend = self._backend
            server = base_url_of(backend, DIALECTS["openai"])
            # The SDK insists on a key, even for servers that look at none.
            key = key_of(backend) or "none"
            self._opened = AsyncOpenAI(api_key=key, base_url=server, timeout=backend.timeout, max_retries=0)
        return self._opened


def missing(ended: Ended) -> HttpError:
    """Why a request of a batch that has ended has no outcome."""
    if ended.status == "expired":
        return HttpError(_NOT_IN_TIME, "the batch has expired before it came to this request")
    if ended.status == "failed":
        return HttpError(_BUSY if "limit" in ended.errors else _REJECTED, f"the batch was not begun: {ended.errors}")
    return HttpError(_BROKEN, f"the batch is {ended.status} and says nothing of this request")


def _outcomes(content: bytes) -> Iterator[tuple[str, Outcome]]:
    for line in content.splitlines():
        try:
            said: object = orjson.loads(line)
        except orjson.JSONDecodeError:
            # What is cut off counts as missing.
            continue
        if isinstance(said, dict) and isinstance(request := cast("dict[str, Any]", said).get("custom_id"), str):
            yield request, _outcome(cast("dict[str, Any]", said))


def _outcome(line: Mapping[str, Any]) -> Outcome:
    answer = line.get("response")
    if not isinstance(answer, dict):
        text = orjson.dumps(line.get("error")).decode()
        return HttpError(_NOT_IN_TIME if "expired" in text else _BROKEN, text)
    known = cast("dict[str, Any]", answer)
    status, body = known.get("status_code"), orjson.dumps(known.get("body"))
    try:
        if status == _SUCCESS:
            return read_reply(body, {})
        return refused(status if isinstance(status, int) else _BROKEN, body, {})
    except HttpError as unreadable:
        return unreadable
