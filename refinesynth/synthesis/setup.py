"""Set-up of a run: models, personas, budget, folder and pool, for episodes in this process or on Ray."""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from socket import gethostname
from typing import TYPE_CHECKING, NamedTuple

import anyio
import anyio.to_thread

from refinesynth.client.budget.budget import Budget
from refinesynth.errors import ConfigurationError
from refinesynth.journal import SpentRow
from refinesynth.outcome import Cost
from refinesynth.personas import BadRow, Personas
from refinesynth.run import CompletedEpisode, EpisodeLine, RunFolder, RunStats, RunWriter, next_run_folder
from refinesynth.run.event_log import level_of
from refinesynth.run.run_folder import open_source
from refinesynth.run.stats import spent_of
from refinesynth.settings import Curation, RunSettings
from refinesynth.synthesis.concurrency import MIN_IN_FLIGHT, PREFETCH, EpisodeLimit, max_in_flight_of, min_in_flight_for
from refinesynth.synthesis.pool import PlayEpisode, Pool, explain_early_stop
from refinesynth.synthesis.progress import BackendsState, StatusProbe
from refinesynth.synthesis.request import Request
from refinesynth.synthesis.result import SynthesisResult
from refinesynth.trajectory import Persona

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from refinesynth.backends import Backend, Role
    from refinesynth.client.budget.tracker import BudgetTracker, Price
    from refinesynth.synthesis.curator import Curator
    from refinesynth.synthesis.workers.block_task import BlockSettings


@dataclass(frozen=True)
class StartedRun:
    pool: Pool
    tracker: "BudgetTracker"

    @property
    def folder(self) -> RunWriter:
        return self.pool.folder

    def result(self) -> SynthesisResult:
        """Return the result on disk, with the reason for an end before `n`."""
        folder, personas, stop_reason, ended = self.folder, self.pool.personas, self.pool.stopped_early, None
        if stop_reason is not None:
            ended = explain_early_stop(folder.config.early_stop, folder.committed)
        elif self.pool.budget_spent:
            ended = f"the budget of {self.tracker.budget} is spent"
        elif (count := self.pool.personas_read) is not None:
            ended = f"{personas.description} ran out after {count:,} persona{'s' * (count != 1)}"
        reader = RunFolder(folder.path, folder.config)
        return SynthesisResult(reader, ended=ended, stopped_early=stop_reason, bad_personas=personas.bad)


@asynccontextmanager
async def begin(
    request: Request,
) -> AsyncGenerator[StartedRun, None]:
    """Open the parts of a run and create its pool; the folder is created after the check of personas and models.

    A run that has its `n` already opens no models and reads no personas. A run in an object store is copied to this
    machine first and is stored completely at the end.

    Raises the errors of `synthesize`.
    """
    # Imported here: most runs have no store.
    from refinesynth.stores import opened_output

    async with AsyncExitStack() as stack:
        # 1. The output folder, on this machine.
        path, uploads = await stack.enter_async_context(opened_output(request.settings.output, fresh=request.fresh))
        settings = request.settings.model_copy(update={"output": path})
        request = replace(request, settings=settings)
        has_enough = request.has_enough()
        if settings.tools is not None or settings.mcp is not None:
            from refinesynth.synthesis.user_tools import actions_for

            request = replace(request, actions=await actions_for(settings))

        # 2. Backends, budget and personas; nothing is written yet.
        roles = EpisodeRoles(request)
        backends = [*roles.backends.values(), *filter(None, [roles.fallback])]
        budget = Budget.of(settings.budget)
        prices = prices_of(backends, budget, injected=request.call is not None)
        if not has_enough:
            await roles.bound_by_slots()
            # Opening the models checks their keys; this comes before a persona is taken from an iterator.
            request.refuse_without_player(roles.models)
        source = open_source(settings.personas, settings.scripts, column=settings.column)
        personas = await stack.enter_async_context(source)
        if settings.shard is not None:
            personas.take_every(settings.shard.of, first=settings.shard.index)
        curator = None
        if not has_enough:
            await personas.read_first()
            curator = await _curator(settings.curation)

        # 3. The run folder, with the costs and trajectories of earlier processes.
        config = request.record(
            roles.settings, roles.given_backends, fallback=roles.given_fallback, personas=personas.description
        )
        output, log_level = settings.output or next_run_folder(), level_of(settings.log_level)
        folder = RunWriter.claim(output, config, fresh=request.fresh, log_level=log_level)
        stack.callback(folder.close)
        await folder.collect_blocks()
        spent, waiting = folder.spent(), folder.waiting_lines()
        tracker = tracker_of(budget, prices, spent=spent, stats=folder.committed, waiting=waiting)
        if curator is not None:
            learn = partial(curator.learn, RunFolder(folder.path, folder.config).trajectories())
            await anyio.to_thread.run_sync(learn)

        # 4. The roles, and their number of concurrent episodes.
        open_roles = await stack.enter_async_context(
            roles.open(folder, tracker, needed=not has_enough, on_change=lambda: pool.report())  # noqa: PLW0108 - made below
        )
        maximum = max_in_flight_of(settings.concurrency, workers=settings.workers)
        # A batch admits any number of requests.
        is_fixed = settings.concurrency != "auto" or roles.batches is not None
        minimum = maximum if is_fixed else min(maximum, min_in_flight_for(settings.n))
        probe = StatusProbe(tracker, roles.counts, lambda: roles.models, open_roles.workers_state)
        prefetch = PREFETCH if settings.on_ray else 1
        pool = Pool(
            personas=personas,
            folder=folder,
            play=open_roles.play,
            limit=EpisodeLimit(maximum, minimum, probe.limiters, lambda: open_roles.workers_state().capacity, prefetch),
            queued=open_roles.queued,
            may_start=tracker.may_start,
            curate=None if curator is None else curator.curate,
            on_progress=request.on_progress,
            surroundings=probe.read,
        )

        # 5. The start of the log and of the uploads to an object store.
        if not pool.reached:
            _log_start(folder, personas)
            if settings.real:
                _warn_of_tools(settings)
            if uploads is not None:
                await uploads.begin()
        yield StartedRun(pool, tracker)


class OpenRoles(NamedTuple):
    """Player of a run's episodes, in this process or in tasks on Ray, and its state."""

    play: PlayEpisode
    workers_state: Callable[[], BackendsState] = BackendsState
    """Returns the state of the backends in other processes."""
    queued: Callable[[], int] = int
    """Returns the number of handed over episodes that wait for a worker."""


class EpisodeRoles:
    """Models of the roles and settings of the episodes, for this process or for tasks on Ray; models open lazily."""

    def __init__(self, request: Request) -> None:
        # Imported here: these modules import pydantic-ai, which takes time.
        from refinesynth.client.failure_policy import RequestCounts
        from refinesynth.client.http.transport import with_path
        from refinesynth.client.request_arguments import UnsupportedFeatures

        self._request = request
        self.settings = request.episodes()
        self.given_backends, self.given_fallback = request.backends(self.settings)
        self.settings = self.settings.model_copy(update={"bounded": request.bounded(self.given_backends)})
        in_flight = max_in_flight_of(request.settings.concurrency, workers=request.settings.workers)
        self.backends = {role: with_path(backend, in_flight=in_flight) for role, backend in self.given_backends.items()}
        """`given_backends`, each with the transport of its requests."""
        self.fallback = None if self.given_fallback is None else with_path(self.given_fallback, in_flight=in_flight)
        self.counts = RequestCounts()
        self.batches = request.batches(self.given_backends)
        """Batches of the provider; None if each request is sent by itself."""
        self._unsupported = UnsupportedFeatures()

    async def bound_by_slots(self) -> None:
        """Bound the requests in flight by the slots that local servers report; call it before `models`."""
        from refinesynth.client.default_limits import bounded_by_slots

        if self._request.call is None:
            self.backends = await bounded_by_slots(self.backends)

    @cached_property
    def models(self) -> "Mapping[Role, Model]":
        """One model for each role, opened at the first access."""
        from refinesynth.client import open_models

        return open_models(
            self.backends,
            call=self._request.call,
            fallback=self.fallback,
            calls=self.counts,
            lacks=self._unsupported,
            batches=self.batches,
        )

    @asynccontextmanager
    async def open(
        self, folder: RunWriter, tracker: "BudgetTracker", *, needed: bool, on_change: Callable[[], None]
    ) -> AsyncGenerator[OpenRoles]:
        """Open the models, here or in workers; workers call `on_change` when their number of episodes in flight changes."""
        # Imported here: it imports pydantic-ai, which takes time.
        from refinesynth.client import close_models

        settings = self._request.settings
        folder.open_batches(self.batches)
        self._unsupported.open(folder.journal)
        if settings.on_ray and needed:
            from refinesynth.synthesis.workers import Blocks

            blocks = Blocks(
                settings=self._block_settings(folder),
                folder=folder,
                tracker=tracker,
                unsupported=self._unsupported,
                on_change=on_change,
                workers=settings.workers,
            )
            async with blocks.opened(settings.cluster):
                yield OpenRoles(blocks.play, blocks.state, blocks.queued)
            return
        try:
            async with self.batches.running() if self.batches else nullcontext():
                yield OpenRoles(partial(self._play_here, folder, tracker))
        finally:
            if "models" in vars(self):
                with anyio.CancelScope(shield=True):
                    await close_models(self.models.values())

    async def _play_here(
        self, folder: RunWriter, tracker: "BudgetTracker", index: int, persona: Persona
    ) -> CompletedEpisode:
        # Imported here: it imports pydantic-ai, which takes time.
        from refinesynth.episode import episode_id, play_episode

        memory = folder.memory(episode_id(persona, index=index, settings=self.settings), index)
        with tracker.episode(index) as episode_tracker:
            outcome = await play_episode(
                persona, index=index, settings=self.settings, models=self.models, memory=memory, tracker=episode_tracker
            )
        finished = CompletedEpisode.of(outcome)
        tracker.ended(finished.line.spent)
        return finished

    def _block_settings(self, folder: RunWriter) -> "BlockSettings":
        from refinesynth.synthesis.workers.block_driver import MAX_REPORTS_PER_S, share_of_limits
        from refinesynth.synthesis.workers.block_task import BlockSettings

        settings = self._request.settings
        maximum = max(1, max_in_flight_of(settings.concurrency, workers=settings.workers) // settings.workers)
        return BlockSettings(
            settings=self.settings,
            backends={role: share_of_limits(backend, settings.workers) for role, backend in self.backends.items()},
            fallback=None if self.fallback is None else share_of_limits(self.fallback, settings.workers),
            call=self._request.call,
            max_in_flight=maximum,
            min_in_flight=min(maximum, MIN_IN_FLIGHT) if settings.concurrency == "auto" else maximum,
            # Absolute: a worker has its own working folder.
            folder=folder.path.resolve(),
            host=gethostname(),
            report_every=max(0.1, settings.workers / MAX_REPORTS_PER_S),
            log_level=level_of(settings.log_level),
        )


def prices_of(backends: "Iterable[Backend]", budget: Budget | None, *, injected: bool) -> "list[Price]":
    """Return the prices that the budget needs; an `injected` completion function has only prices given in the backends.

    Raises ConfigurationError: the budget is in US dollars, and the price of a backend is unknown.
    """
    if budget is None or budget.usd is None:
        return []
    from refinesynth.client.budget.price_table import price_of, unknown

    prices: list[Price] = []
    for backend in chain.from_iterable(mixture.members for mixture in backends):
        price = price_of(backend, listings=not injected)
        if price is unknown:
            raise ConfigurationError(
                f"a budget of {budget} needs prices, and that of {backend.label} is unknown: give input_price and "
                f"output_price of the backend in US dollars per million tokens (--set input_price=0.3 --set "
                f"output_price=1.2), or a budget in tokens (20Mtok)"
            )
        prices.append(price)
    return prices


def tracker_of(
    budget: Budget | None,
    prices: "Sequence[Price]",
    *,
    spent: Sequence[SpentRow],
    stats: RunStats,
    waiting: Sequence[EpisodeLine],
) -> "BudgetTracker":
    """Return the tracker of a run with its costs so far, `spent`; `waiting` are finished episodes outside `stats`.

    Raises ConfigurationError: the budget is in US dollars, and an earlier completion has no known price.
    """
    from refinesynth.client.budget.tracker import BudgetTracker

    earlier = sum(map(spent_of, spent), Cost())
    ended = sum((line.spent for line in waiting), stats.spent)
    if budget is not None and budget.usd is not None and earlier.cost_usd is None:
        raise ConfigurationError(
            f"a budget of {budget} cannot be kept: the run has made {earlier.usage.requests:,} requests, and the price of some "
            f"was unknown; give a budget in tokens instead, it has used {earlier.tokens:,} so far"
        )
    episodes = stats.episodes + len(waiting)
    return BudgetTracker(budget, spent=earlier, ended=ended, episodes=episodes, prices=prices)


async def _curator(curation: Curation | None) -> "Curator | None":
    if curation is None or curation.idle:
        return None
    from refinesynth.synthesis.curator import Curator

    return await anyio.to_thread.run_sync(Curator.of, curation)  # it reads evaluation sets


def _warn_of_tools(settings: RunSettings) -> None:
    text = f"models call {', '.join(settings.allow_tool)} of {settings.mcp!r} with arguments of their own; run it in a sandbox"
    if str(settings.mcp).startswith("http"):
        text += ". Plays at a URL share what it keeps between sessions"
    logging.getLogger("refinesynth.tools").warning(text, extra={"facts": {"event": "real_tools", "text": text}})


def _log_start(folder: RunWriter, personas: Personas) -> None:
    folder.milestones.info(
        "run_started",
        **folder.config.model_dump(mode="json", include={"n", "concurrency", "play", "seed", "personas", "versions"}),
        finished=folder.committed.episodes,
        accepted=folder.committed.accepted,
    )

    def log_skipped(row: BadRow) -> None:
        folder.log.warning("persona_skipped", line=row.line, reason=row.reason)

    for row in personas.problems:
        log_skipped(row)
    personas.on_problem = log_skipped
