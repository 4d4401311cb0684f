"""A worker: plays the episodes that it is given, with models and a journal of its own.

Nothing here knows of processes or of Ray: that is all behind `Commons`.
"""

import logging
import os
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import anyio

from refinesynth.backends.backend import Mixed
from refinesynth.client.tracing import Tracing, traced
from refinesynth.errors import ConfigurationError
from refinesynth.journal import Journal, JournalReader, Outstanding, Paid
from refinesynth.run import EpisodeMemory, Finished, JournalSums, worker_journals
from refinesynth.run.away import id_of, identify
from refinesynth.synthesis.progress import How, room_of, troubles_of
from refinesynth.trajectory import Persona

if TYPE_CHECKING:
    from refinesynth.backends import Backend, Completion, Role
    from refinesynth.client.account import CostTracker
    from refinesynth.client.limiter.rate_limiter import RateLimiter
    from refinesynth.client.watch import Calls
    from refinesynth.episode import EpisodeSettings

_TELL_EVERY = 1.0
"""Seconds between two looks at the backends."""

_TELL_SUMS_EVERY = 5.0
"""Seconds after which the run knows what is in a journal that it cannot read."""


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """What a worker is to do; can be pickled if its rules and its completion function can."""

    settings: "EpisodeSettings"
    backends: "Mapping[Role, Backend]"
    """As the run has them: each worker takes its part of their limits."""
    fallback: "Backend | None"
    call: "Completion | None"
    number: int
    """Of this worker, from 1."""
    workers: int
    """Among how many the rate limits are shared out."""
    journals: str
    """The folder in which this worker has its journal: the run's, or one of its machine's."""
    away: bool = False
    """Whether that is outside the run's folder. `$NAME` in it is a variable of the worker's environment."""
    recall: frozenset[str] = frozenset()
    """Other journals of the run, with what was paid for before; those that are there when the worker begins."""
    limited: bool = False
    """Whether there is a budget."""
    log_level: int = logging.INFO
    """What is said less urgently than this is not handed on."""
    tracing: Tracing | None = None
    """What spans are wanted of it."""


@dataclass(frozen=True, slots=True)
class Given:
    """An episode to play."""

    index: int
    persona: Persona
    known: tuple[Paid, ...] = ()
    """Completions that it has paid for and of which this worker's journals know nothing."""
    first: int = 0
    """Index of the first episode that the run had not committed."""


class Commons(Protocol):
    """What the workers of one run share, and all of it: personas, outcomes and with them the counts, and the budget.

    Rate limits are shared out beforehand, see `share`, so that no request has to ask for its turn.
    """

    def ready(self, begun: Iterable[int], read: Iterable[str]) -> None:
        """Everything is open: of these episodes it is known what was paid for, from journals with these ids."""
        ...

    def tracker(self, index: int) -> "CostTracker":
        """Where an episode's completions are paid from."""
        ...

    async def next(self) -> Given | None:
        """The next episode to play, as soon as there is one; None when the run is over."""
        ...

    def how(self, how: How) -> None:
        """How its backends are; told when it has changed."""
        ...

    def sums(self, sums: JournalSums) -> None:
        """What is in this worker's journal; sent once in a while where that is away."""
        ...

    def ended(self, index: int, result: Finished | Exception) -> None:
        """An episode has come to its end, or no episode can go on."""
        ...


def journal_of(assignment: Assignment) -> Path:
    """Where a worker on this machine has its journal; its folder is there.

    Raises:
        ConfigurationError: There can be no such folder on this machine.
    """
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())
    folder = Path(os.path.expandvars(assignment.journals)).expanduser().absolute()
    if "$" in str(folder):
        raise ConfigurationError(f"journals is {assignment.journals!r}, and on {host} there is no such variable")
    try:
        if assignment.away:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"journals is {assignment.journals!r}, and on {host} that folder cannot be made: {error}"
        ) from error
    if not folder.is_dir():
        raise ConfigurationError(
            f"{host} does not see the run's folder {str(folder)!r}: name one for journals that each machine has on a disk "
            f"of its own, as --journals /var/tmp/refinesynth (journals= in Python)"
        )
    return folder / f"journal-{host}-{assignment.number}.sqlite"


@dataclass(slots=True)
class _InFlight:
    """What this worker's journal has of episodes that the run has not committed."""

    id: str
    journal: Journal
    begun: dict[int, Outstanding]

    def paid(self, paid: Paid) -> None:
        cost = 0.0 if paid.cost_usd is None else paid.cost_usd
        one = Outstanding(
            index=paid.index,
            episode=paid.episode,
            requests=1,
            attempt=paid.attempt,
            role=paid.role,
            step=paid.step,
            cost_usd=cost,
        )
        known = self.begun.get(paid.index)
        if known is not None:
            one = replace(one, requests=known.requests + 1, cost_usd=known.cost_usd + cost)
        self.begun[paid.index] = one

    def forget_before(self, first: int) -> None:
        for index in [index for index in self.begun if index < first]:
            del self.begun[index]

    def sums(self) -> JournalSums:
        spent, outstanding = tuple(self.journal.spent()), tuple(self.begun.values())
        return JournalSums(id=self.id, path=str(self.journal.path), spent=spent, outstanding=outstanding)


@dataclass(frozen=True)
class _Memory:
    """The memory of one episode, and what it keeps in sight of the others."""

    memory: EpisodeMemory
    in_flight: _InFlight

    @property
    def ended(self) -> bool:
        return self.memory.ended

    def recall(self, role: str, step: int, digest: bytes) -> Paid | None:
        return self.memory.recall(role, step, digest)

    async def keep(self, *paid: Paid) -> None:
        await self.memory.keep(*paid)
        for one in paid:
            self.in_flight.paid(one)


def share(backend: "Backend", workers: int) -> "Backend":
    """A backend with one worker's part of its limits; together they are what was asked for."""
    if workers == 1:
        return backend
    if len(backend.each) > 1:
        return Mixed.of([share(one, workers) for one in backend.each])
    most = backend.max_in_flight
    return backend.model_copy(
        update={
            "requests_per_minute": _part(backend.requests_per_minute, workers),
            "tokens_per_minute": _part(backend.tokens_per_minute, workers),
            "max_in_flight": None if most is None else max(1, most // workers),
        }
    )


async def run_worker(assignment: Assignment, commons: Commons, *, first: int = 0) -> None:
    """Play what `commons` gives, all of it at once, until there is no more; then what is still being played is broken
    off. Episodes before `first` have ended.

    Raises:
        ConfigurationError: A backend cannot be opened.
        StorageError: The journal cannot be written, or another one cannot be read.
    """
    # Imported here: what opens models brings pydantic-ai with it.
    from refinesynth.client import close_models, open_models
    from refinesynth.client.lacks import Lacks
    from refinesynth.client.limiter.endpoints import limiters_in
    from refinesynth.client.watch import Calls, log_alarm, watch
    from refinesynth.episode import episode_id, play_episode

    settings = assignment.settings
    backends = {role: share(backend, assignment.workers) for role, backend in assignment.backends.items()}
    with ExitStack() as until:
        path = journal_of(assignment)
        journal = until.enter_context(closing(Journal.open(path)))
        others = {path for path in map(Path, assignment.recall) if path.exists()} | set(worker_journals(path.parent))
        elsewhere = [until.enter_context(closing(JournalReader.read(path))) for path in sorted(others - {journal.path})]
        begun = max(known.started() for known in (journal, *elsewhere))
        identity = await identify(journal) if assignment.away else ""
        in_flight = _InFlight(identity, journal, {one.index: one for one in journal.outstanding(start=first)})
        fallback = None if assignment.fallback is None else share(assignment.fallback, assignment.workers)
        calls, lacks = Calls(), Lacks()
        lacks.open(journal, elsewhere)
        models = open_models(backends, call=assignment.call, fallback=fallback, calls=calls, lacks=lacks)
        until.enter_context(traced(assignment.tracing))

        async def play(given: Given) -> None:
            index = given.index
            name = episode_id(given.persona, index=index, settings=settings)
            memory = EpisodeMemory(journal, name, begun=index < begun, elsewhere=elsewhere, known=given.known)
            result: Finished | Exception
            try:
                outcome = await play_episode(
                    given.persona,
                    index=index,
                    settings=settings,
                    models=models,
                    memory=_Memory(memory, in_flight) if assignment.away else memory,
                    tracker=commons.tracker(index),
                )
                result = Finished.of(outcome)
            except Exception as error:  # noqa: BLE001 - for the owner of the run
                result = error
            journal.over(index)
            commons.ended(index, result)

        known = {one.index for other in elsewhere for one in other.outstanding(start=first)}
        commons.ready(known | in_flight.begun.keys(), map(id_of, (journal, *elsewhere)))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch, calls, log_alarm)
                tasks.start_soon(_tell_how, calls, limiters_in(models.values()), commons)
                if assignment.away:
                    tasks.start_soon(_tell_sums, in_flight, commons)
                while (given := await commons.next()) is not None:
                    in_flight.forget_before(given.first)
                    tasks.start_soon(play, given)
                tasks.cancel_scope.cancel()
        finally:
            if assignment.away:
                commons.sums(in_flight.sums())
            await close_models(models.values())


async def _tell_sums(in_flight: _InFlight, commons: Commons) -> None:
    while True:
        commons.sums(in_flight.sums())
        await anyio.sleep(_TELL_SUMS_EVERY)


async def _tell_how(calls: "Calls", limiters: "Sequence[RateLimiter]", commons: Commons) -> None:
    sent = How()
    while True:
        await anyio.sleep(_TELL_EVERY)
        now = How(calls.retried, tuple(troubles_of(limiters)), room_of(limiters))
        if now != sent:
            sent = now
            commons.how(now)


def _part(limit: float | None, workers: int) -> float | None:
    return None if limit is None else limit / workers
