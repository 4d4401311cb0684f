"""The common interface of the providers' batch APIs."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

import orjson

from refinesynth.client.batch.record import Batch
from refinesynth.client.http.reply import HttpError

NOT_IN_TIME, BUSY, REJECTED, BROKEN = 504, 429, 400, 500
"""What it would have been if the request had been sent by itself."""

Body: TypeAlias = dict[str, Any]
"""What is sent for one request."""
Outcome: TypeAlias = dict[str, Any] | Exception
"""A completion, or what came instead."""
Answer: TypeAlias = Callable[[Body], Awaitable[Outcome]]
"""Waits until a batch has answered a body."""


@dataclass(frozen=True)
class Ended:
    """A batch that is worked on no longer."""

    status: str
    files: tuple[str, ...] = ()
    """By what the provider gives its answers and its errors out."""
    errors: str = ""
    """Why it was not begun."""


class BatchApi(Protocol):
    """The batches of one backend.

    Everything raises what the provider's SDK does; none of its errors holds a key.
    """

    keyed: bool
    """Whether a candidate is known by its key. If not, it is this batch if it has outcomes for the key."""

    async def ask(self, request: Mapping[str, Any], answer: Answer) -> object:
        """The completion for a request, which `answer` gets for its body.

        Raises:
            Exception: What came instead, or the request cannot be written as a body.
        """
        ...

    async def send(self, requests: Mapping[str, Body], *, key: str) -> str:
        """Send bodies, each by its id; the id of the batch."""
        ...

    async def candidates(self, batch: Batch) -> list[str]:
        """The ids of batches that may be this one, if it was sent."""
        ...

    async def look(self, batch: str) -> Ended | None:
        """What has become of a batch; None while it is worked on."""
        ...

    async def outcomes(self, ended: Ended, key: str) -> dict[str, Outcome]:
        """What became of the requests that were sent with this key, by their ids, as far as its files say."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


def missing(ended: Ended) -> HttpError:
    """Why a request of a batch that has ended has no outcome."""
    if ended.status == "expired":
        return HttpError(NOT_IN_TIME, "the batch has expired before it came to this request")
    if ended.status == "failed":
        return HttpError(BUSY if "limit" in ended.errors else REJECTED, f"the batch was not begun: {ended.errors}")
    return HttpError(BROKEN, f"the batch is {ended.status} and says nothing of this request")


def results(content: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """The ids of requests, each with the line about it in a file of results; what is cut off counts as missing."""
    for line in content.splitlines():
        try:
            said: object = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(said, dict) and isinstance(request := cast("Body", said).get("custom_id"), str):
            yield request, cast("Body", said)
