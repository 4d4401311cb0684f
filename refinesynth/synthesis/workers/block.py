"""A block of personas: a Ray task that plays it, wherever Ray starts that, and reports to the driver.

Each completion is committed to a journal in the block's own folder before it is used, and reported a moment later. The
folder is below the run's on the machine that has the run, so nothing that was paid for is lost with a task that is
killed there; elsewhere it is a temporary one, and what was not reported is lost with the task.
"""

import logging
import os
import pickle
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from traceback import format_exception_only

import anyio
import anyio.to_thread

from refinesynth._version import __version__
from refinesynth.backends import Backend, Completion, Role
from refinesynth.client import close_models, open_models
from refinesynth.client.beside import beside
from refinesynth.client.budget.budget import Budget
from refinesynth.client.budget.tracker import BudgetTracker
from refinesynth.client.lacks import Lacks
from refinesynth.client.several import limiters_in
from refinesynth.client.tracing import Tracing, traced
from refinesynth.client.watch import Calls, watch
from refinesynth.episode import EpisodeSettings, episode_id, play_episode
from refinesynth.errors import BudgetSpent, ConfigurationError, StorageError
from refinesynth.files.output_folder import FolderLock
from refinesynth.journal import Journal, Paid
from refinesynth.run import EpisodeMemory, Finished
from refinesynth.run.blocks import blocks_of
from refinesynth.run.folder import JOURNAL
from refinesynth.run.logs import LOGGER, facts_of
from refinesynth.synthesis.collector import calm_collector
from refinesynth.synthesis.progress import How, room_of, troubles_of
from refinesynth.synthesis.room import Room
from refinesynth.synthesis.workers.mailbox import Mailbox, Report
from refinesynth.trajectory import Persona


@dataclass(frozen=True, kw_only=True)
class BlockSettings:
    """Settings that all blocks of a run share; can be pickled if its rules and its completion function can."""

    settings: EpisodeSettings
    backends: Mapping[Role, Backend]
    """Each with one worker's part of its limits."""
    fallback: Backend | None
    call: Completion | None
    most: int
    """Most episodes of a block in flight."""
    fewest: int
    """Fewest: as many as `most`, unless the servers decide."""
    folder: Path
    """The run's folder, absolute."""
    host: str
    """The machine that has it."""
    report_every: float
    """Seconds between two reports."""
    log_level: int = logging.INFO
    """Least severity of what is reported."""
    tracing: Tracing | None = None

    @property
    def here(self) -> bool:
        """True on the machine that has the run's folder."""
        return socket.gethostname() == self.host and self.folder.is_dir()


@dataclass(frozen=True, slots=True)
class ToPlay:
    """An episode of a block."""

    index: int
    persona: Persona
    known: tuple[Paid, ...] = ()
    """Completions that it has paid for before."""
    ended: bool = False
    """True if it had ended, and is made again; as `EpisodeMemory.ended`."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """Work of one task."""

    number: int
    """Of the block, in this process of the run."""
    episodes: tuple[ToPlay, ...]
    budget: Budget | None
    """A share of the run's; None without a limit."""
    lacks: bytes
    """Features that servers are known not to have, from `Lacks.to_json`."""


def play_block(
    settings: bytes,
    block: bytes,
    mailbox: Mailbox,
    *,
    version: str,
    environment: Mapping[str, str],
    paths: Sequence[str],
) -> Exception | None:
    """Play a block, and put a `Report` into `mailbox` before, now and then, and at the end; it says if the block is to end.

    Of the driver's `environment` it takes over what its own has not, such as keys, and so with the `paths` on which
    modules are looked for.

    Returns:
        The error because of which no episode can go on, if there is one. Episodes that are not reported as finished
        could not be paid from the block's share of the budget.
    """
    for name, value in environment.items():
        os.environ.setdefault(name, value)
    sys.path += [path for path in paths if path not in sys.path]
    try:
        playing = _Playing(*_read(settings, block, version=version), mailbox)
        anyio.run(playing.run)
    except Exception as error:  # noqa: BLE001 - raised by the driver
        return _portable(error)
    return None


def _read(settings: bytes, block: bytes, *, version: str) -> tuple[BlockSettings, Block]:
    if version != __version__:
        raise ConfigurationError(
            f"a worker has refinesynth {__version__}, and the run {version}: install the same one on all machines of the cluster"
        )
    try:
        return pickle.loads(settings), pickle.loads(block)  # noqa: S301 - of the same program and user
    except Exception as error:
        raise ConfigurationError(
            f"the settings cannot be read by a worker ({''.join(format_exception_only(error)).strip()}): the modules with your "
            f"rules and completion functions must be installed on all machines of the cluster"
        ) from error


def _portable(error: Exception) -> Exception:
    """An error that arrives: one with arguments of its own may be written, and not be read again."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - its class may raise anything
        return RuntimeError("".join(format_exception_only(error)).strip())
    return error


class _Playing(logging.Handler):
    """A block that is being played; as a handler, it reports what the package logs."""

    def __init__(self, settings: BlockSettings, block: Block, mailbox: Mailbox) -> None:
        super().__init__()
        self._settings = settings
        self._block = block
        self._mailbox = mailbox
        self._calls = Calls()
        self._lacks = Lacks()
        self._models = open_models(
            settings.backends, call=settings.call, fallback=settings.fallback, calls=self._calls, lacks=self._lacks
        )
        self._tracker = BudgetTracker(block.budget)
        self._folder = ""
        self._report = Report()
        self._in_flight = 0
        self._ended = anyio.Event()
        self._out_of_money = False
        self._failure: Exception | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self._report.said.append((record.levelno, facts_of(record)))

    async def run(self) -> None:
        """Play it.

        Raises:
            RefinesynthError: No episode can go on.
        """
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
            journal = until.enter_context(closing(Journal.open(self._own_folder(until) / JOURNAL)))
            await self._lacks.learn(self._block.lacks)
            try:
                async with beside() as tasks:
                    tasks.start_soon(watch, self._calls)
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
        """A new folder, locked, which the driver removes, or on another machine the end of the block.

        Raises:
            StorageError: There can be none.
        """
        try:
            if not self._settings.here:
                return Path(until.enter_context(tempfile.TemporaryDirectory(prefix="refinesynth-")))
            parent = blocks_of(self._settings.folder)
            parent.mkdir(exist_ok=True)
            new = Path(tempfile.mkdtemp(prefix="new-", dir=parent))
            until.enter_context(FolderLock(new))
            # Under this name the driver looks for blocks that died; from the beginning it is locked.
            self._folder = new.name.replace("new-", "block-")
            return new.rename(parent / self._folder)
        except OSError as error:
            raise StorageError(f"{socket.gethostname()} cannot keep the journal of a block: {error}") from error

    async def _play_all(self, journal: Journal) -> None:
        room = Room(self._settings.most, self._settings.fewest, lambda: limiters_in(self._models.values()))
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

        def report(paid: Sequence[Paid]) -> None:
            self._report.paid += paid

        memory = EpisodeMemory(journal, name, begun=False, known=episode.known, had_ended=episode.ended, on_kept=report)
        with self._tracker.episode(episode.index) as paying:
            outcome = await play_episode(
                episode.persona,
                index=episode.index,
                settings=settings,
                models=self._models,
                memory=memory,
                tracker=paying,
            )
        self._report.finished.append(Finished.of(outcome))

    async def _send_often(self, playing: anyio.CancelScope) -> None:
        while True:
            await anyio.sleep(self._settings.report_every)
            if not await self._send():
                playing.cancel()

    async def _send(self) -> bool:
        """Report; False if the block is to end."""
        limiters = limiters_in(self._models.values())
        report, self._report = self._report, Report()
        report.block, report.folder, report.lacks = self._block.number, self._folder, self._lacks.to_json()
        report.how = How(self._calls.retried, tuple(troubles_of(limiters)), room_of(limiters), self._in_flight)
        # Not to be broken off: what was paid is in no other report.
        with anyio.CancelScope(shield=True):
            return await anyio.to_thread.run_sync(self._mailbox.put, report)
        raise AssertionError("a shield was broken off")
