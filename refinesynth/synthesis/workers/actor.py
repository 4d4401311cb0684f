"""A worker as an actor: what runs in its process, wherever Ray starts that."""

import logging
import math
import os
import pickle
import sys
from collections.abc import Iterable, Mapping, Sequence
from traceback import format_exception_only

import anyio

from refinesynth._version import __version__
from refinesynth.client.account import CostTracker
from refinesynth.errors import ConfigurationError
from refinesynth.run import Finished, JournalSums
from refinesynth.run.logs import LOGGER, facts_of
from refinesynth.synthesis.collector import calm_collector
from refinesynth.synthesis.progress import How
from refinesynth.synthesis.workers.cluster import ray
from refinesynth.synthesis.workers.messages import Ended, Ready, Reserved, Said, Sums
from refinesynth.synthesis.workers.outbox import Outbox
from refinesynth.synthesis.workers.paying import RemoteTracker
from refinesynth.synthesis.workers.worker import Assignment, Given, run_worker

HEARTBEAT = 1.0
"""Seconds after which an actor answers also where it has nothing to say."""


class Worker:
    """Driven by calls: one that lasts as long as the worker, and short ones for what both sides have to say.

    Few calls with many messages each, and not one for each message: a call costs about a millisecond of both sides.
    """

    def __init__(self, version: str, gather: float) -> None:
        self._version = version
        self._driver = _Driver(Outbox(gather=gather))

    async def work(
        self, assignment: bytes, environment: Mapping[str, str], paths: Sequence[str], first: int
    ) -> tuple[Exception | None, JournalSums | None]:
        """Do what is assigned until it is let go; then, what is in its journal, where that is told. Or an error: why that
        cannot be, and no other worker could do better.

        Of the driver's `environment` it takes over what its own has not, such as keys, and so with the `paths` on which
        modules are looked for.
        """
        for name, value in environment.items():
            os.environ.setdefault(name, value)
        sys.path += [path for path in paths if path not in sys.path]
        logger, handler = logging.getLogger(LOGGER), _ToDriver(self._driver.outbox)
        logger.addHandler(handler)
        try:
            assigned = _read(assignment, version=self._version)
            logger.setLevel(assigned.log_level)
            calm_collector()
            node: str = ray().get_runtime_context().get_node_id()
            await run_worker(assigned, self._driver.begin(limited=assigned.limited, node=node), first=first)
        except Exception as error:  # noqa: BLE001 - raised by the driver
            return portable(error), self._driver.told
        finally:
            logger.removeHandler(handler)
        return None, self._driver.told

    async def messages(self) -> Sequence[object]:
        """What there is to say since the last time, once something is urgent, or soon."""
        return await self._driver.outbox.fetch(within=HEARTBEAT)

    async def take(self, messages: Sequence[object]) -> None:
        """What the driver has to say: an episode, an answer about money, None for the end."""
        self._driver.take(messages)


def _read(assignment: bytes, *, version: str) -> Assignment:
    if version != __version__:
        raise ConfigurationError(
            f"a worker has refinesynth {__version__}, and the run {version}: install the same one on all machines of the cluster"
        )
    try:
        return pickle.loads(assignment)  # noqa: S301 - of the same program and user
    except Exception as error:
        raise ConfigurationError(
            f"the settings cannot be read by a worker ({''.join(format_exception_only(error)).strip()}): the modules with your "
            f"rules and completion functions must be installed on all machines of the cluster"
        ) from error


class _ToDriver(logging.Handler):
    """Hands what is logged here on to the process in which the run is."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__()
        self._outbox = outbox

    def emit(self, record: logging.LogRecord) -> None:
        """Send one message."""
        self._outbox.post(Said(record.levelno, facts_of(record)), urgent=record.levelno >= logging.WARNING)


class _Driver:
    """The commons of workers that are actors: their driver has them."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self._give, self._given = anyio.create_memory_object_stream[Given | None](math.inf)
        self.told: JournalSums | None = None
        """What was said last of this worker's journal."""
        self._node = ""
        self._tracker = RemoteTracker(outbox, limited=False)

    def begin(self, *, limited: bool, node: str) -> "_Driver":
        """Now that it is known where and for whom."""
        self._node, self._tracker = node, RemoteTracker(self.outbox, limited=limited)
        return self

    def take(self, messages: Sequence[object]) -> None:
        """What the driver says."""
        for message in messages:
            if isinstance(message, Reserved):
                self._tracker.answered(message)
            elif message is None or isinstance(message, Given):
                self._give.send_nowait(message)

    def ready(self, begun: Iterable[int], read: Iterable[str]) -> None:
        """See `Commons.ready`."""
        self.outbox.post(Ready(self._node, frozenset(begun), frozenset(read)))

    async def next(self) -> Given | None:
        """See `Commons.next`."""
        return await self._given.receive()

    def tracker(self, index: int) -> CostTracker:
        """See `Commons.tracker`."""
        return self._tracker.episode(index)

    def how(self, how: How) -> None:
        """See `Commons.how`."""
        self.outbox.post(how, urgent=False)

    def sums(self, sums: JournalSums) -> None:
        """See `Commons.sums`."""
        self.told = sums
        self.outbox.post(Sums(sums), urgent=False)

    def ended(self, index: int, result: Finished | Exception) -> None:
        """See `Commons.ended`."""
        self.outbox.post(Ended(index, result if isinstance(result, Finished) else portable(result)))


def portable(error: Exception) -> Exception:
    """An error that arrives: one with arguments of its own may be written, and not be read again."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - its class may raise anything
        return RuntimeError("".join(format_exception_only(error)).strip())
    return error
