"""Driver of a run on Ray: gathers personas into blocks, each played by a Ray task."""

import logging
import math
import os
import pickle
import shutil
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from refinesynth._version import __version__
from refinesynth.async_contexts import background_tasks
from refinesynth.backends.backend import Mixed
from refinesynth.client.budget.tracker import BudgetTracker, EpisodeTracker
from refinesynth.client.request_arguments import UnsupportedFeatures
from refinesynth.client.token_usage import usage_of
from refinesynth.episode import episode_id
from refinesynth.errors import BudgetSpent, ConfigurationError, RunStopped, StorageError
from refinesynth.journal import PaidCompletion
from refinesynth.run import CompletedEpisode, RunWriter
from refinesynth.run.resume import blocks_of, collect
from refinesynth.synthesis.concurrency import MIN_IN_FLIGHT
from refinesynth.synthesis.progress import BackendsState
from refinesynth.synthesis.workers.block_task import Block, BlockSettings, Episode, Mailbox, Report, play_block
from refinesynth.synthesis.workers.budget_shares import Share, Shares
from refinesynth.synthesis.workers.cluster import connected, first_line, ray, task_result
from refinesynth.trajectory import Persona

if TYPE_CHECKING:
    from refinesynth.backends import Backend

_BLOCKS_PER_WORKER = 2
"""Blocks per worker that waiting episodes are divided into; slow workers get fewer blocks."""
_MAX_BLOCK_FACTOR = 4
"""Maximum number of episodes in a block, per episode that the block may have in flight."""
_GATHER_S = 0.02
"""Seconds to wait for further personas before a block is formed."""
_POLL_S = 0.05
"""Seconds until the next poll of the mailbox after an empty one."""
MAX_REPORTS_PER_S = 500
"""Approximate maximum rate of reports from all blocks, per second."""
_MAX_DEATHS = 5
"""Deaths of tasks in a row, without a finished episode, that stop the run."""
_END_TIMEOUT_S = 10.0
"""Seconds, besides two report intervals, before a task that must end is killed; half the time until a block that waits
for a CPU causes a warning."""

_LOST = "the connection to the Ray cluster is lost ({}). What was finished is on disk; the same command goes on with it"

_LOG = logging.getLogger("refinesynth.workers")


@dataclass(eq=False)
class _Episode:
    index: int
    persona: Persona
    tracker: EpisodeTracker
    attempts: int = 0
    """Number of blocks that returned it because their share of the budget was spent."""
    was_sent: bool = False
    """True if it was sent out in a block."""
    done: anyio.Event = field(default_factory=anyio.Event)
    result: CompletedEpisode | Exception = field(default_factory=lambda: RunStopped("the blocks ended."))

    def end(self, result: CompletedEpisode | Exception) -> None:
        if not self.done.is_set():
            self.result = result
            self.done.set()


@dataclass(eq=False)
class _SentBlock:
    number: int
    episodes: dict[int, _Episode]
    share: Share = field(init=False)
    state: BackendsState = field(default_factory=BackendsState)
    has_reported: bool = False
    """True after the first report."""
    folder: str = ""
    sent_at: float = field(default_factory=anyio.current_time)

    @property
    def unfinished(self) -> list[_Episode]:
        return [episode for episode in self.episodes.values() if not episode.done.is_set()]


@dataclass(eq=False, kw_only=True)
class Blocks:
    """Player of episodes in other processes, in the context of `opened`."""

    settings: BlockSettings
    folder: RunWriter
    tracker: BudgetTracker
    unsupported: UnsupportedFeatures
    on_change: Callable[[], None]
    """Called when a report changes a block's number of episodes in flight."""
    workers: int

    def __post_init__(self) -> None:
        """Pickle the settings. Raises ConfigurationError: the settings cannot be pickled."""
        self._pickled: Any = _pickled(self.settings)
        self._shares = Shares(self.tracker)
        self._waiting: list[_Episode] = []
        self._sent_blocks: dict[int, _SentBlock] = {}
        self._dead_blocks = set[int]()
        """Numbers of blocks that died."""
        self._last_number = 0
        self._retries = 0
        """Retries of blocks that have ended."""
        self._deaths = 0
        """Deaths in a row without a finished episode; concurrent tasks, as on a lost machine, count once."""
        self._last_at_death = 0
        """Number of the newest block at the last counted death."""
        self._remote_task: Any = None
        """`play_block` as a remote function of Ray."""
        self._changed = anyio.Event()
        self._mailbox: Mailbox
        self._report_lock = anyio.Lock()
        self._failure: Exception | None = None
        self._connection_lost = False
        """True once the cluster is lost, after which Ray may answer no call."""

    @asynccontextmanager
    async def opened(self, cluster: str | None) -> AsyncGenerator[None, None]:
        """Play on `cluster`, or on this machine; on exit, end the blocks and take their last reports.

        Raises ConfigurationError: there is no Ray, or no such cluster.
        """
        async with connected(cluster, workers=self.workers), background_tasks() as tasks:
            tasks.start_soon(self._run_guarded, self._run)
            yield

    async def play(self, index: int, persona: Persona) -> CompletedEpisode:
        """Play one episode in some block.

        Raises the errors of `PlayEpisode`, and StorageError: the cluster is lost, or the run folder cannot be written.
        """
        if self._failure is not None:
            raise self._failure
        with self.tracker.episode(index) as tracker:
            episode = _Episode(index, persona, tracker)
            self._waiting.append(episode)
            self._changed.set()
            await episode.done.wait()
        if isinstance(episode.result, Exception):
            raise episode.result
        self.tracker.ended(episode.result.line.spent)
        return episode.result

    def state(self) -> BackendsState:
        """Return the state of the backends over all blocks, with each trouble once."""
        states = [block.state for block in self._sent_blocks.values()]
        return BackendsState(
            retries=self._retries + sum(state.retries for state in states),
            troubles=tuple(dict.fromkeys(trouble for state in states for trouble in state.troubles)),
            capacity=sum(state.capacity for state in states),
            in_flight=sum(state.in_flight for state in states),
        )

    def queued(self) -> int:
        """Return the number of unfinished episodes that are not in flight."""
        unfinished = len(self._waiting) + sum(len(block.unfinished) for block in self._sent_blocks.values())
        return max(0, unfinished - self.state().in_flight)

    async def _run(self) -> None:
        self._mailbox = await anyio.to_thread.run_sync(Mailbox.open)
        # Once for all blocks, as Ray sends a function and large arguments again with each task. No retries by Ray: this
        # class replaces a dead task and passes its paid completions on.
        options: dict[str, Any] = {"num_cpus": 1, "max_retries": 0, "scheduling_strategy": "SPREAD"}
        self._remote_task, self._pickled = ray().remote(**options)(play_block), ray().put(self._pickled)
        try:
            async with anyio.create_task_group() as tasks:
                for task in (self._listen, self._watch_waiting, self._send_blocks):
                    tasks.start_soon(self._run_guarded, task)
        finally:
            if not self._connection_lost:
                with anyio.CancelScope(shield=True), suppress(Exception):
                    await anyio.to_thread.run_sync(self._mailbox.close)
            with suppress(OSError):
                blocks_of(self.folder.path).rmdir()

    async def _run_guarded(self, task: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Run a task of the group; an error ends all episodes."""
        try:
            await task(*arguments)
        except Exception as error:  # noqa: BLE001 - raised by `play`
            # After a lost connection, Ray raises errors of any class.
            lost = isinstance(error, ConnectionError | ray().exceptions.RayError) or not ray().is_initialized()
            self._connection_lost = self._connection_lost or lost
            self._fail(StorageError(_LOST.format(first_line(error))) if lost else error)

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        for episode in (*self._waiting, *(item for block in self._sent_blocks.values() for item in block.unfinished)):
            episode.end(self._failure)
        self._waiting.clear()

    async def _send_blocks(self) -> None:
        async with anyio.create_task_group() as tasks:
            while True:
                while not self._waiting or len(self._sent_blocks) >= self.workers:
                    self._changed = anyio.Event()
                    await self._changed.wait()
                await anyio.sleep(_GATHER_S)
                self._waiting.sort(key=lambda episode: (-episode.attempts, episode.index))
                size = self._next_size()
                chosen, self._waiting = self._waiting[:size], self._waiting[size:]
                if chosen:
                    self._last_number += 1
                    block = _SentBlock(self._last_number, {episode.index: episode for episode in chosen})
                    self._sent_blocks[block.number] = block
                    tasks.start_soon(self._run_guarded, self._play_block, block)

    def _next_size(self) -> int:
        """Return the number of episodes for the next block: a part of the waiting ones that occupies a worker."""
        waiting, free_workers = len(self._waiting), self.workers - len(self._sent_blocks)
        settings = self.settings
        in_flight, is_auto = settings.max_in_flight, settings.min_in_flight < settings.max_in_flight
        in_flight = min(in_flight, _MAX_BLOCK_FACTOR * MIN_IN_FLIGHT) if is_auto else in_flight
        size = min(in_flight, math.ceil(waiting / max(1, free_workers)))
        return min(_MAX_BLOCK_FACTOR * in_flight, max(size, math.ceil(waiting / (_BLOCKS_PER_WORKER * self.workers))))

    async def _play_block(self, block: _SentBlock) -> None:
        """Play one block, and return its share of the budget also after an error."""
        try:
            attempts = max(episode.attempts for episode in block.unfinished)
            block.share = await self._shares.take(len(block.episodes), attempts=attempts)
            try:
                await self._run_task(block)
            finally:
                block.share.give_back()
        except BudgetSpent as error:
            for episode in block.unfinished:
                episode.end(error)
        # After any other error the block stays in `_sent_blocks`, and `_fail` ends its episodes.
        self._retries += block.state.retries
        del self._sent_blocks[block.number]
        self._changed.set()

    async def _run_task(self, block: _SentBlock) -> None:
        ref = self._submit(block)
        try:
            error: Exception | None = await task_result(ref)
        except ray().exceptions.RayError as death:
            await self._replace(block, death)
        except BaseException:
            if not self._connection_lost:
                with anyio.CancelScope(shield=True):
                    with suppress(Exception):
                        await self._end_task(block, ref)
                    with suppress(Exception):
                        await self._recover(block)
            raise
        else:
            await self._process_reports()
            if block.folder and self._failure is None:
                shutil.rmtree(blocks_of(self.folder.path) / block.folder, ignore_errors=True)
            if error is not None:
                raise error
            if block.unfinished and block.share.takes_all:
                raise self._shares.spent()
            for episode in block.unfinished:
                episode.attempts += 1
        self._waiting += block.unfinished

    async def _end_task(self, block: _SentBlock, ref: Any) -> None:
        """Tell a playing block to end and wait for it; kill its process after the time-out."""
        if not await anyio.to_thread.run_sync(self._mailbox.end, block.number):
            return
        timeout = _END_TIMEOUT_S + 2 * self.settings.report_every
        with anyio.move_on_after(timeout) as scope, suppress(ray().exceptions.RayError):
            await task_result(ref)
        if scope.cancelled_caught:
            await anyio.to_thread.run_sync(lambda: ray().cancel(ref, force=True))
            with anyio.move_on_after(_END_TIMEOUT_S), suppress(ray().exceptions.RayError):
                await task_result(ref)

    async def _replace(self, block: _SentBlock, death: Exception) -> None:
        """Take over the completions of a dead task. Raises RunStopped: too many tasks have died in a row."""
        await self._recover(block)
        if block.number > self._last_at_death:
            self._deaths, self._last_at_death = self._deaths + 1, self._last_number
        if self._deaths >= _MAX_DEATHS:
            raise RunStopped(
                f"{_MAX_DEATHS} workers died one after the other, the last one so: {first_line(death)[:500]} If it ran out of "
                f"memory, give the run more, or lower concurrency or workers."
            ) from death

    def _submit(self, block: _SentBlock) -> Any:
        """Start the task of a block; return its reference."""
        to_play: list[Episode] = []
        for episode in block.unfinished:
            name = episode_id(episode.persona, index=episode.index, settings=self.settings.settings)
            memory = self.folder.memory(name, episode.index, was_begun=episode.was_sent)
            episode.was_sent = True
            to_play.append(Episode(episode.index, episode.persona, memory.all_recorded(), memory.had_finished))
        known = self.unsupported.to_json()
        work = Block(number=block.number, episodes=tuple(to_play), budget=block.share.budget, unsupported=known)
        return self._remote_task.remote(
            self._pickled,
            pickle.dumps(work),
            self._mailbox,
            version=__version__,
            environment={name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            paths=sys.path,
        )

    async def _recover(self, block: _SentBlock) -> None:
        """Take over the completions of a dead block, and of others that ended meanwhile."""
        await self._process_reports()
        self._dead_blocks.add(block.number)
        await collect(blocks_of(self.folder.path), self._keep_unreported)

    # Reports.

    async def _listen(self) -> None:
        while True:
            if not await self._process_reports():
                await anyio.sleep(_POLL_S)

    async def _process_reports(self) -> bool:
        """Process all reports; return False without reports. Shielded, because each report is delivered once."""
        reports: list[Report] = []
        with anyio.CancelScope(shield=True):
            async with self._report_lock:
                reports = await anyio.to_thread.run_sync(self._mailbox.take)
                for report in reports:
                    await self._process_report(report)
        return bool(reports)

    async def _process_report(self, report: Report) -> None:
        block = None if report.block in self._dead_blocks else self._sent_blocks.get(report.block)
        for level, facts in report.logged:
            _LOG.log(level, "%s", facts["text"], extra={"facts": facts})
        # The completions of a dead block are counted already, from its journal.
        await self.unsupported.merge(report.unsupported)
        paid = report.paid if block is not None else self.folder.not_committed(report.paid)
        await self.folder.keep(paid)
        for completion in paid:
            self._count(completion, block)
        if block is None:
            return
        in_flight_before = block.state.in_flight
        block.has_reported, block.state, block.folder = True, report.state, report.folder
        for finished in report.finished:
            block.episodes[finished.index].end(finished)
            self._deaths = 0
        if report.state.in_flight != in_flight_before:
            self.on_change()

    async def _keep_unreported(self, completions: Sequence[PaidCompletion]) -> None:
        """Commit the completions that an ended block has not reported."""
        # The last report of a block precedes the release of its folder.
        await self._process_reports()
        new = self.folder.not_committed(completions)
        await self.folder.keep(new)
        for paid in new:
            self._count(paid, None)

    def _count(self, paid: PaidCompletion, block: _SentBlock | None) -> None:
        if block is None:
            self.tracker.count(usage_of(paid), paid.cost_usd)
        else:
            block.share.count(usage_of(paid), paid.cost_usd, episode=block.episodes[paid.index].tracker)

    async def _watch_waiting(self) -> None:
        """Warn of blocks that wait for a CPU of the cluster; Ray itself gives no warning."""
        while True:
            await anyio.sleep(_END_TIMEOUT_S)
            silent = [block for block in self._sent_blocks.values() if not block.has_reported]
            if max((anyio.current_time() - block.sent_at for block in silent), default=0.0) <= 2 * _END_TIMEOUT_S:
                continue
            calls = ray().cluster_resources, ray().available_resources
            total, free = [(await anyio.to_thread.run_sync(call)).get("CPU", 0.0) for call in calls]
            # The blocks may wait for another reason, such as processes that are starting.
            if free >= 1 or (not free and total == len(self._sent_blocks)):
                continue
            text = (
                f"{len(silent)} of {len(self._sent_blocks)} workers wait for a place: each takes 1 CPU, and the cluster has {total:g}, "
                f"of which {free:g} are free (`ray status`); add machines, or ask for fewer workers"
            )
            _LOG.warning("%s", text, extra={"facts": {"event": "workers_wait", "text": text}})


def _pickled(settings: BlockSettings) -> bytes:
    try:
        return ray().cloudpickle.dumps(settings)
    except Exception as error:
        raise ConfigurationError(
            f"the settings cannot be given to another process ({error}): rules and completion functions must be such "
            f"that they can be pickled. Or ask for one worker, in this process"
        ) from error


def share_of_limits(backend: "Backend", workers: int) -> "Backend":
    """Return a backend with one worker's part of its limits.

    Raises ConfigurationError: there are more workers than requests allowed in flight.
    """
    if workers == 1:
        return backend
    if len(backend.members) > 1:
        return Mixed.of([share_of_limits(member, workers) for member in backend.members])
    limit = backend.max_in_flight
    if limit is not None and limit < workers:
        raise ConfigurationError(
            f"{backend.label} may be asked {limit} requests at once, and {workers} workers would each ask "
            f"at least one: lower workers, or raise max_in_flight"
        )
    rates = {name: getattr(backend, name) for name in ("requests_per_minute", "tokens_per_minute")}
    parts = {name: None if rate is None else rate / workers for name, rate in rates.items()}
    return backend.model_copy(update={**parts, "max_in_flight": None if limit is None else limit // workers})
