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
from refinesynth.backends.backend import Mixed
from refinesynth.client.background_tasks import background_tasks
from refinesynth.client.budget.tracker import BudgetTracker, EpisodeTracker, Share, Shares
from refinesynth.client.completion_parsing import usage_of
from refinesynth.client.unsupported_features import UnsupportedFeatures
from refinesynth.episode import episode_id
from refinesynth.errors import BudgetSpent, ConfigurationError, RunStopped, StorageError
from refinesynth.journal import Paid
from refinesynth.run import CompletedEpisode, RunWriter
from refinesynth.run.resume import blocks_of, collect
from refinesynth.synthesis.concurrency import FEWEST
from refinesynth.synthesis.progress import BackendsState
from refinesynth.synthesis.workers.block_task import Block, BlockSettings, Mailbox, Report, ToPlay, play_block
from refinesynth.synthesis.workers.cluster import answered, connected, cpus_of_each, first_line, ray
from refinesynth.trajectory import Persona

if TYPE_CHECKING:
    from refinesynth.backends import Backend

_BLOCKS_OF_EACH = 2
"""Blocks per worker that waiting episodes are divided into; slow workers get fewer blocks."""
_LONGEST = 4
"""Maximum number of episodes in a block, per episode that the block may have in flight."""
_GATHER = 0.02
"""Seconds to wait for further personas before a block is formed."""
_LISTEN_EVERY = 0.05
"""Seconds until the next poll of the mailbox after an empty one."""
REPORTS = 500
"""Approximate maximum rate of reports from all blocks, per second."""
_LIVES = 5
"""Deaths of tasks in a row, without a finished episode, that stop the run."""
_PATIENCE = 10.0
"""Seconds, besides two report intervals, before a task that must end is killed; half the time until a block that waits
for a CPU causes a warning."""

_LOST = "the connection to the Ray cluster is lost ({}). What was finished is on disk; the same command goes on with it"

_LOG = logging.getLogger("refinesynth.workers")


@dataclass(eq=False)
class _Episode:
    index: int
    persona: Persona
    purse: EpisodeTracker
    tries: int = 0
    """Number of blocks that returned it because their share of the budget was spent."""
    begun: bool = False
    """True if it was sent out in a block."""
    done: anyio.Event = field(default_factory=anyio.Event)
    result: CompletedEpisode | Exception = field(default_factory=lambda: RunStopped("the blocks ended."))

    def end(self, result: CompletedEpisode | Exception) -> None:
        if not self.done.is_set():
            self.result = result
            self.done.set()


@dataclass(eq=False)
class _Out:
    """A block that was sent out."""

    number: int
    episodes: dict[int, _Episode]
    share: Share = field(init=False)
    how: BackendsState = field(default_factory=BackendsState)
    begun: bool = False
    """True after the first report."""
    folder: str = ""
    since: float = field(default_factory=anyio.current_time)

    @property
    def left(self) -> list[_Episode]:
        return [episode for episode in self.episodes.values() if not episode.done.is_set()]


@dataclass(eq=False, kw_only=True)
class Blocks:
    """Player of episodes in other processes, in the context of `opened`."""

    settings: BlockSettings
    folder: RunWriter
    tracker: BudgetTracker
    lacks: UnsupportedFeatures
    on_change: Callable[[], None]
    """Called when a report changes a block's number of episodes in flight."""
    workers: int

    def __post_init__(self) -> None:
        """Pickle the settings. Raises ConfigurationError: the settings cannot be pickled."""
        self._pickled: Any = _pickled(self.settings)
        self._shares = Shares(self.tracker)
        self._waiting: list[_Episode] = []
        self._out: dict[int, _Out] = {}
        self._dead = set[int]()
        """Numbers of blocks that died."""
        self._number = 0
        self._retries = 0
        """Retries of blocks that have ended."""
        self._deaths = 0
        """Deaths in a row without a finished episode; concurrent tasks, as on a lost machine, count once."""
        self._last_of_death = 0
        """Number of the newest block at the last counted death."""
        self._task: Any = None
        """`play_block` as a remote function of Ray."""
        self._changed = anyio.Event()
        self._mailbox: Mailbox
        self._hearing = anyio.Lock()
        self._failure: Exception | None = None
        self._lost = False
        """True once the cluster is lost, after which Ray may answer no call."""

    @asynccontextmanager
    async def opened(self, cluster: str | None) -> AsyncGenerator[None, None]:
        """Play on `cluster`, or on this machine; on exit, end the blocks and take their last reports.

        Raises ConfigurationError: there is no Ray, or no such cluster.
        """
        async with connected(cluster, workers=self.workers), background_tasks() as tasks:
            tasks.start_soon(self._guarded, self._run)
            yield

    async def play(self, index: int, persona: Persona) -> CompletedEpisode:
        """Play one episode in some block.

        Raises the errors of `PlayEpisode`, and StorageError: the cluster is lost, or the run folder cannot be written.
        """
        if self._failure is not None:
            raise self._failure
        with self.tracker.episode(index) as purse:
            episode = _Episode(index, persona, purse)
            self._waiting.append(episode)
            self._changed.set()
            await episode.done.wait()
        if isinstance(episode.result, Exception):
            raise episode.result
        self.tracker.ended(episode.result.line.spent)
        return episode.result

    def how(self) -> BackendsState:
        """Return the state of the backends over all blocks, with each trouble once."""
        each = [out.how for out in self._out.values()]
        return BackendsState(
            retries=self._retries + sum(one.retries for one in each),
            troubles=tuple(dict.fromkeys(trouble for one in each for trouble in one.troubles)),
            room=sum(one.room for one in each),
            in_flight=sum(one.in_flight for one in each),
        )

    def queued(self) -> int:
        """Return the number of unfinished episodes that are not in flight."""
        left = len(self._waiting) + sum(len(out.left) for out in self._out.values())
        return max(0, left - self.how().in_flight)

    async def _run(self) -> None:
        self._mailbox = await anyio.to_thread.run_sync(Mailbox.open)
        # Once for all blocks, as Ray sends a function and large arguments again with each task. No retries by Ray: this
        # class replaces a dead task and passes its paid completions on.
        how: dict[str, Any] = {"num_cpus": cpus_of_each(), "max_retries": 0, "scheduling_strategy": "SPREAD"}
        self._task, self._pickled = ray().remote(**how)(play_block), ray().put(self._pickled)
        try:
            async with anyio.create_task_group() as tasks:
                for task in (self._listen, self._watch_waiting, self._send_out):
                    tasks.start_soon(self._guarded, task)
        finally:
            if not self._lost:
                with anyio.CancelScope(shield=True), suppress(Exception):
                    await anyio.to_thread.run_sync(self._mailbox.close)
            with suppress(OSError):
                blocks_of(self.folder.path).rmdir()

    async def _guarded(self, task: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Run a task of the group; an error ends all episodes."""
        try:
            await task(*arguments)
        except Exception as error:  # noqa: BLE001 - raised by `play`
            # After a lost connection, Ray raises errors of any class.
            lost = isinstance(error, ConnectionError | ray().exceptions.RayError) or not ray().is_initialized()
            self._lost = self._lost or lost
            self._fail(StorageError(_LOST.format(first_line(error))) if lost else error)

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        for episode in (*self._waiting, *(one for out in self._out.values() for one in out.left)):
            episode.end(self._failure)
        self._waiting.clear()

    async def _send_out(self) -> None:
        async with anyio.create_task_group() as tasks:
            while True:
                while not self._waiting or len(self._out) >= self.workers:
                    self._changed = anyio.Event()
                    await self._changed.wait()
                await anyio.sleep(_GATHER)
                self._waiting.sort(key=lambda episode: (-episode.tries, episode.index))
                chosen, self._waiting = self._waiting[: self._size()], self._waiting[self._size() :]
                if chosen:
                    self._number += 1
                    out = self._out[self._number] = _Out(self._number, {one.index: one for one in chosen})
                    tasks.start_soon(self._guarded, self._play_block, out)

    def _size(self) -> int:
        """Return the number of episodes for the next block: a part of the waiting ones that occupies a worker."""
        waiting, free = len(self._waiting), self.workers - len(self._out)
        settings = self.settings
        at_once = min(settings.most, _LONGEST * FEWEST) if settings.fewest < settings.most else settings.most
        enough = min(at_once, math.ceil(waiting / max(1, free)))
        return min(_LONGEST * at_once, max(enough, math.ceil(waiting / (_BLOCKS_OF_EACH * self.workers))))

    async def _play_block(self, out: _Out) -> None:
        """Play one block, and return its share of the budget also after an error."""
        try:
            tries = max(episode.tries for episode in out.left)
            out.share = await self._shares.take(len(out.episodes), tries=tries)
            try:
                await self._in_a_task(out)
            finally:
                out.share.give_back()
        except BudgetSpent as error:
            for episode in out.left:
                episode.end(error)
        # After any other error the block stays in `_out`, and `_fail` ends its episodes.
        self._retries += out.how.retries
        del self._out[out.number]
        self._changed.set()

    async def _in_a_task(self, out: _Out) -> None:
        ref = self._submit(out)
        try:
            error: Exception | None = await answered(ref)
        except ray().exceptions.RayError as death:
            await self._replace(out, death)
        except BaseException:
            if not self._lost:
                with anyio.CancelScope(shield=True):
                    with suppress(Exception):
                        await self._end(out, ref)
                    with suppress(Exception):
                        await self._give_up(out)
            raise
        else:
            await self._hear()
            if out.folder and self._failure is None:
                shutil.rmtree(blocks_of(self.folder.path) / out.folder, ignore_errors=True)
            if error is not None:
                raise error
            if out.left and out.share.everything:
                raise self._shares.spent()
            for episode in out.left:
                episode.tries += 1
        self._waiting += out.left

    async def _end(self, out: _Out, ref: Any) -> None:
        """Tell a playing block to end and wait for it; kill its process after the time-out."""
        if not await anyio.to_thread.run_sync(self._mailbox.end, out.number):
            return
        patience = _PATIENCE + 2 * self.settings.report_every
        with anyio.move_on_after(patience) as waiting, suppress(ray().exceptions.RayError):
            await answered(ref)
        if waiting.cancelled_caught:
            await anyio.to_thread.run_sync(lambda: ray().cancel(ref, force=True))
            with anyio.move_on_after(_PATIENCE), suppress(ray().exceptions.RayError):
                await answered(ref)

    async def _replace(self, out: _Out, death: Exception) -> None:
        """Take over the completions of a dead task. Raises RunStopped: too many tasks have died in a row."""
        await self._give_up(out)
        if out.number > self._last_of_death:
            self._deaths, self._last_of_death = self._deaths + 1, self._number
        if self._deaths >= _LIVES:
            raise RunStopped(
                f"{_LIVES} workers died one after the other, the last one so: {first_line(death)[:500]} If it ran out of "
                f"memory, give the run more, or lower concurrency or workers."
            ) from death

    def _submit(self, out: _Out) -> Any:
        """Start the task of a block; return its reference."""
        to_play: list[ToPlay] = []
        for one in out.left:
            name = episode_id(one.persona, index=one.index, settings=self.settings.settings)
            memory = self.folder.memory(name, one.index, again=one.begun)
            one.begun = True
            to_play.append(ToPlay(one.index, one.persona, memory.everything(), memory.had_finished))
        block = Block(number=out.number, episodes=tuple(to_play), budget=out.share.budget, lacks=self.lacks.to_json())
        return self._task.remote(
            self._pickled,
            pickle.dumps(block),
            self._mailbox,
            version=__version__,
            environment={name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            paths=sys.path,
        )

    async def _give_up(self, out: _Out) -> None:
        """Take over the completions of a dead block, and of others that ended meanwhile."""
        await self._hear()
        self._dead.add(out.number)
        await collect(blocks_of(self.folder.path), self._keep_unreported)

    # Reports.

    async def _listen(self) -> None:
        while True:
            if not await self._hear():
                await anyio.sleep(_LISTEN_EVERY)

    async def _hear(self) -> bool:
        """Process all reports; return False without reports. Shielded, because each report is delivered once."""
        reports: list[Report] = []
        with anyio.CancelScope(shield=True):
            async with self._hearing:
                reports = await anyio.to_thread.run_sync(self._mailbox.take)
                for report in reports:
                    await self._take(report)
        return bool(reports)

    async def _take(self, report: Report) -> None:
        out = None if report.block in self._dead else self._out.get(report.block)
        for level, facts in report.logged:
            _LOG.log(level, "%s", facts["text"], extra={"facts": facts})
        # The completions of a dead block are counted already, from its journal.
        await self.lacks.learn(report.lacks)
        paid = report.paid if out is not None else self.folder.unknown(report.paid)
        await self.folder.keep(paid)
        for one in paid:
            self._count(one, out)
        if out is None:
            return
        before = out.how.in_flight
        out.begun, out.how, out.folder = True, report.how, report.folder
        for finished in report.finished:
            out.episodes[finished.index].end(finished)
            self._deaths = 0
        if report.how.in_flight != before:
            self.on_change()

    async def _keep_unreported(self, found: Sequence[Paid]) -> None:
        """Commit the completions that an ended block has not reported."""
        # The last report of a block precedes the release of its folder.
        await self._hear()
        new = self.folder.unknown(found)
        await self.folder.keep(new)
        for paid in new:
            self._count(paid, None)

    def _count(self, paid: Paid, out: _Out | None) -> None:
        if out is None:
            self.tracker.count(usage_of(paid), paid.cost_usd)
        else:
            out.share.count(usage_of(paid), paid.cost_usd, episode=out.episodes[paid.index].purse)

    async def _watch_waiting(self) -> None:
        """Warn of blocks that wait for a CPU of the cluster; Ray itself gives no warning."""
        while True:
            await anyio.sleep(_PATIENCE)
            waits = [anyio.current_time() - out.since for out in self._out.values() if not out.begun]
            if max(waits, default=0.0) <= 2 * _PATIENCE:
                continue
            each, waiting, resources = cpus_of_each(), len(waits), (ray().cluster_resources, ray().available_resources)
            total, free = [(await anyio.to_thread.run_sync(one)).get("CPU", 0.0) for one in resources]
            # The blocks may wait for another reason, such as processes that are starting.
            if free >= each or (not free and total == each * len(self._out)):
                continue
            text = (
                f"{waiting} of {len(self._out)} workers wait for a place: each takes {each:g} CPU, and the cluster has {total:g}, "
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
        return Mixed.of([share_of_limits(one, workers) for one in backend.members])
    most = backend.max_in_flight
    if most is not None and most < workers:
        raise ConfigurationError(
            f"{backend.label} may be asked {most} requests at once, and {workers} workers would each ask "
            f"at least one: lower workers, or raise max_in_flight"
        )
    rates = {name: getattr(backend, name) for name in ("requests_per_minute", "tokens_per_minute")}
    parts = {name: None if rate is None else rate / workers for name, rate in rates.items()}
    return backend.model_copy(update={**parts, "max_in_flight": None if most is None else most // workers})
