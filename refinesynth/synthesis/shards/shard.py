"""A shard: plays the episodes that it is given, with models and a journal of its own.

Nothing here knows of processes. To run shards elsewhere, such as actors on a cluster, write another `Commons`.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import anyio

from refinesynth.backends.backend import Mixed
from refinesynth.client.tracing import Tracing, traced
from refinesynth.journal import Journal, JournalReader
from refinesynth.run import EpisodeMemory, Finished
from refinesynth.synthesis.status_probe import troubles_of
from refinesynth.trajectory import Persona

if TYPE_CHECKING:
    from refinesynth.backends import Backend, Completion, Role
    from refinesynth.client.account import CostTracker
    from refinesynth.client.limiter.rate_limiter import RateLimiter
    from refinesynth.client.watch import Calls
    from refinesynth.episode import EpisodeSettings

_TELL_EVERY = 1.0
"""Seconds between two looks at the backends."""


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """What a shard is to do; can be pickled if its rules and its completion function can."""

    settings: "EpisodeSettings"
    backends: "Mapping[Role, Backend]"
    """As the run has them: each shard takes its part of their limits."""
    fallback: "Backend | None"
    call: "Completion | None"
    journal: Path
    """Where this shard writes what it has paid for."""
    recall: tuple[Path, ...]
    """Other journals of the run, with what was paid for before; those that are there when the shard begins."""
    shards: int
    """Among how many the rate limits are shared out."""
    limited: bool = False
    """Whether there is a budget."""
    log_level: int = logging.INFO
    """What is said less urgently than this is not handed on."""
    tracing: Tracing | None = None
    """What spans are wanted of it."""


class Commons(Protocol):
    """What the shards of one run share, and all of it: personas, outcomes and with them the counts, and the budget.

    Rate limits are shared out beforehand, see `share`, so that no request has to ask for its turn.
    """

    def tracker(self, index: int) -> "CostTracker":
        """Where an episode's completions are paid from."""
        ...

    async def next(self) -> tuple[int, Persona] | None:
        """The next episode to play, as soon as there is one; None when the run is over."""
        ...

    def how(self, retries: int, troubles: Iterable[str]) -> None:
        """Requests that were made again so far, and what is wrong with backends, in clauses; sent when it has
        changed.
        """
        ...

    def ended(self, index: int, result: Finished | Exception) -> None:
        """An episode has come to its end, or no episode can go on."""
        ...


def share(backend: "Backend", shards: int) -> "Backend":
    """A backend with one shard's part of its limits; together they are what was asked for."""
    if shards == 1:
        return backend
    if len(backend.each) > 1:
        return Mixed.of([share(one, shards) for one in backend.each])
    most = backend.max_in_flight
    return backend.model_copy(
        update={
            "requests_per_minute": _part(backend.requests_per_minute, shards),
            "tokens_per_minute": _part(backend.tokens_per_minute, shards),
            "max_in_flight": None if most is None else max(1, most // shards),
        }
    )


async def run_shard(assignment: Assignment, commons: Commons) -> None:
    """Play what `commons` gives, all of it at once, until there is no more; then what is still being played is broken
    off.

    Raises:
        ConfigurationError: A backend cannot be opened.
        StorageError: The journal cannot be written.
    """
    # Imported here: what opens models brings pydantic-ai with it.
    from refinesynth.client import close_models, open_models
    from refinesynth.client.lacks import Lacks
    from refinesynth.client.limiter.endpoints import limiters_in
    from refinesynth.client.watch import Calls, log_alarm, watch
    from refinesynth.episode import episode_id, play_episode

    settings = assignment.settings
    backends = {role: share(backend, assignment.shards) for role, backend in assignment.backends.items()}
    with ExitStack() as until:
        journal = until.enter_context(closing(Journal.open(assignment.journal)))
        others = [path for path in assignment.recall if path.exists()]
        elsewhere = [until.enter_context(closing(JournalReader.read(path))) for path in others]
        begun = max(known.started() for known in (journal, *elsewhere))
        fallback = None if assignment.fallback is None else share(assignment.fallback, assignment.shards)
        calls, lacks = Calls(), Lacks()
        lacks.open(journal, elsewhere)
        models = open_models(backends, call=assignment.call, fallback=fallback, calls=calls, lacks=lacks)
        until.enter_context(traced(assignment.tracing))

        async def play(index: int, persona: Persona) -> None:
            name = episode_id(persona, index=index, settings=settings)
            memory = EpisodeMemory(journal, name, begun=index < begun, elsewhere=elsewhere)
            try:
                outcome = await play_episode(
                    persona,
                    index=index,
                    settings=settings,
                    models=models,
                    memory=memory,
                    tracker=commons.tracker(index),
                )
            except Exception as error:  # noqa: BLE001 - for the owner of the run
                journal.over(index)
                commons.ended(index, error)
            else:
                journal.over(index)
                commons.ended(index, Finished.of(outcome))

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch, calls, log_alarm)
                tasks.start_soon(_tell_how, calls, limiters_in(models.values()), commons)
                while (given := await commons.next()) is not None:
                    tasks.start_soon(play, *given)
                tasks.cancel_scope.cancel()
        finally:
            await close_models(models.values())


async def _tell_how(calls: "Calls", limiters: "Sequence[RateLimiter]", commons: Commons) -> None:
    sent: tuple[int, list[str]] = (0, [])
    while True:
        await anyio.sleep(_TELL_EVERY)
        now = calls.retried, troubles_of(limiters)
        if now != sent:
            sent = now
            commons.how(*now)


def _part(limit: float | None, shards: int) -> float | None:
    return None if limit is None else limit / shards
