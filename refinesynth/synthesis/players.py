"""Where the episodes of a run are played: in this process, or in several."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from refinesynth.client.tracing import Tracing, traced
from refinesynth.errors import ConfigurationError
from refinesynth.run import Finished, RunWriter, shard_journal, shard_journals
from refinesynth.synthesis.pool import PlayEpisode
from refinesynth.trajectory import Persona

if TYPE_CHECKING:
    from refinesynth.backends import Backend, Completion, Role
    from refinesynth.client.batch.collecting import Batches
    from refinesynth.client.budget.tracker import BudgetTracker
    from refinesynth.client.lacks import Lacks
    from refinesynth.client.watch import Calls
    from refinesynth.episode import EpisodeSettings


class Ready(NamedTuple):
    """What is open while a run plays."""

    play: PlayEpisode
    """Plays one episode."""
    elsewhere: Callable[[], tuple[int, tuple[str, ...]]] = lambda: (0, ())
    """Retries and troubles in other processes of the run."""


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
    processes: int
    log_level: int
    tracing: Tracing | None

    @asynccontextmanager
    async def open(self, folder: RunWriter, tracker: "BudgetTracker") -> AsyncGenerator["Ready", None]:
        """What plays one episode, as long as the block runs.

        Raises:
            ConfigurationError: Spans are to be exported, and what that needs is not installed.
        """
        if self.processes == 1:
            from refinesynth.client import close_models

            folder.open_lacks(self.lacks)
            folder.open_batches(self.batches and self.batches.record)
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
        # Imported here: it brings pydantic-ai with it.
        from refinesynth.synthesis.shards import open_crew
        from refinesynth.synthesis.shards.shard import Assignment

        _refuse_more_than_may_be_asked(self.backends.values(), self.processes)
        journals = [shard_journal(folder.path, number) for number in range(1, self.processes + 1)]
        known = {folder.journal_file, *shard_journals(folder.path)}
        assignments = [
            Assignment(
                settings=self.settings,
                backends=self.backends,
                fallback=self.fallback,
                call=self.call,
                journal=journal,
                recall=tuple(sorted(known - {journal})),
                shards=self.processes,
                limited=bool(tracker.limits),
                log_level=self.log_level,
                tracing=self.tracing,
            )
            for journal in journals
        ]
        async with open_crew(assignments, tracker=tracker) as crew:

            async def play(index: int, persona: Persona) -> Finished:
                return _counted(await crew.play(index, persona), tracker)

            yield Ready(play, crew.how)


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


def _refuse_more_than_may_be_asked(backends: "Iterable[Backend]", processes: int) -> None:
    for backend in chain.from_iterable(mixture.each for mixture in backends):
        if backend.max_in_flight is not None and backend.max_in_flight < processes:
            raise ConfigurationError(
                f"{backend.label} may be asked {backend.max_in_flight} requests at once, and {processes} processes would each ask "
                f"at least one: lower processes, or raise max_in_flight"
            )


def _counted(finished: Finished, tracker: "BudgetTracker") -> Finished:
    tracker.ended(finished.line.spent)
    return finished


@asynccontextmanager
async def watched(calls: "Calls") -> AsyncGenerator[None, None]:
    """While the block runs, say so when a request takes too long, or nothing is answered."""
    from refinesynth.client.beside import beside
    from refinesynth.client.watch import log_alarm, watch

    async with beside() as tasks:
        tasks.start_soon(watch, calls, log_alarm)
        yield
