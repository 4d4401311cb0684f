"""A run made ready from what is asked: models, personas, folder and pool, all open."""

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from refinesynth.client.budget.budget import Budget
from refinesynth.errors import ConfigurationError
from refinesynth.personas import BadRow, Personas
from refinesynth.run import RunFolder, RunWriter, next_run_folder
from refinesynth.run.logs import level_of
from refinesynth.run.scripts import open_source
from refinesynth.run.second_tries import superseded
from refinesynth.synthesis.patience import Patience, Yield
from refinesynth.synthesis.paying import prices_of, tracker_of, what_it_takes
from refinesynth.synthesis.players import Players
from refinesynth.synthesis.pool import Pool
from refinesynth.synthesis.recording import record
from refinesynth.synthesis.request import Request
from refinesynth.synthesis.result import SynthesisResult
from refinesynth.synthesis.room import FEWEST, Room, most_of
from refinesynth.synthesis.status_probe import StatusProbe
from refinesynth.trajectory import Trajectory

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from refinesynth.backends import Backend, Role
    from refinesynth.client.budget.tracker import BudgetTracker
    from refinesynth.diversity import Overlap
    from refinesynth.episode import EpisodeSettings
    from refinesynth.synthesis.curating import Curator

_TOLD = 5
"""Overlaps with evaluation sets that are written of one trajectory."""


@dataclass(frozen=True)
class Begun:
    """A run with everything open."""

    pool: Pool
    folder: RunWriter
    personas: Personas
    tracker: "BudgetTracker"
    patience: Patience

    def result(self) -> SynthesisResult:
        """What is on disk, with the reason why it is no more."""
        folder = RunFolder(self.folder.path, self.folder.config)
        early = None if self.pool.reached else self.pool.stopped_early
        ended = self._why() if early is None else self.patience.explain(self.pool.seen)
        return SynthesisResult(folder, ended=ended, stopped_early=early, bad_personas=self.personas.bad)

    def _why(self) -> str | None:
        if self.pool.out_of_money:
            accepted = self.folder.committed.accepted
            return what_it_takes(self.tracker.budget, self.tracker.spent, accepted=accepted, n=self.folder.config.n)
        count, again = self.pool.ran_out_after, len(superseded(self.folder.rounds))
        if count is None:
            return None
        tried = f", {again:,} of them tried again" if again else ""
        return f"{self.personas.description} ran out after {count - again:,} persona{'s' * (count - again != 1)}{tried}"


@asynccontextmanager
async def begin(
    request: Request,
    *,
    on_accepted: Callable[[Trajectory], None] | None = None,
    has_room: Callable[[], bool] | None = None,
) -> AsyncGenerator[Begun, None]:
    """Open everything and make the pool; the folder is made last, when all else is known to be usable.

    For a run that has its `n` already, neither personas nor models are looked at. One in an object store is brought to
    this machine first, and is all there at the end.

    Raises:
        InputError: Something that was asked cannot be done.
        StorageError: The folder or the store cannot be written.
    """
    # Imported here: most runs have no store.
    from refinesynth.stores import opened_output

    async with opened_output(request.settings.output, fresh=request.fresh) as output:
        here = replace(request, settings=request.settings.model_copy(update={"output": output.path}))

        def may_begin() -> bool:
            return output.has_room() and (has_room is None or has_room())

        async with _begun_in_folder(here, on_accepted=on_accepted, has_room=may_begin) as run:
            if not run.pool.reached:
                await output.begin(run.pool.wake)
            yield run


@asynccontextmanager
async def _begun_in_folder(
    request: Request, *, on_accepted: Callable[[Trajectory], None] | None, has_room: Callable[[], bool]
) -> AsyncGenerator[Begun, None]:
    if request.retry_failed:
        request.look_for_failed()
    asked, settings = request.settings, request.episodes()
    backends, fallback = request.backends(settings)
    every = [*backends.values(), *filter(None, [fallback])]
    if request.call is None and not request.has_enough():
        _refuse_missing_keys(every)
    players = _players(request, settings, backends, fallback)
    budget = Budget.of(asked.budget)
    prices = prices_of(every, budget, injected=request.call is not None)
    async with open_source(asked.personas, asked.scripts, column=asked.column) as personas:
        if asked.shard is not None:
            personas.only_every(asked.shard.of, first=asked.shard.index)
        overlaps, curator, at_most = _Overlaps(), None, None
        if not request.has_enough():
            at_most = await personas.at_most() if asked.patience else None
            await personas.look()
            request.refuse_without_player(players.models())
            curator = await _curator(request, overlaps)
        folder = RunWriter.claim(
            asked.output or next_run_folder(),
            record(asked, settings, backends, fallback=fallback, personas=personas.description),
            fresh=request.fresh,
            corrected=request.retry_failed,
            log_level=level_of(asked.log_level),
        )
        try:
            spent, waiting = folder.spent(), folder.waiting_lines()
            tracker = tracker_of(budget, prices, spent=spent, totals=folder.committed, waiting=waiting)
            if curator is not None:
                # At any level: the report counts them.
                overlaps.log = folder.milestones
                read = partial(curator.learn, RunFolder(folder.path, folder.config).trajectories())
                await anyio.to_thread.run_sync(read)
            patience = await _patience(request, folder, at_most)
            personas.repeat(folder.rounds)
            async with players.open(folder, tracker) as ready:
                most = most_of(asked.concurrency, workers=asked.workers)
                # A batch has room for all.
                fewest = FEWEST if asked.concurrency == "auto" and players.batches is None else most
                probe = StatusProbe(tracker, players.calls, players.models, ready.elsewhere)
                pool = Pool(
                    play=ready.play,
                    personas=personas,
                    folder=folder,
                    n=asked.n,
                    concurrency=Room(most, fewest, probe.limiters, lambda: probe.elsewhere().room),
                    on_progress=request.on_progress,
                    on_accepted=on_accepted,
                    has_room=has_room,
                    funds=tracker,
                    surroundings=probe.look,
                    curate=None if curator is None else curator.curate,
                    per_episode=patience.per_episode,
                    patience=patience,
                )
                if not pool.reached:
                    _log_start(folder, personas)
                yield Begun(pool, folder, personas, tracker, patience)
        finally:
            folder.close()


def _players(
    request: Request,
    settings: "EpisodeSettings",
    backends: "Mapping[Role, Backend]",
    fallback: "Backend | None",
) -> Players:
    """What plays, with nothing opened yet."""
    # Imported here: what opens models brings pydantic-ai with it.
    from refinesynth.client import open_models
    from refinesynth.client.http.choosing import routed
    from refinesynth.client.lacks import Lacks
    from refinesynth.client.watch import Calls

    asked = request.settings
    most = most_of(asked.concurrency, workers=asked.workers)
    paths = {role: routed(backend, in_flight=most) for role, backend in backends.items()}
    second = None if fallback is None else routed(fallback, in_flight=most)
    calls, lacks, batches = Calls(), Lacks(), request.batches(backends)
    known: dict[str, Any] = {"fallback": second, "calls": calls, "lacks": lacks, "batches": batches}
    return Players(
        settings=settings,
        backends=paths,
        call=request.call,
        models=cache(partial(open_models, paths, call=request.call, **known)),
        workers=asked.workers,
        cluster=asked.cluster,
        journals=asked.journals,
        log_level=level_of(asked.log_level),
        tracing=request.tracing,
        **known,
    )


async def _patience(request: Request, folder: RunWriter, personas: int | None) -> Patience:
    """When the run has seen enough; what is to be tried again is queued."""
    asked = request.settings
    patience = Patience(
        n=asked.n,
        episodes=asked.patience,
        per_episode=asked.branches * asked.episodes_per_script,
        personas=personas,
        budget=Budget.of(asked.budget) or Budget(),
    )
    if request.retry_failed and folder.committed.accepted < asked.n:
        seen = Yield.of(folder.committed, tried_again=folder.tried_again())
        await folder.try_again(stopped=patience.runs_out(seen) is not None)
    return patience.with_personas(len(superseded(folder.rounds)))


@dataclass
class _Overlaps:
    """Where overlaps of evaluation sets with a trajectory that is kept are reported."""

    log: "FilteringBoundLogger | None" = None

    def report(self, trajectory: str, overlaps: "Sequence[Overlap]") -> None:
        """Write it to events.jsonl."""
        if self.log is not None:
            found = [{"where": one.where, "words": one.words, "source": one.source} for one in overlaps[:_TOLD]]
            self.log.warning("contaminated", trajectory=trajectory, overlaps=len(overlaps), first=found)


async def _curator(request: Request, overlaps: _Overlaps) -> "Curator | None":
    """What looks at what the rules accept; reads the evaluation sets, which may be large, off the event loop."""
    curation = request.settings.curation
    if curation is None or curation.idle:
        return None
    from refinesynth.synthesis.curating import Curator

    return await anyio.to_thread.run_sync(partial(Curator.of, curation, report=overlaps.report))


def _refuse_missing_keys(backends: "Iterable[Backend]") -> None:
    """A key that was asked for by the name of its variable is there, before anything is begun."""
    for backend in chain.from_iterable(mixture.each for mixture in backends):
        name = backend.api_key_env
        if name is not None and not os.environ.get(name):
            raise ConfigurationError(
                f"api_key_env of {backend.label} is {name!r}, and no environment variable of this name holds a key: set it, or "
                f"leave api_key_env out where the server needs none"
            )


def _log_start(folder: RunWriter, personas: Personas) -> None:
    folder.milestones.info(
        "run_started",
        **folder.config.model_dump(mode="json", include={"n", "concurrency", "play", "seed", "personas", "versions"}),
        finished=folder.committed.episodes,
        accepted=folder.committed.accepted,
    )

    def skipped(row: BadRow) -> None:
        folder.log.warning("persona_skipped", line=row.line, reason=row.reason)

    for row in personas.problems:
        skipped(row)
    personas.on_problem = skipped
