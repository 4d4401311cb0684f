"""Collection of a run's requests into batches, submission of the batches, and delivery of the answers.

Episode, role, step and digest identify a request, as in the journal. A batch is committed to the journal before it is
sent; after a crash, the same request waits for the batch that contains it.
"""

import logging
import secrets
from collections import deque
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

from refinesynth.async_contexts import background_tasks, stopped_clock
from refinesynth.backends.backend import LOG, Backend, Role, report
from refinesynth.backends.providers import split_model
from refinesynth.client.batch.provider_batches import (
    AnthropicBatches,
    Batch,
    Body,
    EndedBatch,
    OpenAIBatches,
    Outcome,
)
from refinesynth.client.classify_error import ErrorCategory, FailureAction, classify_error
from refinesynth.client.http.transport import direct_obstacle
from refinesynth.client.session import current_request
from refinesynth.errors import ConfigurationError, EpisodeAbandoned, RunStopped, StorageError
from refinesynth.journal import BATCHES, Journal
from refinesynth.lazy_imports import check_installed

IDLE_S = 2.0
"""Seconds without another request after which the collected ones are sent."""
MAX_COLLECT_S = 30.0
"""Longest wait of the first request for others, in seconds."""
POLL_S = (1.0, 60.0)
"""First and longest interval between two polls of a batch, in seconds; it grows by a third each time."""
_MAX_REQUESTS = 10_000
"""Maximum requests of one batch: OpenAI accepts 50,000, Anthropic 100,000."""
_MAX_BYTES = 150_000_000
"""Maximum bytes of the bodies in one batch: OpenAI accepts a file of 200 MB, Anthropic a request of 256 MB."""
BATCH_TIMEOUT_S = 26 * 3600.0
"""Timeout of a request in seconds: providers cancel a batch after 24 hours."""

BATCHED = frozenset({Role.SCRIPT_WRITER, Role.NARRATOR})
"""Roles with few requests per episode; each turn of a conversation would wait for hours."""

_Result = TypeVar("_Result")


def refuse_unbatched(backends: Mapping[Role, Backend]) -> None:
    """Raise ConfigurationError for backends that cannot use batches."""
    batched = {role: backend for role, backend in backends.items() if role in BATCHED}
    if not batched:
        raise ConfigurationError(
            "batch is for the script_writer and the narrator, and this run asks neither; leave it out"
        )
    for role, backend in ((role, member) for role, mixture in batched.items() for member in mixture.members):
        provider = split_model(backend.model)[0]
        if provider not in {"openai", "anthropic"}:
            raise ConfigurationError(
                f"batch asks OpenAI and Anthropic alone so far, and the {role} is "
                f"{backend.label}: leave batch out, or give that role a model of theirs"
            )
        if provider == "anthropic":
            check_installed("anthropic", "anthropic")
        elif (reason := direct_obstacle(backend)) is not None:
            raise ConfigurationError(f"the {role}, {backend.label}, cannot be asked in batches: {reason}")


class Batches:
    """Batches of a run, committed to its journal before they are sent, to send no request twice; and their tasks."""

    def __init__(self) -> None:
        self._tasks: anyio.abc.TaskGroup | None = None
        self._journal: Journal | None = None
        self._batches: dict[int, Batch] = {}
        self._batch_numbers: dict[str, int] = {}

    def open(self, journal: Journal) -> None:
        """Read the batches of earlier processes. Raises StorageError: the journal's notes on batches are damaged."""
        self._journal = journal
        try:
            for number in range(int(journal.note(BATCHES) or 0)):
                self._update(number, Batch.model_validate_json(journal.note(f"batch {number}") or b""))
        except (ValidationError, ValueError) as error:
            raise StorageError(f"the journal at {str(journal.path)!r} is damaged: its notes on batches") from error

    @property
    def ids(self) -> set[str | None]:
        """Provider's ids of all batches; None for batches whose id is unknown."""
        return {batch.id for batch in self._batches.values()}

    def __getitem__(self, number: int) -> Batch:
        return self._batches[number]

    def batch_of(self, request: str) -> int | None:
        """Return the number of the batch with this request; None without one whose answers are still unread."""
        return self._batch_numbers.get(request)

    async def begin(self, key: str, requests: Sequence[str]) -> int:
        """Record a batch before it is sent; return its number."""
        number = len(self._batches)
        await self.change(number, Batch(key=key, made=datetime.now(UTC), requests=tuple(requests)))
        return number

    async def change(self, number: int, batch: Batch) -> None:
        self._update(number, batch)
        if self._journal is not None:
            await self._journal.keep_note(f"batch {number}", batch.model_dump_json().encode())
            await self._journal.keep_note(BATCHES, str(len(self._batches)).encode())

    def mark_read(self, number: int) -> None:
        """Mark a batch's answers as read in this process: a repeated request goes into a new batch."""
        for request in self._batches[number].requests:
            if self._batch_numbers.get(request) == number:
                del self._batch_numbers[request]

    def _update(self, number: int, batch: Batch) -> None:
        if number in self._batches:
            self.mark_read(number)
        self._batches[number] = batch
        # A repeated request belongs to its latest batch.
        self._batch_numbers |= {name: max(number, self._batch_numbers.get(name, number)) for name in batch.requests}

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
class _WaitingRequest:
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
        self._api = (AnthropicBatches if split_model(backend.model)[0] == "anthropic" else OpenAIBatches)(backend)
        self._waiting: dict[str, _WaitingRequest] = {}
        """Waiting requests by id, sent or not."""
        self._queue = deque[str]()
        self._last_arrival = 0.0
        self._is_collecting = False
        self._followed_batches: set[int] = set()
        self._ready: dict[str, Outcome] = {}
        """Answers to requests that this process has not made yet."""

    async def aclose(self) -> None:
        await self._api.aclose()

    async def __call__(self, **request: Any) -> object:
        """Return one completion, possibly hours later."""
        check_allow_model_requests()
        return await self._api.ask(request, partial(self._outcome, _id_of_current_request()))

    async def _outcome(self, name: str, body: Body) -> Outcome:
        if name in self._ready:
            return self._ready.pop(name)
        waiting = self._waiting[name] = _WaitingRequest(body)
        number = self._batches.batch_of(name)
        if number is None:
            self._enqueue(name)
        elif number not in self._followed_batches:
            self._followed_batches.add(number)
            self._batches.start(self._follow, number)
        try:
            with stopped_clock():
                await waiting.done.wait()
        finally:
            del self._waiting[name]
        return waiting.outcome

    def _enqueue(self, name: str) -> None:
        self._queue.append(name)
        self._last_arrival = anyio.current_time()
        if not self._is_collecting:
            self._is_collecting = True
            self._batches.start(self._collect)

    async def _collect(self) -> None:
        deadline = anyio.current_time() + MAX_COLLECT_S
        while len(self._queue) < _MAX_REQUESTS:
            remaining = min(self._last_arrival + IDLE_S, deadline) - anyio.current_time()
            if remaining <= 0:
                break
            await anyio.sleep(remaining)
        bodies = self._dequeue()
        self._is_collecting = bool(self._queue)
        if self._queue:
            self._batches.start(self._collect)
        if bodies:
            await self._send(bodies)

    def _dequeue(self) -> dict[str, Body]:
        bodies, size = dict[str, Body](), 0
        while self._queue and len(bodies) < _MAX_REQUESTS:
            name = self._queue[0]
            if name in self._waiting:  # else the request was cancelled meanwhile
                body = self._waiting[name].body
                size += len(orjson.dumps(body))
                if bodies and size > _MAX_BYTES:
                    break
                bodies[name] = body
            self._queue.popleft()
        return bodies

    async def _send(self, bodies: dict[str, Body]) -> None:
        key, number = secrets.token_hex(16), -1
        try:
            number = await self._batches.begin(key, list(bodies))
            self._followed_batches.add(number)
            batch = await self._api.send(bodies, key=key)
            await self._batches.change(number, self._batches[number].model_copy(update={"id": batch}))
        except Exception as error:  # noqa: BLE001 - the waiting requests raise it
            # The batch may have been sent despite the error: a retry looks for it first.
            self._followed_batches.discard(number)
            self._fail(bodies, error)
            return
        self._report("batch_sent", number, f"{len(bodies):,} sent to {self._backend.label}")
        await self._follow(number)

    async def _follow(self, number: int) -> None:
        """Deliver the answers of a batch when the batch ends; queue the requests of an unsent batch again."""
        batch = self._batches[number]
        try:
            batch_id = batch.id or await self._find(batch)
            if batch_id is None:
                await self._batches.change(number, batch.model_copy(update={"requests": ()}))
                # Requests made during that commit are in the queue already.
                for name in (self._waiting.keys() & set(batch.requests)) - set(self._queue):
                    self._enqueue(name)
                return
            if batch.id is None:
                await self._batches.change(number, batch.model_copy(update={"id": batch_id}))
            ended = await self._wait_for_end(batch_id)
            outcomes = await self._with_retries(lambda: self._api.outcomes(ended, batch.key))
        except Exception as error:  # noqa: BLE001 - the waiting requests raise it
            self._fail(batch.requests, error)
            return
        finally:
            self._followed_batches.discard(number)
        self._batches.mark_read(number)
        answered = sum(isinstance(outcomes.get(name), dict) for name in batch.requests)
        self._report("batch_ended", number, f"{answered:,} of {len(batch.requests):,} answered")
        for name in batch.requests:
            outcome = outcomes.get(name) or ended.missing()
            if name in self._waiting:
                self._waiting[name].end(outcome)
            elif isinstance(outcome, dict):
                self._ready[name] = outcome

    async def _find(self, batch: Batch) -> str | None:
        for candidate in await self._with_retries(lambda: self._api.candidates(batch)):
            if self._api.is_keyed:
                return candidate
            if candidate not in self._batches.ids:
                ended = await self._wait_for_end(candidate)
                if await self._with_retries(partial(self._api.outcomes, ended, batch.key)):
                    return candidate
        return None

    async def _wait_for_end(self, batch: str) -> EndedBatch:
        pause, max_pause = POLL_S
        while (ended := await self._with_retries(lambda: self._api.poll(batch))) is None:
            await anyio.sleep(pause)
            pause = min(max_pause, pause * 4 / 3)
        return ended

    async def _with_retries(self, call: Callable[[], Awaitable[_Result]]) -> _Result:
        """Return the result of `call`, retried for `Backend.outage` seconds. Raises RunStopped: that was too short."""
        deadline = anyio.current_time() + self._backend.outage
        while True:
            try:
                return await call()
            except Exception as error:
                fault = classify_error(error, self._backend)
                # A batch that was just sent may be unknown at first.
                is_unknown = fault.category is ErrorCategory.NOT_FOUND
                if fault.action is not FailureAction.RETRY and not is_unknown:
                    raise
            if anyio.current_time() > deadline:
                gone = f"{self._backend.label} does not know a batch of this run; give the key that it was sent with."
                raise RunStopped(gone if is_unknown else f"{fault.message}; it stays down, try again later.")
            LOG.warning("%s; the batch is asked for again", fault.message)
            await anyio.sleep(min(max(POLL_S[0], fault.retry_after or 0.0), self._backend.longest_wait))

    def _fail(self, names: Iterable[str], error: Exception) -> None:
        for name in names:
            if name in self._waiting:
                self._waiting[name].end(error)

    def _report(self, event: str, number: int, description: str) -> None:
        text = f"batch {number + 1}, requests: {description}"
        report(event, self._backend, text, level=logging.INFO, batch=self._batches[number].id)


def _id_of_current_request() -> str:
    context = current_request()
    session, role = context.session, context.role
    if not session.id:
        raise EpisodeAbandoned("a batch takes requests of episodes only, and this one belongs to none")
    identity = f"{session.id}/{role}/{session.step(role)}/".encode() + context.digest
    return blake2b(identity, digest_size=16).hexdigest()
