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
from refinesynth.backends import Backend, Completion, Role
from refinesynth.client import close_models, open_models
from refinesynth.client.background_tasks import background_tasks
from refinesynth.client.budget.budget import Budget
from refinesynth.client.budget.tracker import BudgetTracker
from refinesynth.client.failure_policy import RequestCounts
from refinesynth.client.routing import limiters_in
from refinesynth.client.tracing import Tracing, traced
from refinesynth.client.unsupported_features import UnsupportedFeatures
from refinesynth.episode import EpisodeSettings, episode_id, play_episode
from refinesynth.errors import BudgetSpent, ConfigurationError, StorageError
from refinesynth.files.output_folder import FolderLock
from refinesynth.journal import Journal, PaidCompletion
from refinesynth.run import CompletedEpisode, EpisodeMemory
from refinesynth.run.event_log import LOGGER, facts_of
from refinesynth.run.resume import blocks_of
from refinesynth.run.run_folder import JOURNAL
from refinesynth.synthesis.concurrency import EpisodeLimit
from refinesynth.synthesis.gc_tuning import calm_collector
from refinesynth.synthesis.progress import BackendsState, room_of, troubles_of
from refinesynth.synthesis.workers.cluster import ray
from refinesynth.trajectory import Persona

_TRIES = 5
"""Maximum number of retries of an actor's call after a broken connection."""


@dataclass(kw_only=True)
class Report:
    """State of a block, and its completions, episodes and events since its last report."""

    block: int = 0
    number: int = 0
    """Number of the report within its block, from 1."""
    folder: str = ""
    """Name of the block's folder, which the driver removes; empty for a folder outside the run folder."""
    how: BackendsState = field(default_factory=BackendsState)
    lacks: bytes = b"{}"
    """Features that servers lack, in the form of `UnsupportedFeatures.to_json`."""
    paid: list[PaidCompletion] = field(default_factory=list[PaidCompletion])
    finished: list[CompletedEpisode] = field(default_factory=list[CompletedEpisode])
    logged: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list[tuple[int, Mapping[str, Any]]])
    """Level and facts of each logged event."""


class _Actor:
    """Actor of the mailbox. Its calls are idempotent: Ray repeats a call without a received answer."""

    def __init__(self) -> None:
        self._reports: list[Report] = []
        self._taken = 0
        self._begun: dict[int, int] = {}
        """Number of the last report of each block."""
        self._ended = set[int]()

    def put(self, report: Report) -> bool:
        goes_on = report.block not in self._ended
        if (goes_on or report.block in self._begun) and report.number > self._begun.get(report.block, 0):
            self._begun[report.block] = report.number
            self._reports.append(report)
        return goes_on

    def take(self, after: int) -> list[Report]:
        self._reports, self._taken = self._reports[after - self._taken :], after
        return self._reports

    def end(self, block: int) -> bool:
        self._ended.add(block)
        return block in self._begun


class Mailbox:
    """Picklable handle of the actor for the driver and its blocks. Calls block, and raise Ray's errors."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._taken = 0

    @classmethod
    def open(cls) -> "Mailbox":
        """Start the actor, preferably on this process's node, where it is lost only with the run."""
        node = ray().get_runtime_context().get_node_id()
        strategy = ray().util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=True)
        how: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": strategy, "max_task_retries": _TRIES}
        return cls(ray().remote(**how)(_Actor).remote())

    def put(self, report: Report) -> bool:
        """Deliver a report; return False if its block must end."""
        return ray().get(self._actor.put.remote(report))

    def take(self) -> list[Report]:
        """Return the reports since the last call, in order."""
        reports: list[Report] = ray().get(self._actor.take.remote(self._taken))
        self._taken += len(reports)
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
    most: int
    fewest: int
    """Lowest limit of the episodes in flight; equal to `most` unless the servers decide."""
    folder: Path
    host: str
    """Name of the machine with the run's folder."""
    report_every: float
    """Seconds between two reports."""
    log_level: int = logging.INFO
    tracing: Tracing | None = None


@dataclass(frozen=True, slots=True)
class ToPlay:
    """An episode of a block."""

    index: int
    persona: Persona
    known: tuple[PaidCompletion, ...] = ()
    """Earlier paid completions of the episode."""
    had_finished: bool = False
    """As `EpisodeMemory.had_finished`."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """Work of one task."""

    number: int
    episodes: tuple[ToPlay, ...]
    budget: Budget | None
    """Share of the run's budget; None without a limit."""
    lacks: bytes = b"{}"
    """Known features that servers lack."""


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
        read = pickle.loads(settings), pickle.loads(block)  # noqa: S301 - of the same user
    except Exception as error:  # noqa: BLE001 - another package's import may raise anything
        return ConfigurationError(
            f"the settings cannot be read by a worker ({''.join(format_exception_only(error)).strip()}): the modules with your "
            "rules and completion functions must be installed on all machines of the cluster"
        )
    try:
        anyio.run(_Playing(*read, mailbox).run)
    except Exception as error:  # noqa: BLE001 - raised by the driver
        return _portable(error)
    return None


def _portable(error: Exception) -> Exception:
    """Return an error that can be unpickled, unlike many errors with their own constructor arguments."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - its class may raise anything
        return RuntimeError("".join(format_exception_only(error)).strip())
    return error


class _Playing(logging.Handler):
    """Player of a block; as a log handler, it adds the package's log records to the reports."""

    def __init__(self, settings: BlockSettings, block: Block, mailbox: Mailbox) -> None:
        super().__init__()
        self._settings = settings
        self._block = block
        self._mailbox = mailbox
        self._calls = RequestCounts()
        self._lacks = UnsupportedFeatures()
        self._models = open_models(
            settings.backends, call=settings.call, fallback=settings.fallback, calls=self._calls, lacks=self._lacks
        )
        self._tracker = BudgetTracker(block.budget)
        self._folder = ""
        self._report = Report(number=1)
        self._in_flight = 0
        self._ended = anyio.Event()
        self._out_of_money = False
        self._failure: Exception | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self._report.logged.append((record.levelno, facts_of(record)))

    async def run(self) -> None:
        if not await self._send():
            await close_models(self._models.values())
            return
        logger = logging.getLogger(LOGGER)
        calm_collector()
        with ExitStack() as until:
            until.callback(logger.removeHandler, self)
            until.callback(logger.setLevel, logger.level)
            logger.addHandler(self)
            logger.setLevel(self._settings.log_level)
            until.enter_context(traced(self._settings.tracing))
            journal = until.enter_context(closing(Journal(self._own_folder(until) / JOURNAL)))
            await self._lacks.learn(self._block.lacks)
            try:
                async with background_tasks() as tasks:
                    with anyio.CancelScope() as playing:
                        tasks.start_soon(self._send_often, playing)
                        await self._play_all(journal)
            finally:
                with anyio.CancelScope(shield=True):
                    try:
                        await self._send()
                    finally:
                        await close_models(self._models.values())
        if self._failure is not None:
            raise self._failure

    def _own_folder(self, until: ExitStack) -> Path:
        """Make and lock the block's folder. The driver removes it; on another machine, it is removed with `until`."""
        try:
            if socket.gethostname() != self._settings.host or not self._settings.folder.is_dir():
                return Path(until.enter_context(tempfile.TemporaryDirectory(prefix="refinesynth-")))
            parent = blocks_of(self._settings.folder)
            parent.mkdir(exist_ok=True)
            new = Path(tempfile.mkdtemp(prefix="new-", dir=parent))
            until.enter_context(FolderLock(new))
            # The driver searches for dead blocks by this name, so the lock comes before the rename.
            self._folder = new.name.replace("new-", "block-")
            return new.rename(parent / self._folder)
        except OSError as error:
            raise StorageError(f"{socket.gethostname()} cannot keep the journal of a block: {error}") from error

    async def _play_all(self, journal: Journal) -> None:
        room = EpisodeLimit(self._settings.most, self._settings.fewest, lambda: limiters_in(self._models.values()))
        async with anyio.create_task_group() as tasks:

            async def play(episode: ToPlay) -> None:
                try:
                    await self._play(episode, journal)
                except BudgetSpent:
                    self._out_of_money = True
                except Exception as error:  # noqa: BLE001 - raised by `run`
                    self._failure = self._failure or error
                    tasks.cancel_scope.cancel()
                self._in_flight -= 1
                self._ended.set()

            for episode in self._block.episodes:
                while self._in_flight >= room.episodes():
                    self._ended = anyio.Event()
                    with anyio.move_on_after(room.look_again):
                        await self._ended.wait()
                if self._out_of_money:
                    break
                self._in_flight += 1
                tasks.start_soon(play, episode)

    async def _play(self, episode: ToPlay, journal: Journal) -> None:
        settings = self._settings.settings
        name = episode_id(episode.persona, index=episode.index, settings=settings)

        def report(paid: Sequence[PaidCompletion]) -> None:
            self._report.paid += paid

        memory = EpisodeMemory(
            journal, name, begun=False, known=episode.known, had_finished=episode.had_finished, on_kept=report
        )
        with self._tracker.episode(episode.index) as paying:
            outcome = await play_episode(
                episode.persona,
                index=episode.index,
                settings=settings,
                models=self._models,
                memory=memory,
                tracker=paying,
            )
        self._report.finished.append(CompletedEpisode.of(outcome))

    async def _send_often(self, playing: anyio.CancelScope) -> None:
        while True:
            await anyio.sleep(self._settings.report_every)
            if not await self._send():
                playing.cancel()

    async def _send(self) -> bool:
        """Send the report; return False if the block must end."""
        limiters = limiters_in(self._models.values())
        report, self._report = self._report, Report(number=self._report.number + 1)
        report.block, report.folder, report.lacks = self._block.number, self._folder, self._lacks.to_json()
        report.how = BackendsState(
            self._calls.retried, tuple(troubles_of(limiters)), room_of(limiters), self._in_flight
        )
        # Shielded: these completions are in no other report.
        with anyio.CancelScope(shield=True):
            return await anyio.to_thread.run_sync(self._mailbox.put, report)
        raise AssertionError("a shield was broken off")
