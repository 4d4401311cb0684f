"""Segments of one run in an object store. `obstore` is imported here, and only for a URL."""

import re
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, TypeVarTuple, Unpack

import anyio
from anyio.to_thread import run_sync

from refinesynth.errors import ConfigurationError, StorageError
from refinesynth.extras import require
from refinesynth.files.output_folder import cache_folder
from refinesynth.journal.rows import LARGEST
from refinesynth.stores.segment import NAME, Segment, name_of

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_Given = TypeVarTuple("_Given")
_Got = TypeVar("_Got")

_AT_ONCE = 16


class Listed(NamedTuple):
    """Segment in the store."""

    number: int
    written: datetime


class AlreadyThere(StorageError):
    """The segment to write exists."""


class RunStore:
    """Reads segments and adds the next; changes and deletes nothing.

    Every method raises `StorageError` if the store cannot be reached or refuses.
    """

    def __init__(self, url: str) -> None:
        """Raises ConfigurationError: it is no URL of a store, or obstore is not installed."""
        require("obstore", "stores")
        from obstore.exceptions import BaseError
        from obstore.store import from_url

        self.url = url.rstrip("/")
        if re.search(r"://[^/]*:[^/]*@", url):
            raise ConfigurationError(
                "a URL with a key in it would be written down with it; keys belong in the environment"
            )
        # What obstore tries again beyond this, a run tries again itself.
        retry = {"max_retries": 2, "retry_timeout": timedelta(seconds=15)}
        local = {"mkdir": True} if url.startswith("file:") else {"retry_config": retry}
        try:
            self._store: ObjectStore = from_url(self.url, **local)  # pyright: ignore[reportCallIssue, reportArgumentType] - one of its overloads
        except (BaseError, ValueError, TypeError) as error:
            raise ConfigurationError(
                f"cannot read {url!r} as the place of a run ({first_line(error)}); expected s3://BUCKET/NAME, gs://BUCKET/NAME or "
                f"az://CONTAINER/NAME, with keys and endpoints in the environment; see docs/stores.md"
            ) from error

    def __str__(self) -> str:
        return self.url

    async def after(self, number: int) -> list[Listed]:
        """Return the segments behind this one, in order. Raises StorageError: one is missing."""
        import obstore

        with self._told("read"):
            pages = obstore.list(self._store, offset=name_of(number))  # pyright: ignore[reportUnknownMemberType] - for arrow
            there = await _in_a_thread(pages.collect)
        found = sorted(
            Listed(int(name[1]), one["last_modified"]) for one in there if (name := NAME.fullmatch(one["path"]))
        )
        if [one.number for one in found] != [*range(number + 1, number + 1 + len(found))]:
            raise StorageError(
                f"of the segments in {self.url!r} behind number {number} some are missing; there are {len(found)}"
            )
        return found

    async def read(self, number: int) -> Segment:
        """Read one segment. Raises StorageError: it is too large, or no segment."""
        import obstore

        name = f"{self.url}/{name_of(number)}"
        with self._told("read"):
            there = await _in_a_thread(obstore.get, self._store, name_of(number))
            if there.meta["size"] > LARGEST:
                raise StorageError(
                    f"{name} has {there.meta['size']:,} bytes, and {LARGEST:,} are the most that is read"
                )
            data = bytes(await _in_a_thread(there.bytes))
        segment = Segment.from_bytes(data, name)
        if segment.number != number:
            raise StorageError(f"{name} holds segment {segment.number}; put the original back")
        return segment

    async def read_all(self, numbers: Iterable[int]) -> AsyncGenerator[Segment, None]:
        """Yield segments in this order, some read ahead. Raises StorageError: one is too large, or no segment."""
        found: dict[int, Segment | StorageError] = {}

        async def read(number: int) -> None:
            try:
                found[number] = await self.read(number)
            except StorageError as error:
                found[number] = error

        left = iter(numbers)
        while some := tuple(islice(left, _AT_ONCE)):
            async with anyio.create_task_group() as tasks:
                for number in some:
                    tasks.start_soon(read, number)
            for number in some:
                if isinstance(segment := found.pop(number), StorageError):
                    raise segment
                yield segment

    async def add(self, number: int, data: bytes) -> None:
        """Write a segment. Raises AlreadyThere: another process, or an earlier try that was not answered, wrote it."""
        import obstore

        with self._told("write"):
            put = partial(obstore.put, mode="create", use_multipart=False)
            await _in_a_thread(put, self._store, name_of(number), data)

    @contextmanager
    def _told(self, do: str) -> Generator[None]:
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            yield
        except AlreadyExistsError as error:
            raise AlreadyThere(f"cannot {do} {self.url!r}: {first_line(error)}") from error
        except (BaseError, OSError) as error:
            keys = _KEYS.get(self.url.partition("://")[0])
            check = f". If the bucket is there, check {keys} in the environment" if keys else ""
            raise StorageError(f"cannot {do} {self.url!r}: {first_line(error)}{check}") from error


async def _in_a_thread(call: Callable[[Unpack[_Given]], _Got], *given: *_Given) -> _Got:
    """Call obstore in a thread. Its own asynchronous functions panic if the process ends during one of them."""
    return await run_sync(call, *given, abandon_on_cancel=True)


_KEYS = {
    "s3": "AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}


def first_line(error: BaseException) -> str:
    """Return what an error says, without the details behind it."""
    return str(error).strip().partition("\n")[0][:400]


def place_of(url: str) -> Path:
    """Return the local work place of the run at this URL."""
    url = url.rstrip("/")
    readable = re.sub(r"[^A-Za-z0-9]+", "-", url)[-60:].strip("-")
    return cache_folder() / "stores" / f"{readable}-{blake2b(url.encode(), digest_size=6).hexdigest()}"
