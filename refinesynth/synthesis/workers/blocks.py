"""The driver's side of many machines: personas are gathered to blocks, and each block is played by a task on Ray."""

import logging
import math
import os
import pickle
import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from pydantic_ai.usage import RequestUsage

from refinesynth._version import __version__
from refinesynth.backends.backend import Mixed
from refinesynth.client.beside import beside
from refinesynth.client.budget.tracker import BudgetTracker, EpisodeTracker
from refinesynth.client.lacks import Lacks
from refinesynth.episode import episode_id
from refinesynth.errors import BudgetSpent, ConfigurationError, RunStopped, StorageError
from refinesynth.journal import Paid
from refinesynth.run import Finished, RunWriter
from refinesynth.run.blocks import blocks_of, collect
from refinesynth.synthesis.progress import How
from refinesynth.synthesis.room import FEWEST
from refinesynth.synthesis.workers.block import Block, BlockSettings, ToPlay, play_block
from refinesynth.synthesis.workers.cluster import answered, connected, number_of, ray
from refinesynth.synthesis.workers.mailbox import Mailbox, Report
from refinesynth.synthesis.workers.shares import Share, Shares
from refinesynth.trajectory import Persona

if TYPE_CHECKING:
    from refinesynth.backends import Backend

_BLOCKS_OF_EACH = 2
"""Blocks for each worker into which what waits is cut, so a slow worker is helped."""
_LONGEST = 4
"""Episodes of a block for each that it may have in flight."""
_GATHER = 0.02
"""Seconds in which personas that come one after the other get into one block."""
_LISTEN_EVERY = 0.05
"""Seconds between two looks for reports while there are none."""
REPORTS = 500
"""Reports of all blocks together in a second, roughly, at most."""
_LIVES = 5
"""Tasks that may die one after the other without finishing an episode; then something is wrong with all."""
_PATIENCE = 10.0
"""Seconds until a block without a place is reported, and until a task is killed that was told to end."""

_LOG = logging.getLogger("refinesynth.workers")


@dataclass(eq=False)
class _Episode:
    """An episode that is to be played in another process."""

    index: int
    persona: Persona
    purse: EpisodeTracker
    tries: int = 0
    """Times that it came back from a block, unpaid."""
    begun: bool = False
    """True if a block may have begun it."""
    done: anyio.Event = field(default_factory=anyio.Event)
    result: Finished | Exception = field(default_factory=lambda: RunStopped("the blocks ended."))

    def end(self, result: Finished | Exception) -> None:
        if not self.done.is_set():
            self.result = result
            self.done.set()


@dataclass(eq=False)
class _Out:
    """A block that is out."""

    number: int
    episodes: dict[int, _Episode]
    share: Share = field(init=False)
    how: How = field(default_factory=How)
    begun: bool = False
    """True once there was a report."""
    folder: str = ""
    since: float = field(default_factory=anyio.current_time)

    @property
    def left(self) -> list[_Episode]:
        return [episode for episode in self.episodes.values() if not episode.done.is_set()]


class Blocks:
    """Plays episodes in other processes; `run` has to go on beside."""

    def __init__(
        self,
        settings: BlockSettings,
        *,
        folder: RunWriter,
        tracker: BudgetTracker,
        lacks: Lacks,
        on_change: Callable[[], None],
        workers: int,
    ) -> None:
        self._settings = settings
        self._pickled = _pickled(settings)
        self._folder = folder
        self._tracker = tracker
        self._lacks = lacks
        self._on_change = on_change
        self._workers = workers
        self._shares = Shares(tracker)
        self._waiting: list[_Episode] = []
        self._out: dict[int, _Out] = {}
        self._dead = set[int]()
        """Numbers of blocks that died."""
        self._number = 0
        self._retries = 0
        """Of blocks that have ended."""
        self._deaths = 0
        """Tasks that died one after the other, without finishing an episode; those that were out together, as on a machine
        that is lost, are one."""
        self._last_of_death = 0
        """Number of the last block that was out when a task died."""
        self._task: Any = None
        """The function that plays a block, as Ray knows it."""
        self._placed = False
        """True once every block that was out had a place."""
        self._changed = anyio.Event()
        self._mailbox: Mailbox
        self._hearing = anyio.Lock()
        self._failure: Exception | None = None
        self._lost = False
        """True once the cluster is, when Ray is asked nothing more: it may not answer."""

    async def play(self, index: int, persona: Persona) -> Finished:
        """One episode, in some block.

        Raises:
            BudgetSpent: It cannot be paid.
            RunStopped: No episode can go on, or tasks keep dying.
            StorageError: The cluster is lost, or the run's folder cannot be written.
        """
        if self._failure is not None:
            raise self._failure
        with self._tracker.episode(index) as purse:
            episode = _Episode(index, persona, purse)
            self._waiting.append(episode)
            self._changed.set()
            await episode.done.wait()
        if isinstance(episode.result, Exception):
            raise episode.result
        self._tracker.ended(episode.result.line.spent)
        return episode.result

    def how(self) -> How:
        """State of the backends, of all blocks together, each trouble once however many have it."""
        each = [out.how for out in self._out.values()]
        return How(
            retries=self._retries + sum(one.retries for one in each),
            troubles=tuple(dict.fromkeys(trouble for one in each for trouble in one.troubles)),
            room=sum(one.room for one in each),
            in_flight=sum(one.in_flight for one in each),
        )

    def queued(self) -> int:
        """Episodes that were handed over and are not in flight."""
        left = len(self._waiting) + sum(len(out.left) for out in self._out.values())
        return max(0, left - self.how().in_flight)

    async def run(self) -> None:
        """Send blocks out until it is cancelled; then blocks are told to end, and their last reports are heard."""
        await self._guarded(self._run)

    async def _run(self) -> None:
        self._mailbox = await anyio.to_thread.run_sync(Mailbox.open)
        # Once for all blocks, since Ray sends a function and large arguments anew for each of them. A task that dies is
        # replaced here and not by Ray, with what was paid for by then.
        how: dict[str, Any] = {"num_cpus": _cpus_of_each(), "max_retries": 0, "scheduling_strategy": "SPREAD"}
        self._task, self._pickled = ray().remote(**how)(play_block), ray().put(self._pickled)
        try:
            async with anyio.create_task_group() as tasks:
                for task in (self._listen, self._look_after, self._send_out):
                    tasks.start_soon(self._guarded, task)
        finally:
            if not self._lost:
                with anyio.CancelScope(shield=True), suppress(Exception):
                    await anyio.to_thread.run_sync(self._mailbox.close)
            with suppress(OSError):
                blocks_of(self._folder.path).rmdir()

    async def _guarded(self, task: Any, *given: Any) -> None:
        """Run a task of the group; an error ends all episodes."""
        try:
            await task(*given)
        except Exception as error:  # noqa: BLE001 - raised by `play`
            # Once a connection is lost, Ray raises errors of any class.
            lost = isinstance(error, ConnectionError | ray().exceptions.RayError) or not ray().is_initialized()
            self._lost = self._lost or lost
            self._fail(_lost() if lost else error)

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        for episode in (*self._waiting, *(one for out in self._out.values() for one in out.left)):
            episode.end(self._failure)
        self._waiting.clear()

    async def _send_out(self) -> None:
        async with anyio.create_task_group() as tasks:
            while True:
                while not self._waiting or len(self._out) >= self._workers:
                    self._changed = anyio.Event()
                    await self._changed.wait()
                # The pool hands over one persona after the other.
                await anyio.sleep(_GATHER)
                self._waiting.sort(key=lambda episode: (-episode.tries, episode.index))
                chosen, self._waiting = self._waiting[: self._size()], self._waiting[self._size() :]
                if chosen:
                    self._number += 1
                    out = self._out[self._number] = _Out(self._number, {one.index: one for one in chosen})
                    tasks.start_soon(self._guarded, self._play_block, out)

    def _size(self) -> int:
        """Episodes of the next block: a part of what waits, but enough for a worker."""
        waiting, free = len(self._waiting), self._workers - len(self._out)
        settings = self._settings
        at_once = min(settings.most, _LONGEST * FEWEST) if settings.fewest < settings.most else settings.most
        enough = min(at_once, math.ceil(waiting / max(1, free)))
        return min(_LONGEST * at_once, max(enough, math.ceil(waiting / (_BLOCKS_OF_EACH * self._workers))))

    async def _play_block(self, out: _Out) -> None:
        """One block from its beginning to its end, however that comes."""
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
        # After any other error it is still out, so its episodes end with those of all others.
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
                shutil.rmtree(blocks_of(self._folder.path) / out.folder, ignore_errors=True)
            if error is not None:
                raise error
            if out.left and out.share.everything:
                raise self._shares.spent()
            for episode in out.left:
                episode.tries += 1
        self._waiting += out.left

    async def _end(self, out: _Out, ref: Any) -> None:
        """Wait until a block that plays has heard that it is to end; after a time its process is killed."""
        if not await anyio.to_thread.run_sync(self._mailbox.end, out.number):
            return
        patience = _PATIENCE + 2 * self._settings.report_every
        with anyio.move_on_after(patience) as waiting, suppress(ray().exceptions.RayError):
            await answered(ref)
        if waiting.cancelled_caught:
            await anyio.to_thread.run_sync(lambda: ray().cancel(ref, force=True))
            with anyio.move_on_after(_PATIENCE), suppress(ray().exceptions.RayError):
                await answered(ref)

    async def _replace(self, out: _Out, death: Exception) -> None:
        """Take over what a dead task has paid for.

        Raises:
            RunStopped: Too many have died one after the other.
        """
        await self._give_up(out)
        if out.number > self._last_of_death:
            self._deaths, self._last_of_death = self._deaths + 1, self._number
        if self._deaths >= _LIVES:
            raise RunStopped(
                f"{_LIVES} workers died one after the other, the last one so: {_in_a_line(death)} Where it was killed for want of memory, "
                f"give the run more, or lower concurrency or workers."
            ) from death

    def _submit(self, out: _Out) -> Any:
        """Have a task play a block; its reference."""
        to_play: list[ToPlay] = []
        for one in out.left:
            name = episode_id(one.persona, index=one.index, settings=self._settings.settings)
            memory = self._folder.memory(name, one.index, again=one.begun)
            one.begun = True
            to_play.append(ToPlay(one.index, one.persona, memory.everything(), memory.ended))
        block = Block(number=out.number, episodes=tuple(to_play), budget=out.share.budget, lacks=self._lacks.to_json())
        return self._task.remote(
            self._pickled,
            pickle.dumps(block),
            self._mailbox,
            version=__version__,
            environment={name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            paths=sys.path,
        )

    async def _give_up(self, out: _Out) -> None:
        """Take over all that was paid for in a block that died, and in others that ended meanwhile."""
        await self._hear()
        self._dead.add(out.number)
        await collect(blocks_of(self._folder.path), self._keep_unreported)

    # Reports.

    async def _listen(self) -> None:
        while True:
            if not await self._hear():
                await anyio.sleep(_LISTEN_EVERY)

    async def _hear(self) -> bool:
        """Take all reports that are there; False if there were none. Not to be broken off: they come once."""
        reports: list[Report] = []
        with anyio.CancelScope(shield=True):
            async with self._hearing:
                reports = await anyio.to_thread.run_sync(self._mailbox.take)
                for report in reports:
                    await self._take(report)
        return bool(reports)

    async def _take(self, report: Report) -> None:
        out = None if report.block in self._dead else self._out.get(report.block)
        for level, facts in report.said:
            _LOG.log(level, "%s", facts["text"], extra={"facts": facts})
        await self._lacks.learn(report.lacks)
        # Of one that was given up as dead, what was in its journal is counted.
        paid = report.paid if out is not None else self._folder.unknown(report.paid)
        await self._folder.keep(paid)
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
            self._on_change()

    async def _keep_unreported(self, found: Sequence[Paid]) -> None:
        """Keep those completions of a block that has ended which it has not reported."""
        # Its last report was sent before its folder was let go of.
        await self._hear()
        new = self._folder.unknown(found)
        await self._folder.keep(new)
        for paid in new:
            self._count(paid, None)

    def _count(self, paid: Paid, out: _Out | None) -> None:
        usage = RequestUsage(
            input_tokens=paid.input_tokens,
            cache_read_tokens=paid.cached_tokens,
            cache_write_tokens=paid.cache_write_tokens,
            output_tokens=paid.output_tokens,
        )
        if out is None:
            self._tracker.count(usage, paid.cost_usd)
        else:
            out.share.count(usage, paid.cost_usd, episode=out.episodes[paid.index].purse)

    # Places.

    async def _look_after(self) -> None:
        """Report blocks that find no place.

        Raises:
            ConfigurationError: At the beginning, one has waited for as long as the environment allows.
        """
        limit = number_of("REFINESYNTH_CLUSTER_WAIT", math.inf)
        while True:
            await anyio.sleep(min(_PATIENCE, max(0.1, limit)))
            self._placed = self._placed or (bool(self._out) and all(out.begun for out in self._out.values()))
            since = min((out.since for out in self._out.values() if not out.begun), default=math.inf)
            waited = anyio.current_time() - since
            text = await anyio.to_thread.run_sync(self._no_room) if waited > min(2 * _PATIENCE, limit) else None
            if text is None:
                continue
            if waited > limit and not self._placed:
                raise ConfigurationError(f"{text}; REFINESYNTH_CLUSTER_WAIT is {limit:g} seconds")
            _LOG.warning("%s", text, extra={"facts": {"event": "workers_wait", "text": text}})

    def _no_room(self) -> str | None:
        """Return what is missing; None where blocks have a place and are on their way."""
        there, free = (one.get("CPU", 0.0) for one in (ray().cluster_resources(), ray().available_resources()))
        each, waiting = _cpus_of_each(), sum(not out.begun for out in self._out.values())
        if free >= each or (free == 0 and there == each * len(self._out)):
            # There is a place; or they have taken all that there are, as on this machine.
            return None
        return (
            f"{waiting} of {len(self._out)} workers wait for a place: each takes {each:g} CPU, and the cluster has {there:g}, "
            f"of which {free:g} are free; add machines, or ask for fewer workers"
        )


def _lost() -> StorageError:
    return StorageError(
        "the connection to the Ray cluster is lost. What was finished is on disk; the same command goes on with it"
    )


def _cpus_of_each() -> float:
    """CPUs that a task takes, as Ray counts them.

    Raises:
        ConfigurationError: The environment says something else.
    """
    return number_of("REFINESYNTH_WORKER_CPUS", 1.0)


def _pickled(settings: BlockSettings) -> bytes:
    try:
        return ray().cloudpickle.dumps(settings)
    except Exception as error:
        raise ConfigurationError(
            f"the settings cannot be given to another process ({error}): what rules and completion functions hold must be such that it "
            f"can be pickled. Or ask for one worker, in this process"
        ) from error


def _in_a_line(error: Exception) -> str:
    """Ray's words for a death, without the addresses."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:500]


def share_of_limits(backend: "Backend", workers: int) -> "Backend":
    """A backend with one worker's part of its limits; together they are what was asked for.

    Raises:
        ConfigurationError: There are more workers than requests that may be made at once.
    """
    if workers == 1:
        return backend
    if len(backend.each) > 1:
        return Mixed.of([share_of_limits(one, workers) for one in backend.each])
    most = backend.max_in_flight
    if most is not None and most < workers:
        raise ConfigurationError(
            f"{backend.label} may be asked {most} requests at once, and {workers} workers would each ask "
            f"at least one: lower workers, or raise max_in_flight"
        )
    return backend.model_copy(
        update={
            "requests_per_minute": _part(backend.requests_per_minute, workers),
            "tokens_per_minute": _part(backend.tokens_per_minute, workers),
            "max_in_flight": None if most is None else most // workers,
        }
    )


def _part(limit: float | None, workers: int) -> float | None:
    return None if limit is None else limit / workers


@asynccontextmanager
async def open_blocks(
    settings: BlockSettings,
    *,
    folder: RunWriter,
    tracker: BudgetTracker,
    lacks: Lacks,
    on_change: Callable[[], None],
    workers: int,
    cluster: str | None = None,
) -> AsyncGenerator[Blocks, None]:
    """Blocks that are played on `cluster`, or on this machine, `workers` at once. They end with the block of the `with`
    statement, even in the middle of an episode.

    Raises:
        ConfigurationError: There is no Ray, no such cluster, or the settings cannot be given to other processes.
    """
    async with connected(cluster, workers=workers), beside() as tasks:
        blocks = Blocks(settings, folder=folder, tracker=tracker, lacks=lacks, on_change=on_change, workers=workers)
        tasks.start_soon(blocks.run)
        yield blocks
