"""Batch APIs of OpenAI and Anthropic, through their own SDKs.

litellm's functions for OpenAI's batches open an SDK client for each call and never close it: one poll a minute for a
day leaves a thousand open sockets. litellm can read Anthropic's batches, but not create them.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, cast

import httpx
import orjson
from pydantic import AwareDatetime, BaseModel

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import key_of, split_model
from refinesynth.client import litellm_sdk
from refinesynth.client.http.reply import HttpError, read_reply, status_error, status_of_code
from refinesynth.client.http.transport import base_url_of, body_of
from refinesynth.errors import ConfigurationError

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

_SUCCESS, _REJECTED, _BUSY, _BROKEN, _NOT_IN_TIME = 200, 400, 429, 500, 504
"""HTTP statuses with which a single request would report the same outcome."""

Body: TypeAlias = dict[str, Any]
"""Body of one request."""
Outcome: TypeAlias = dict[str, Any] | Exception
"""Completion, or the error in its place."""
Answer: TypeAlias = Callable[[Body], Awaitable[Outcome]]
"""Function that waits until a batch has answered a body."""


class Batch(BaseModel, frozen=True, extra="forbid"):
    """Batch, recorded before it is sent."""

    key: str
    """Random key, sent with the batch to identify it if its id was not recorded."""
    made: AwareDatetime
    """Time of the record."""
    id: str | None = None
    """Provider's id; None if the batch may not have been sent."""
    requests: tuple[str, ...] = ()
    """Ids of the requests."""


@dataclass(frozen=True)
class EndedBatch:
    status: str
    files: tuple[str, ...] = ()
    """OpenAI: ids of the files with answers and errors. Anthropic: id of the batch."""
    errors: str = ""
    """Reason why the provider did not begin the batch."""

    def missing(self) -> HttpError:
        """Return the error of a request without an outcome."""
        if self.status == "expired":
            return HttpError(_NOT_IN_TIME, "the batch has expired before it came to this request")
        if self.status == "failed":
            status = _BUSY if "limit" in self.errors else _REJECTED
            return HttpError(status, f"the batch was not begun: {self.errors}")
        return HttpError(_BROKEN, f"the batch is {self.status} and says nothing of this request")


class BatchApi(ABC):
    """Batches of one backend at its provider, or at a server with the same endpoints.

    All methods raise the errors of the provider's SDK, which hold no key.
    """

    is_keyed: ClassVar[bool]
    """True if the key identifies a candidate; else only the outcomes of a candidate show its key."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        # The SDKs require a key, even for servers that check none.
        self._key = key_of(backend) or "none"

    @abstractmethod
    async def ask(self, request: Mapping[str, Any], answer: Answer) -> object:
        """Return the completion that `answer` gives for the body of a request.

        Raises:
            Exception: The outcome is an error, or the request cannot be converted to a body.
        """

    @abstractmethod
    async def send(self, requests: Mapping[str, Body], *, key: str) -> str:
        """Send a batch of request ids and bodies; return the provider's id of the batch."""

    @abstractmethod
    async def candidates(self, batch: Batch) -> list[str]:
        """Return the provider's ids of batches that may be this batch; empty if it was not sent."""

    @abstractmethod
    async def poll(self, batch: str) -> EndedBatch | None:
        """Return the end of a batch; None while the provider processes it."""

    @abstractmethod
    async def outcomes(self, ended: EndedBatch, key: str) -> dict[str, Outcome]:
        """Return request ids and their outcomes, as far as the results of the batch with this key contain them."""

    async def aclose(self) -> None:
        """Close the connections; a later call opens new ones."""
        if (client := vars(self).pop("_client", None)) is not None:
            await client.close()


def _results(content: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each request id with its line in a results file; a truncated line is skipped."""
    for line in content.splitlines():
        try:
            result: object = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(result, dict) and isinstance(request := cast("Body", result).get("custom_id"), str):
            yield request, cast("Body", result)


_METADATA = "refinesynth"
"""Name of a batch's key in OpenAI's metadata."""
_MAX_SEARCHED = 1_000
"""Number of latest batches that are searched for an interrupted one."""
_ENDPOINT: Final = "/v1/chat/completions"


class OpenAIBatches(BatchApi):
    is_keyed = True

    async def ask(self, request: Mapping[str, Any], answer: Answer) -> object:
        outcome = await answer(body_of(request, provider="openai", model=split_model(self._backend.model)[1]))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def send(self, requests: Mapping[str, Body], *, key: str) -> str:
        lines = [
            {"custom_id": request, "method": "POST", "url": _ENDPOINT, "body": body}
            for request, body in requests.items()
        ]
        content = b"".join([orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines])
        file = await self._client.files.create(file=(f"{key}.jsonl", content), purpose="batch")
        batch = await self._client.batches.create(
            completion_window="24h", endpoint=_ENDPOINT, input_file_id=file.id, metadata={_METADATA: key}
        )
        return batch.id

    async def candidates(self, batch: Batch) -> list[str]:
        count = 0
        async for item in self._client.batches.list(limit=100):
            if item.metadata and item.metadata.get(_METADATA) == batch.key:
                return [item.id]
            count += 1
            if count == _MAX_SEARCHED:
                break
        return []

    async def poll(self, batch: str) -> EndedBatch | None:
        job = await self._client.batches.retrieve(batch)
        if job.status not in {"completed", "expired", "cancelled", "failed"}:
            return None
        errors = [f"{error.code}: {error.message}" for error in (job.errors and job.errors.data) or ()]
        return EndedBatch(job.status, tuple(filter(None, (job.output_file_id, job.error_file_id))), "; ".join(errors))

    async def outcomes(self, ended: EndedBatch, key: str) -> dict[str, Outcome]:  # noqa: ARG002 - all have it
        outcomes: dict[str, Outcome] = {}
        for file in ended.files:
            content = (await self._client.files.content(file)).content
            outcomes.update((request, _openai_outcome(line)) for request, line in _results(content))
        return outcomes

    @cached_property
    def _client(self) -> "AsyncOpenAI":
        from openai import AsyncOpenAI

        backend = self._backend
        return AsyncOpenAI(api_key=self._key, base_url=base_url_of(backend), timeout=backend.timeout, max_retries=0)


def _openai_outcome(line: Body) -> Outcome:
    match line:
        case {"response": {**answer}}:
            status, body = answer.get("status_code"), orjson.dumps(answer.get("body"))
            try:
                if status == _SUCCESS:
                    return read_reply(body, {})
                return status_error(status if isinstance(status, int) else _BROKEN, body, {})
            except HttpError as unreadable:
                return unreadable
        case _:
            text = orjson.dumps(line.get("error")).decode()
            return HttpError(_NOT_IN_TIME if "expired" in text else _BROKEN, text)


_PATH = "/v1/messages"
_BETA = "anthropic-beta"
_MAX_CLOCK_LAG = timedelta(minutes=10)
"""Maximum lag of Anthropic's clock behind the local one."""


class AnthropicBatches(BatchApi):
    """Batches of Anthropic with litellm's bodies: litellm posts into a mock transport, which takes the body and returns
    the batch's answer hours later.
    """

    is_keyed = False
    _server: str | None = None
    """Server to which litellm posts requests; None before the first request."""

    async def ask(self, request: Mapping[str, Any], answer: Answer) -> object:
        failure: Exception | None = None

        async def in_batch(posted: httpx.Request) -> httpx.Response:
            nonlocal failure
            outcome = await self._in_batch(posted, answer)
            if isinstance(outcome, Exception):
                failure = outcome
                raise outcome
            return httpx.Response(200, json=outcome)

        client = litellm_sdk.http_client(httpx.MockTransport(in_batch))
        try:
            return await litellm_sdk.completion(**request, client=client)
        except Exception:
            if failure is None:
                raise
        # The original error, not litellm's; outside of the handler, to keep litellm's out of its context.
        raise failure

    async def _in_batch(self, posted: httpx.Request, answer: Answer) -> Outcome:
        address = str(posted.url)
        if not address.endswith(_PATH):
            return ConfigurationError(f"a batch takes what goes to {_PATH}, and litellm posts to {address}")
        self._server = address.removesuffix(_PATH)
        return await answer({"params": orjson.loads(posted.content), _BETA: posted.headers.get(_BETA, "")})

    async def send(self, requests: Mapping[str, Body], *, key: str) -> str:
        betas = {beta.strip() for body in requests.values() for beta in body[_BETA].split(",")} - {""}
        # Anthropic's batches have no metadata: the key goes into the ids.
        items: Any = [{"custom_id": f"{key}{request}", "params": body["params"]} for request, body in requests.items()]
        headers = {_BETA: ",".join(sorted(betas))} if betas else None
        return (await self._client.messages.batches.create(requests=items, extra_headers=headers)).id

    async def candidates(self, batch: Batch) -> list[str]:
        ids: list[str] = []
        # Listed from the latest to the oldest.
        async for item in self._client.messages.batches.list(limit=100):
            if item.created_at < batch.made - _MAX_CLOCK_LAG:
                break
            if item.archived_at is None and sum(count for _, count in item.request_counts) == len(batch.requests):
                ids.append(item.id)
        return ids[::-1]

    async def poll(self, batch: str) -> EndedBatch | None:
        job = await self._client.messages.batches.retrieve(batch)
        return EndedBatch(job.processing_status, (batch,)) if job.processing_status == "ended" else None

    async def outcomes(self, ended: EndedBatch, key: str) -> dict[str, Outcome]:
        (batch,) = ended.files
        # As bytes: the SDK splits lines at characters that JSON strings may contain.
        async with self._client.messages.batches.with_streaming_response.results(batch) as response:
            lines = _results(await response.read())
        return {name.removeprefix(key): _anthropic_outcome(line) for name, line in lines if name.startswith(key)}

    @cached_property
    def _client(self) -> "AsyncAnthropic":
        from anthropic import AsyncAnthropic

        return AsyncAnthropic(
            api_key=self._key,
            base_url=self._server,
            timeout=self._backend.timeout,
            max_retries=0,
            # The header that litellm sends: gateways may check only this one.
            default_headers={"x-api-key": self._key},
        )


def _anthropic_outcome(line: Body) -> Outcome:
    match line.get("result"):
        case {"type": "succeeded", "message": message}:
            return message
        case {"type": "errored", "error": {"error": {"type": str(kind)}} as page}:
            return status_error(status_of_code(kind) or _BROKEN, orjson.dumps(page), {})
        case {"type": str(kind)}:
            return EndedBatch(kind).missing()
        case _:
            return EndedBatch("ended").missing()
