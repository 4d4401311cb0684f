"""The common interface of the providers' batch APIs."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

import orjson

from refinesynth.client.batch.batch_record import Batch
from refinesynth.client.http.reply import HttpError

NOT_IN_TIME, BUSY, REJECTED, BROKEN = 504, 429, 400, 500
"""Equivalent HTTP statuses of a single request."""

Body: TypeAlias = dict[str, Any]
"""Body of one request."""
Outcome: TypeAlias = dict[str, Any] | Exception
"""A completion, or the error in its place."""
Answer: TypeAlias = Callable[[Body], Awaitable[Outcome]]
"""Waits until a batch has answered a body."""


@dataclass(frozen=True)
class EndedBatch:
    """A batch that is no longer processed."""

    status: str
    files: tuple[str, ...] = ()
    """Ids of the files with its answers and its errors."""
    errors: str = ""
    """Reason why it was not begun."""


class BatchApi(Protocol):
    """Batches of one backend.

    All methods raise the errors of the provider's SDK, which hold no key.
    """

    keyed: bool
    """True if candidates are identified by their key; else a candidate is this batch if it has outcomes for the key."""

    async def ask(self, request: Mapping[str, Any], answer: Answer) -> object:
        """Return the completion for a request, whose body is given to `answer`.

        Raises:
            Exception: The outcome, or the request has no body.
        """
        ...

    async def send(self, requests: Mapping[str, Body], *, key: str) -> str:
        """Send bodies by their ids; return the id of the batch."""
        ...

    async def candidates(self, batch: Batch) -> list[str]:
        """Return the ids of batches that may be this one, if it was sent."""
        ...

    async def look(self, batch: str) -> EndedBatch | None:
        """Return the end of a batch; None while it is processed."""
        ...

    async def outcomes(self, ended: EndedBatch, key: str) -> dict[str, Outcome]:
        """Return the outcomes of the requests that were sent with this key, by their ids, as far as its files have
        them.
        """
        ...

    async def aclose(self) -> None: ...


def missing(ended: EndedBatch) -> HttpError:
    """Return the error of a request without an outcome in an ended batch."""
    if ended.status == "expired":
        return HttpError(NOT_IN_TIME, "the batch has expired before it came to this request")
    if ended.status == "failed":
        return HttpError(BUSY if "limit" in ended.errors else REJECTED, f"the batch was not begun: {ended.errors}")
    return HttpError(BROKEN, f"the batch is {ended.status} and says nothing of this request")


def results(content: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the ids of requests, each with its line in a file of results; a line that is cut off counts as missing."""
    for line in content.splitlines():
        try:
            said: object = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(said, dict) and isinstance(request := cast("Body", said).get("custom_id"), str):
            yield request, cast("Body", said)
