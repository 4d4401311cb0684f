"""Collection of a run's requests into batches, submission of the batches, and delivery of the answers.

Episode, role, step and digest identify a request, as in the journal. A batch is committed to the journal before it is
sent; after a crash, the same request waits for the batch that contains it.
"""

import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

import anyio
import anyio.abc
import orjson
from pydantic import ValidationError
from pydantic_ai.models import check_allow_model_requests

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import split_model
from refinesynth.backends.role import Role
from refinesynth.client.background_tasks import background_tasks
from refinesynth.client.batch.provider_batches import (
    AnthropicBatches,
    Batch,
    Body,
    EndedBatch,
    OpenAIBatches,
    Outcome,
)
from refinesynth.client.classify_error import FailureAction, classify_error
from refinesynth.client.http.transport import why_not_direct
from refinesynth.client.reporting import LOG, report
from refinesynth.client.session import current_account, stopped_clock
from refinesynth.errors import ConfigurationError, EpisodeAbandoned, RunStopped, StorageError
from refinesynth.extras import check_installed
from refinesynth.journal import BATCHES, Journal

QUIET = 2.0
"""Seconds without another request after which the collected ones are sent."""
LONGEST = 30.0
"""Longest wait of the first request for others, in seconds."""
POLL = (1.0, 60.0)
"""First and longest interval between two polls of a batch, in seconds; it grows by a third each time."""
_MOST = 10_000
"""Maximum requests of one batch: OpenAI accepts 50,000, Anthropic 100,000."""
_MOST_BYTES = 150_000_000
"""Maximum bytes of the bodies in one batch: OpenAI accepts a file of 200 MB, Anthropic a request of 256 MB."""
DAY = 26 * 3600.0
"""Timeout of a request in seconds: providers cancel a batch after 24 hours."""

BATCHED = frozenset({Role.SCRIPT_WRITER, Role.NARRATOR})
"""Roles with few requests per episode; each turn of a conversation would wait for hours."""

_Result = TypeVar("_Result")


def refuse_unbatched(backends: Mapping[Role, Backend]) -> None:
    """Raise ConfigurationError for backends that cannot use batches."""
    asked = {role: backend for role, backend in backends.items() if role in BATCHED}
    if not asked:
        raise ConfigurationError(
            "batch is for the script_writer and the narrator, and this run asks neither; leave it out"
        )
    for role, backend in ((role, one) for role, several in asked.items() for one in several.members):
        provider = split_model(backend.model)[0]
        if provider not in {"openai", "anthropic"}:
            raise ConfigurationError(
                f"batch asks OpenAI and Anthropic alone so far, and the {role} is "
                f"{backend.label}: leave batch out, or give that role a model of theirs"
            )
        if provider == "anthropic":
            check_installed("anthropic", "anthropic")
        elif (why_not := why_not_direct(backend)) is not None:
            raise ConfigurationError(f"the {role}, {backend.label}, cannot be asked in batches: {why_not}")


class BatchRecord:
    """Batches of a run, committed to its journal before they are sent, to send no request twice."""

    def __init__(self) -> None:
        self._journal: Journal | None = None
        self._batches: list[Batch] = []
        self._sent_in: dict[str, int] = {}

    def open(self, journal: Journal) -> None:
        """Read the batches of earlier processes. Raises StorageError: the journal's notes on batches are damaged."""
        self._journal = journal
        try:
            for number in range(int(journal.note(BATCHES) or 0)):
                self._learn(number, Batch.model_validate_json(journal.note(f"batch {number}") or b""))
        except (ValidationError, ValueError) as error:
            raise StorageError(f"the journal at {str(journal.path)!r} is damaged: its notes on batches") from error

    @property
    def ids(self) -> set[str | None]:
        """Provider's ids of all batches; None for batches whose id is unknown."""
        return {batch.id for batch in self._batches}

    def __getitem__(self, number: int) -> Batch:
        return self._batches[number]

    def batch_of(self, request: str) -> int | None:
        """Return the number of the batch with this request; None without one whose answers are still unread."""
        return self._sent_in.get(request)

    async def begin(self, key: str, requests: Sequence[str]) -> int:
        """Record a batch before it is sent; return its number."""
        number = len(self._batches)
        await self.change(number, Batch(key=key, made=datetime.now(UTC), requests=tuple(requests)))
        return number

    async def change(self, number: int, batch: Batch) -> None:
        """Record a change of a batch."""
        self._learn(number, batch)
        if self._journal is not None:
            await self._journal.keep_note(f"batch {number}", batch.model_dump_json().encode())
            await self._journal.keep_note(BATCHES, str(len(self._batches)).encode())

    def read(self, number: int) -> None:
        """Mark a batch's answers as read in this process: a repeated request goes into a new batch."""
        for request in self._batches[number].requests:
            if self._sent_in.get(request) == number:
                del self._sent_in[request]

    def _learn(self, number: int, batch: Batch) -> None:
        if number == len(self._batches):
            self._batches.append(batch)
        else:
            self.read(number)
            self._batches[number] = batch
        # A repeated request belongs to its latest batch.
        self._sent_in |= {name: max(number, self._sent_in.get(name, number)) for name in batch.requests}


@dataclass
class Batches:
    """Batches of a run: their record and their tasks."""

    record: BatchRecord = field(default_factory=BatchRecord)
    _tasks: anyio.abc.TaskGroup | None = field(default=None, init=False)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Send and follow batches while the context lasts; unfinished batches continue at the provider."""
        async with background_tasks() as self._tasks:
            yield

    def start(self, work: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Start a background task; it must handle its own errors."""
        if self._tasks is None:
            raise RuntimeError("batches are sent by a run alone")
        self._tasks.start_soon(work, *args)


@dataclass(eq=False)
class _Waiting:
    body: Body
    done: anyio.Event = field(default_factory=anyio.Event)
    outcome: Outcome = field(default_factory=lambda: RuntimeError("its batch is not known any more"))

    def end(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.done.set()


class BatchedCompletion:
    """Completion function that sends its requests in batches.

    Guarantees: while a batch may still answer a request, no other batch contains that request, also after a crash
    between any two steps. Faults of a request or of a whole batch are raised as for a single request.

    Not guaranteed: finding a batch whose submission was interrupted, if the provider lists it after the retry's search.
    """

    def __init__(self, backend: Backend, batches: Batches) -> None:
        self._backend = backend
        self._batches = batches
        self._record = batches.record
        self._api = (AnthropicBatches if split_model(backend.model)[0] == "anthropic" else OpenAIBatches)(backend)
        self._waiting: dict[str, _Waiting] = {}
        """Waiting requests by id, sent or not."""
        self._queue: list[str] = []
        """Ids of unsent requests."""
        self._arrived = 0.0
        self._collecting = False
        self._followed: set[int] = set()
        self._ready: dict[str, Outcome] = {}
        """Answers to requests that this process has not made yet."""

    async def aclose(self) -> None:
        """Close the connections; batches continue at the provider."""
        await self._api.aclose()

    async def __call__(self, **request: Any) -> object:
        """Return one completion, possibly hours later."""
        check_allow_model_requests()
        return await self._api.ask(request, partial(self._outcome, _id_of_current_request()))

    async def _outcome(self, name: str, body: Body) -> Outcome:
        if name in self._ready:
            return self._ready.pop(name)
        waiting = self._waiting[name] = _Waiting(body)
        number = self._record.batch_of(name)
        if number is None:
            self._enqueue(name)
        elif number not in self._followed:
            self._followed.add(number)
            self._batches.start(self._follow, number)
        try:
            with stopped_clock():
                await waiting.done.wait()
        finally:
            del self._waiting[name]
        return waiting.outcome

    def _enqueue(self, name: str) -> None:
        self._queue.append(name)
        self._arrived = anyio.current_time()
        if not self._collecting:
            self._collecting = True
            self._batches.start(self._collect)

    async def _collect(self) -> None:
        at_last = anyio.current_time() + LONGEST
        while len(self._queue) < _MOST:
            left = min(self._arrived + QUIET, at_last) - anyio.current_time()
            if left <= 0:
                break
            await anyio.sleep(left)
        bodies = self._dequeue()
        self._collecting = bool(self._queue)
        if self._queue:
            self._batches.start(self._collect)
        if bodies:
            await self._send(bodies)

    def _dequeue(self) -> dict[str, Body]:
        bodies = dict[str, Body]()
        taken = size = 0
        for name in self._queue[:_MOST]:
            if name in self._waiting:  # else the request was cancelled meanwhile
                body = self._waiting[name].body
                size += len(orjson.dumps(body))
                if bodies and size > _MOST_BYTES:
                    break
                bodies[name] = body
            taken += 1
        del self._queue[:taken]
        return bodies

    async def _send(self, bodies: dict[str, Body]) -> None:
        key, number = secrets.token_hex(16), -1
        try:
            number = await self._record.begin(key, list(bodies))
            self._followed.add(number)
            batch = await self._api.send(bodies, key=key)
            await self._record.change(number, self._record[number].model_copy(update={"id": batch}))
        except Exception as error:  # noqa: BLE001 - the waiting requests raise it
            # The batch may have been sent despite the error: a retry looks for it first.
            self._followed.discard(number)
            self._fail(bodies, error)
            return
        self._say("batch_sent", number, f"{len(bodies):,} sent to {self._backend.label}")
        await self._follow(number)

    async def _follow(self, number: int) -> None:
        """Deliver the answers of a batch when the batch ends; queue the requests of an unsent batch again."""
        batch = self._record[number]
        try:
            batch_id = batch.id or await self._find(batch)
            if batch_id is None:
                await self._record.change(number, batch.model_copy(update={"requests": ()}))
                # Requests made during that commit are in the queue already.
                for name in (self._waiting.keys() & set(batch.requests)) - set(self._queue):
                    self._enqueue(name)
                return
            if batch.id is None:
                await self._record.change(number, batch.model_copy(update={"id": batch_id}))
            ended = await self._end_of(batch_id)
            outcomes = await self._patiently(lambda: self._api.outcomes(ended, batch.key))
        except Exception as error:  # noqa: BLE001 - the waiting requests raise it
            self._fail(batch.requests, error)
            return
        finally:
            self._followed.discard(number)
        self._record.read(number)
        answered = sum(isinstance(outcomes.get(name), dict) for name in batch.requests)
        self._say("batch_ended", number, f"{answered:,} of {len(batch.requests):,} answered")
        for name in batch.requests:
            outcome = outcomes.get(name) or ended.missing()
            if name in self._waiting:
                self._waiting[name].end(outcome)
            elif isinstance(outcome, dict):
                self._ready[name] = outcome

    async def _find(self, batch: Batch) -> str | None:
        for candidate in await self._patiently(lambda: self._api.candidates(batch)):
            if self._api.keyed:
                return candidate
            if candidate not in self._record.ids:
                ended = await self._end_of(candidate)
                if await self._patiently(partial(self._api.outcomes, ended, batch.key)):
                    return candidate
        return None

    async def _end_of(self, batch: str) -> EndedBatch:
        pause, most = POLL
        while (ended := await self._patiently(lambda: self._api.look(batch))) is None:
            await anyio.sleep(pause)
            pause = min(most, pause * 4 / 3)
        return ended

    async def _patiently(self, ask: Callable[[], Awaitable[_Result]]) -> _Result:
        """Return the result of `ask`, retried for `Backend.outage` seconds. Raises RunStopped: that was too short."""
        gives_up_at = anyio.current_time() + self._backend.outage
        while True:
            try:
                return await ask()
            except Exception as error:
                fault = classify_error(error, self._backend)
                if fault.step is not FailureAction.RETRY:
                    raise
            if anyio.current_time() > gives_up_at:
                raise RunStopped(f"{fault.message}; it stays down, try again later.")
            LOG.warning("%s; the batch is asked for again", fault.message)
            await anyio.sleep(min(max(POLL[0], fault.after or 0.0), self._backend.longest_wait))

    def _fail(self, names: Iterable[str], error: Exception) -> None:
        for name in names:
            if name in self._waiting:
                self._waiting[name].end(error)

    def _say(self, event: str, number: int, what: str) -> None:
        text = f"batch {number + 1}, requests: {what}"
        report(event, self._backend, text, level=logging.INFO, batch=self._record[number].id)


def _id_of_current_request() -> str:
    account = current_account()
    session, role = account.session, account.role
    if not session.id:
        raise EpisodeAbandoned("a batch takes requests of episodes only, and this one belongs to none")
    known = f"{session.id}/{role}/{session.step(role)}/".encode() + account.digest
    return blake2b(known, digest_size=16).hexdigest()
