"""Ray task that plays a block of personas and reports to the driver.

Each completion is committed to a journal in the block's own folder before its use, and reported soon after. On the
machine of the run, that folder is inside the run folder and survives a killed task. On other machines it is a temporary
folder, and completions that were not reported are lost with the task.
"""

import logging
import os
import pickle
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from traceback import format_exception_only
from typing import Any

import anyio
import anyio.to_thread

from refinesynth._version import __version__
from refinesynth.async_contexts import background_tasks
from refinesynth.backends import Backend, Completion, Role
from refinesynth.client import close_models, open_models
from refinesynth.client.budget.budget import Budget
from refinesynth.client.budget.tracker import BudgetTracker
from refinesynth.client.failure_policy import RequestCounts
from refinesynth.client.request_arguments import UnsupportedFeatures
from refinesynth.client.routing import limiters_in
from refinesynth.episode import EpisodeSettings, episode_id, play_episode
from refinesynth.errors import BudgetSpent, ConfigurationError, StorageError
from refinesynth.files.output_folder import FolderLock
from refinesynth.journal import Journal, PaidCompletion
from refinesynth.run import CompletedEpisode, EpisodeMemory
from refinesynth.run.event_log import LOGGER, facts_of
from refinesynth.run.resume import blocks_of
from refinesynth.run.run_folder import JOURNAL
from refinesynth.synthesis.concurrency import EpisodeLimit, tune_gc
from refinesynth.synthesis.progress import BackendsState, capacity_of, troubles_of
from refinesynth.synthesis.workers.cluster import ray
from refinesynth.trajectory import Persona

_MAX_RETRIES = 5
"""Maximum number of retries of an actor's call after a broken connection."""


@dataclass(kw_only=True)
class Report:
    """State of a block, and its completions, episodes and events since its last report."""

    block: int = 0
    number: int = 0
    """Number of the report within its block, from 1."""
    folder: str = ""
    """Name of the block's folder, which the driver removes; empty for a folder outside the run folder."""
    state: BackendsState = field(default_factory=BackendsState)
    unsupported: bytes = b"{}"
    """Features that servers lack, in the form of `UnsupportedFeatures.to_json`."""
    paid: list[PaidCompletion] = field(default_factory=list[PaidCompletion])
    finished: list[CompletedEpisode] = field(default_factory=list[CompletedEpisode])
    logged: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list[tuple[int, Mapping[str, Any]]])
    """Level and facts of each logged event."""


class _Actor:
    """Actor of the mailbox. Its calls are idempotent: Ray repeats a call without a received answer."""

    def __init__(self) -> None:
        self._reports: list[Report] = []
        self._taken_count = 0
        self._last_numbers: dict[int, int] = {}
        """Number of the last report of each block."""
        self._ended = set[int]()

    def put(self, report: Report) -> bool:
        continues, last = report.block not in self._ended, self._last_numbers.get(report.block, 0)
        if (continues or last) and report.number > last:
            self._last_numbers[report.block] = report.number
            self._reports.append(report)
        return continues

    def take(self, after: int) -> list[Report]:
        self._reports, self._taken_count = self._reports[after - self._taken_count :], after
        return self._reports

    def end(self, block: int) -> bool:
        self._ended.add(block)
        return block in self._last_numbers


class Mailbox:
    """Picklable handle of the actor for the driver and its blocks. Calls block, and raise Ray's errors."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._taken_count = 0

    @classmethod
    def open(cls) -> "Mailbox":
        """Start the actor, preferably on this process's node, where it is lost only with the run."""
        node = ray().get_runtime_context().get_node_id()
        strategy = ray().util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=True)
        options: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": strategy, "max_task_retries": _MAX_RETRIES}
        return cls(ray().remote(**options)(_Actor).remote())

    def put(self, report: Report) -> bool:
        """Deliver a report; return False if its block must end."""
        return ray().get(self._actor.put.remote(report))

    def take(self) -> list[Report]:
        """Return the reports since the last call, in order."""
        reports: list[Report] = ray().get(self._actor.take.remote(self._taken_count))
        self._taken_count += len(reports)
        return reports

    def end(self, block: int) -> bool:
        """Tell a block to end; return False if it has sent no report, and thus will make no request."""
        return ray().get(self._actor.end.remote(block))

    def close(self) -> None:
        ray().kill(self._actor)


@dataclass(frozen=True, kw_only=True)
class BlockSettings:
    """Settings shared by all blocks of a run; picklable if the rules and the completion function are."""

    settings: EpisodeSettings
    backends: Mapping[Role, Backend]
    """Backend by role, each with one worker's part of its limits."""
    fallback: Backend | None
    call: Completion | None
    max_in_flight: int
    min_in_flight: int
    """Lowest limit of the episodes in flight; equal to `max_in_flight` unless the servers decide."""
    folder: Path
    host: str
    """Name of the machine with the run's folder."""
    report_every: float
    """Seconds between two reports."""
    log_level: int = logging.INFO


@dataclass(frozen=True, slots=True)
class Episode:
    index: int
    persona: Persona
    known: tuple[PaidCompletion, ...] = ()
    """Earlier paid completions of the episode."""
    had_finished: bool = False
    """As `EpisodeMemory.had_finished`."""


@dataclass(frozen=True, kw_only=True)
class Block:
    number: int
    episodes: tuple[Episode, ...]
    budget: Budget | None
    """Share of the run's budget; None without a limit."""
    unsupported: bytes = b"{}"


def play_block(
    settings: bytes,
    block: bytes,
    mailbox: Mailbox,
    *,
    version: str,
    environment: Mapping[str, str],
    paths: Sequence[str],
) -> Exception | None:
    """Play a block; put a `Report` into `mailbox` at the start, regularly, and at the end.

    Sets variables of the driver's `environment` that are missing here, such as keys, and adds its module `paths`.

    Returns:
        The error that stops all episodes, if any. Without an error, unfinished episodes exceeded the block's share of the
        budget, or the driver ended the block.
    """
    if version != __version__:
        return ConfigurationError(
            f"a worker has refinesynth {__version__}, and the run {version}: install the same one on all machines of the cluster"
        )
    for name, value in environment.items():
        os.environ.setdefault(name, value)
    sys.path += [path for path in paths if path not in sys.path]
    try:
        arguments = pickle.loads(settings), pickle.loads(block)  # noqa: S301 - of the same user
    except Exception as error:  # noqa: BLE001 - another package's import may raise anything
        return ConfigurationError(
            f"the settings cannot be read by a worker ({''.join(format_exception_only(error)).strip()}): the modules with your "
            "rules and completion functions must be installed on all machines of the cluster"
        )
    try:
        anyio.run(_BlockPlayer(*arguments, mailbox).run)
    except Exception as error:  # noqa: BLE001 - raised by the driver
        return _picklable_error(error)
    return None


def _picklable_error(error: Exception) -> Exception:
    """Return an error that can be unpickled, unlike many errors with their own constructor arguments."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - its class may raise anything
        return RuntimeError("".join(format_exception_only(error)).strip())
    return error


class _BlockPlayer(logging.Handler):
    """Player of a block; as a log handler, it adds the package's log records to the reports."""

    def __init__(self, settings: BlockSettings, block: Block, mailbox: Mailbox) -> None:
        super().__init__()
        self._settings = settings
        self._block = block
        self._mailbox = mailbox
        self._counts = RequestCounts()
        self._lacking = UnsupportedFeatures()
        self._models = open_models(
            settings.backends, call=settings.call, fallback=settings.fallback, calls=self._counts, lacks=self._lacking
        )
        self._tracker = BudgetTracker(block.budget)
        self._folder = ""
        self._report = Report(number=1)
        self._in_flight = 0
        self._ended = anyio.Event()
        self._budget_spent = False
        self._failure: Exception | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self._report.logged.append((record.levelno, facts_of(record)))

    async def run(self) -> None:
        if not await self._send_report():
            await close_models(self._models.values())
            return
        logger = logging.getLogger(LOGGER)
        tune_gc()
        with ExitStack() as stack:
            stack.callback(logger.removeHandler, self)
            stack.callback(logger.setLevel, logger.level)
            logger.addHandler(self)
            logger.setLevel(self._settings.log_level)
            journal = stack.enter_context(closing(Journal(self._make_folder(stack) / JOURNAL)))
            await self._lacking.merge(self._block.unsupported)
            try:
                async with background_tasks() as tasks:
                    with anyio.CancelScope() as scope:
                        tasks.start_soon(self._send_regularly, scope)
                        await self._play_all(journal)
            finally:
                with anyio.CancelScope(shield=True):
                    try:
                        await self._send_report()
                    finally:
                        await close_models(self._models.values())
        if self._failure is not None:
            raise self._failure

    def _make_folder(self, stack: ExitStack) -> Path:
        """Make and lock the block's folder. The driver removes it; on another machine, it is removed with `stack`."""
        try:
            if socket.gethostname() != self._settings.host or not self._settings.folder.is_dir():
                return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="refinesynth-")))
            parent = blocks_of(self._settings.folder)
            parent.mkdir(exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix="new-", dir=parent))
            stack.enter_context(FolderLock(folder))
            # The driver searches for dead blocks by this name, so the lock comes before the rename.
            self._folder = folder.name.replace("new-", "block-")
            return folder.rename(parent / self._folder)
        except OSError as error:
            raise StorageError(f"{socket.gethostname()} cannot keep the journal of a block: {error}") from error

    async def _play_all(self, journal: Journal) -> None:
        maximum, minimum = self._settings.max_in_flight, self._settings.min_in_flight
        limit = EpisodeLimit(maximum, minimum, lambda: limiters_in(self._models.values()))
        async with anyio.create_task_group() as tasks:

            async def play(episode: Episode) -> None:
                try:
                    await self._play(episode, journal)
                except BudgetSpent:
                    self._budget_spent = True
                except Exception as error:  # noqa: BLE001 - raised by `run`
                    self._failure = self._failure or error
                    tasks.cancel_scope.cancel()
                self._in_flight -= 1
                self._ended.set()

            for episode in self._block.episodes:
                while self._in_flight >= limit.current():
                    self._ended = anyio.Event()
                    with anyio.move_on_after(limit.recheck_s):
                        await self._ended.wait()
                if self._budget_spent:
                    break
                self._in_flight += 1
                tasks.start_soon(play, episode)

    async def _play(self, episode: Episode, journal: Journal) -> None:
        settings = self._settings.settings
        name = episode_id(episode.persona, index=episode.index, settings=settings)

        def add_to_report(paid: Sequence[PaidCompletion]) -> None:
            self._report.paid += paid

        memory = EpisodeMemory(
            journal, name, begun=False, known=episode.known, known_finished=episode.had_finished, on_kept=add_to_report
        )
        with self._tracker.episode(episode.index) as tracker:
            outcome = await play_episode(
                episode.persona,
                index=episode.index,
                settings=settings,
                models=self._models,
                memory=memory,
                tracker=tracker,
            )
        self._report.finished.append(CompletedEpisode.of(outcome))

    async def _send_regularly(self, scope: anyio.CancelScope) -> None:
        while True:
            await anyio.sleep(self._settings.report_every)
            if not await self._send_report():
                scope.cancel()

    async def _send_report(self) -> bool:
        """Send the report; return False if the block must end."""
        limiters = limiters_in(self._models.values())
        report, self._report = self._report, Report(number=self._report.number + 1)
        report.block, report.folder, report.unsupported = self._block.number, self._folder, self._lacking.to_json()
        troubles, capacity = tuple(troubles_of(limiters)), capacity_of(limiters)
        report.state = BackendsState(self._counts.retried, troubles, capacity, self._in_flight)
        # Shielded: these completions are in no other report.
        with anyio.CancelScope(shield=True):
            return await anyio.to_thread.run_sync(self._mailbox.put, report)
        raise AssertionError("a shield was broken off")
