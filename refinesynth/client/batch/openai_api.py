"""OpenAI's batch API, through its own SDK.

litellm's functions for it open a client of this SDK for each call and never close it: with one poll a minute for a day,
a thousand open sockets.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import key_of, split
from refinesynth.client.batch.api import BROKEN, NOT_IN_TIME, Answer, Body, EndedBatch, Outcome, results
from refinesynth.client.batch.batch_record import Batch
from refinesynth.client.http.reply import HttpError, Reply, read_reply, refused
from refinesynth.client.http.transport import base_url_of, body_of

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_KEY = "refinesynth"
"""Name of a batch's key in its metadata."""
_LATEST = 1_000
"""Latest batches among which an interrupted one is looked for."""
_ENDPOINT: Final = "/v1/chat/completions"
_ENDED = frozenset({"completed", "expired", "cancelled", "failed"})
_SUCCESS = 200


class OpenAIBatches:
    """Batches of a backend at OpenAI, or at a server with the same endpoints; see `BatchApi`."""

    keyed = True

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._model = split(backend.model)[1]
        self._opened: AsyncOpenAI | None = None

    async def ask(self, request: Mapping[str, Any], answer: Answer) -> Reply:
        outcome = await answer(body_of(request, provider="openai", model=self._model))
        if isinstance(outcome, Exception):
            raise outcome
        return cast("Reply", outcome)

    async def send(self, requests: Mapping[str, Body], *, key: str) -> str:
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

    async def candidates(self, batch: Batch) -> list[str]:
        seen = 0
        async for one in self._client.batches.list(limit=100):
            if one.metadata and one.metadata.get(_KEY) == batch.key:
                return [one.id]
            seen += 1
            if seen == _LATEST:
                break
        return []

    async def look(self, batch: str) -> EndedBatch | None:
        now = await self._client.batches.retrieve(batch)
        if now.status not in _ENDED:
            return None
        errors = [f"{error.code}: {error.message}" for error in (now.errors and now.errors.data) or ()]
        return EndedBatch(now.status, tuple(filter(None, (now.output_file_id, now.error_file_id))), "; ".join(errors))

    async def outcomes(self, ended: EndedBatch, key: str) -> dict[str, Outcome]:  # noqa: ARG002 - all have it
        found: dict[str, Outcome] = {}
        for file in ended.files:
            content = (await self._client.files.content(file)).content
            found.update((request, _outcome(line)) for request, line in results(content))
        return found

    async def aclose(self) -> None:
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    @property
    def _client(self) -> "AsyncOpenAI":
        if self._opened is None:
            from openai import AsyncOpenAI

            backend = self._backend
            # The SDK insists on a key, even for servers that look at none.
            key, server = key_of(backend) or "none", base_url_of(backend)
            self._opened = AsyncOpenAI(api_key=key, base_url=server, timeout=backend.timeout, max_retries=0)
        return self._opened


def _outcome(line: Body) -> Outcome:
    answer = line.get("response")
    if not isinstance(answer, dict):
        text = orjson.dumps(line.get("error")).decode()
        return HttpError(NOT_IN_TIME if "expired" in text else BROKEN, text)
    known = cast("Body", answer)
    status, body = known.get("status_code"), orjson.dumps(known.get("body"))
    try:
        if status == _SUCCESS:
            return read_reply(body, {})
        return refused(status if isinstance(status, int) else BROKEN, body, {})
    except HttpError as unreadable:
        return unreadable
