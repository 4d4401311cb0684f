"""Anthropic's batch API, through its own SDK: litellm reads its batches and cannot create them.

Bodies and answers are litellm's: it posts into a transport that hands the body over, and gets the batch's answer hours
later.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx
import orjson

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import key_of
from refinesynth.client import litellm_sdk
from refinesynth.client.batch.api import BROKEN, Answer, Body, EndedBatch, Outcome, missing, results
from refinesynth.client.batch.batch_record import Batch
from refinesynth.client.http.reply import refused, status_meant
from refinesynth.errors import ConfigurationError

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

_PATH = "/v1/messages"
_BETA = "anthropic-beta"
_CLOCKS = timedelta(minutes=10)
"""Greatest lag of Anthropic's clock."""


class AnthropicBatches:
    """Batches of a backend at Anthropic, or at a server with the same endpoints; see `BatchApi`."""

    keyed = False

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._server: str | None = None
        """Server to which litellm would post the requests."""
        self._opened: AsyncAnthropic | None = None

    async def ask(self, request: Mapping[str, Any], answer: Answer) -> object:
        failed: Exception | None = None

        async def in_batch(posted: httpx.Request) -> httpx.Response:
            nonlocal failed
            outcome = await self._in_batch(posted, answer)
            if isinstance(outcome, Exception):
                failed = outcome
                raise outcome
            return httpx.Response(200, json=outcome)

        client = litellm_sdk.http_client(httpx.MockTransport(in_batch))
        try:
            return await litellm_sdk.completion(**request, client=client)
        except Exception:
            if failed is None:
                raise
        # Not what litellm makes of it; and outside of the handler, so that none of that hangs on it.
        raise failed

    async def _in_batch(self, posted: httpx.Request, answer: Answer) -> Outcome:
        address = str(posted.url)
        if not address.endswith(_PATH):
            return ConfigurationError(f"a batch takes what goes to {_PATH}, and litellm posts to {address}")
        self._server = address.removesuffix(_PATH)
        return await answer({"params": orjson.loads(posted.content), _BETA: posted.headers.get(_BETA, "")})

    async def send(self, requests: Mapping[str, Body], *, key: str) -> str:
        betas = {beta.strip() for body in requests.values() for beta in body[_BETA].split(",")} - {""}
        # A batch has no metadata.
        asked: Any = [{"custom_id": f"{key}{request}", "params": body["params"]} for request, body in requests.items()]
        headers = {_BETA: ",".join(sorted(betas))} if betas else None
        return (await self._client.messages.batches.create(requests=asked, extra_headers=headers)).id

    async def candidates(self, batch: Batch) -> list[str]:
        found: list[str] = []
        # The latest first.
        async for one in self._client.messages.batches.list(limit=100):
            if batch.made is not None and one.created_at < batch.made - _CLOCKS:
                break
            if one.archived_at is None and sum(count for _, count in one.request_counts) == len(batch.requests):
                found.append(one.id)
        return found[::-1]

    async def look(self, batch: str) -> EndedBatch | None:
        now = await self._client.messages.batches.retrieve(batch)
        return EndedBatch(now.processing_status, (batch,)) if now.processing_status == "ended" else None

    async def outcomes(self, ended: EndedBatch, key: str) -> dict[str, Outcome]:
        (batch,) = ended.files
        # As bytes: the SDK would split lines at characters that may stand in JSON.
        async with self._client.messages.batches.with_streaming_response.results(batch) as answer:
            lines = results(await answer.read())
        return {name.removeprefix(key): _outcome(line.get("result")) for name, line in lines if name.startswith(key)}

    async def aclose(self) -> None:
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    @property
    def _client(self) -> "AsyncAnthropic":
        if self._opened is None:
            from anthropic import AsyncAnthropic

            backend = self._backend
            # The SDK insists on a key, even for servers that look at none.
            key = key_of(backend) or "none"
            self._opened = AsyncAnthropic(
                api_key=key,
                base_url=self._server,
                timeout=backend.timeout,
                max_retries=0,
                # As litellm sends it: gateways may look there alone.
                default_headers={"x-api-key": key},
            )
        return self._opened


def _outcome(result: Any) -> Outcome:
    match result:
        case {"type": "succeeded", "message": message}:
            return message
        case {"type": "errored", "error": {"error": {"type": str(kind)}} as page}:
            return refused(status_meant(kind) or BROKEN, orjson.dumps(page), {})
        case {"type": str(kind)}:
            return missing(EndedBatch(kind))
        case _:
            return missing(EndedBatch("ended"))
