"""Where the episodes of a run are played: in this process, or by workers on Ray."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from refinesynth.client.tracing import Tracing, traced
from refinesynth.errors import ConfigurationError
from refinesynth.run import Finished, RunWriter, worker_journals
from refinesynth.synthesis.pool import PlayEpisode
from refinesynth.synthesis.status_probe import How
from refinesynth.trajectory import Persona

if TYPE_CHECKING:
    from refinesynth.backends import Backend, Completion, Role
    from refinesynth.client.batch.collecting import Batches
    from refinesynth.client.budget.tracker import BudgetTracker
    from refinesynth.client.lacks import Lacks
    from refinesynth.client.watch import Calls
    from refinesynth.episode import EpisodeSettings
    from refinesynth.journal import Paid
    from refinesynth.synthesis.workers import Crew
    from refinesynth.synthesis.workers.worker import Assignment


_NOTED_EVERY = 1.0
"""Seconds."""


class Ready(NamedTuple):
    """What is open while a run plays."""

    play: PlayEpisode
    """Plays one episode."""
    elsewhere: Callable[[], How] = How
    """How backends are for the workers."""


@dataclass(frozen=True, kw_only=True)
class Players:
    """What episodes are played with."""

    settings: "EpisodeSettings"
    backends: "Mapping[Role, Backend]"
    fallback: "Backend | None"
    call: "Completion | None"
    models: "Callable[[], Mapping[Role, Any]]"
    """Opens them, once."""
    calls: "Calls"
    """The requests of `models` that are in flight."""
    lacks: "Lacks"
    """What `models` find out about their servers."""
    batches: "Batches | None"
    """Those that `models` ask in; None if in none."""
    workers: int
    cluster: str | None
    """Where the workers are, see `connected`; None for this machine."""
    journals: str | None
    """The folder on each worker's machine for its journal; None for the run's."""
    log_level: int
    tracing: Tracing | None

    @asynccontextmanager
    async def open(self, folder: RunWriter, tracker: "BudgetTracker") -> AsyncGenerator["Ready", None]:
        """What plays one episode, as long as the block runs.

        Raises:
            ConfigurationError: Spans are to be exported, and what that needs is not installed.
        """
        if self.workers == 1 and self.cluster is None:
            from refinesynth.client import close_models

            folder.open_lacks(self.lacks)
            folder.open_batches(self.batches and self.batches.record)
            folder.tell_lost()
            opened: dict[Role, Any] = {}

            def models() -> "Mapping[Role, Any]":
                opened.update(self.models())
                return opened

            try:
                with traced(self.tracing):
                    async with watched(self.calls), self.batches.running() if self.batches else nullcontext():
                        yield Ready(_Here(self, models, folder, tracker))
            finally:
                with anyio.CancelScope(shield=True):
                    await close_models(opened.values())
            return
        async with self._crew(folder, tracker) as crew:

            async def play(index: int, persona: Persona) -> Finished:
                known = self._known(folder, index, persona) if self.journals else ()
                return _counted(await crew.play(index, persona, known=known), tracker)

            yield Ready(play, crew.how)

    @asynccontextmanager
    async def _crew(self, folder: RunWriter, tracker: "BudgetTracker") -> AsyncGenerator["Crew", None]:
        """The workers, and the note of their journals."""
        # Imported here: it brings pydantic-ai with it.
        from refinesynth.client.beside import beside
        from refinesynth.synthesis.workers import Driver, open_crew

        folder.open_batches(None)
        _refuse_more_than_may_be_asked(self.backends.values(), self.workers)
        away = folder.workers
        driver = Driver(tracker=tracker, first=lambda: folder.committed.episodes, learn=away.learn)
        try:
            async with open_crew(self._assignments(folder, tracker), driver, cluster=self.cluster) as crew:
                folder.tell_lost(others=crew.read)
                async with beside() as tasks:
                    tasks.start_soon(_keep_noted, folder)
                    yield crew
        finally:
            if away.journals:
                with anyio.CancelScope(shield=True):
                    await folder.keep_workers()

    def _assignments(self, folder: RunWriter, tracker: "BudgetTracker") -> "list[Assignment]":
        from refinesynth.synthesis.workers.worker import Assignment

        # By its whole path: a worker has a working folder of its own.
        here = folder.path.resolve()
        known = [here / folder.journal_file.name, *worker_journals(here)]
        return [
            Assignment(
                settings=self.settings,
                backends=self.backends,
                fallback=self.fallback,
                call=self.call,
                number=number,
                workers=self.workers,
                journals=str(here) if self.journals is None else f"{self.journals}/{folder.workers.run}",
                away=self.journals is not None,
                recall=frozenset([*map(str, known), *(one.path for one in folder.workers.journals)]),
                limited=bool(tracker.limits),
                log_level=self.log_level,
                tracing=self.tracing,
            )
            for number in range(1, self.workers + 1)
        ]

    def _known(self, folder: RunWriter, index: int, persona: Persona) -> "tuple[Paid, ...]":
        """What the journals here know of an episode: a worker may be on another machine."""
        from refinesynth.episode import episode_id

        return folder.memory(episode_id(persona, index=index, settings=self.settings), index).everything()


@dataclass(frozen=True)
class _Here:
    """Plays in this process."""

    players: Players
    models: "Callable[[], Mapping[Role, Any]]"
    folder: RunWriter
    tracker: "BudgetTracker"

    async def __call__(self, index: int, persona: Persona) -> Finished:
        # Imported here: it brings pydantic-ai with it.
        from refinesynth.episode import episode_id, play_episode

        settings = self.players.settings
        memory = self.folder.memory(episode_id(persona, index=index, settings=settings), index)
        with self.tracker.episode(index) as paying:
            outcome = await play_episode(
                persona, index=index, settings=settings, models=self.models(), memory=memory, tracker=paying
            )
        return _counted(Finished.of(outcome), self.tracker)


def _refuse_more_than_may_be_asked(backends: "Iterable[Backend]", workers: int) -> None:
    for backend in chain.from_iterable(mixture.each for mixture in backends):
        if backend.max_in_flight is not None and backend.max_in_flight < workers:
            raise ConfigurationError(
                f"{backend.label} may be asked {backend.max_in_flight} requests at once, and {workers} workers would each ask "
                f"at least one: lower workers, or raise max_in_flight"
            )


def _counted(finished: Finished, tracker: "BudgetTracker") -> Finished:
    tracker.ended(finished.line.spent)
    return finished


async def _keep_noted(folder: RunWriter) -> None:
    """Keep what is known of workers' journals that are not in the folder."""
    known = folder.workers.journals
    while True:
        await anyio.sleep(_NOTED_EVERY)
        if known is not folder.workers.journals:
            known = folder.workers.journals
            await folder.keep_workers()


@asynccontextmanager
async def watched(calls: "Calls") -> AsyncGenerator[None, None]:
    """While the block runs, say so when a request takes too long, or nothing is answered."""
    from refinesynth.client.beside import beside
    from refinesynth.client.watch import watch

    async with beside() as tasks:
        tasks.start_soon(watch, calls)
        yield
