"""Ray cluster of the workers: an existing one, or a temporary one on this machine."""

import asyncio
import os
import secrets
import shutil
import sys
import tempfile
import warnings
from collections.abc import AsyncGenerator
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import anyio
import anyio.to_thread

from refinesynth.errors import ConfigurationError
from refinesynth.lazy_imports import require

_ENVIRONMENT = {
    # By default Ray gives its workers a lower priority than all other processes.
    "RAY_worker_niceness": "0",
    # No telemetry.
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray keeps 3 kB of each of the last 100,000 calls for a dashboard that is not started.
    "RAY_task_events_report_interval_ms": "0",
    # After a lost connection, Ray would start another cluster on this machine.
    "RAY_ENABLE_AUTO_CONNECT": "0",
    # The driver would print the output of other processes over the progress display.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
_OBJECT_STORE_BYTES = 80 * 2**20
"""Ray's minimum, in bytes; messages of a run are too small for the object store."""

_CONNECTION_LOCK = Lock()
"""Lock: a process has at most one connection to Ray."""


def ray() -> Any:
    """Import Ray with reduced output. Raises ConfigurationError: Ray is not installed."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    return require("ray", "cluster")


async def task_result(task: Any) -> Any:
    """Return the result of a Ray task, or raise its error.

    An `await` of the call itself would pass a cancellation to Ray's client, which fails then and prints a traceback.
    """
    future, done, loop = task.future(), anyio.Event(), asyncio.get_running_loop()

    def notify(_: object) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(done.set)

    future.add_done_callback(notify)
    await done.wait()
    return future.result()


@asynccontextmanager
async def connected(cluster: str | None, *, workers: int) -> AsyncGenerator[None, None]:
    """Connect to the cluster at this address, unless the process is connected; None starts a cluster on this machine.

    A started cluster has a CPU for each worker and ends with the context.
    """
    if "ray" in sys.modules and ray().is_initialized():
        yield
        return
    session = Session(cluster, workers=workers)
    try:
        await anyio.to_thread.run_sync(session.ready.result, abandon_on_cancel=True)
        yield
    finally:
        session.closing.set()
        if session.ready.done():
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(session.thread.join)


class Session:
    """Connection to Ray in a separate thread.

    Ray's processes on this machine end with the thread that started them, also if this process is killed. In the main
    thread, Ray would set signal handlers.
    """

    def __init__(self, cluster: str | None, *, workers: int) -> None:
        """Begin to connect; the future `ready` completes with the connection, the event `closing` ends it."""
        if cluster is None and "ray" not in sys.modules:
            # Ray's processes listen on all interfaces, whatever their address: the token restricts access. Ray reads
            # the variables at its import; if Ray was imported before, its token is in ~/.ray.
            os.environ.setdefault("RAY_AUTH_MODE", "token")
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        self.ready = Future[None]()
        self.closing = Event()
        self.thread = Thread(target=self._run, args=(cluster, workers), name="refinesynth-ray", daemon=True)
        self.thread.start()

    def _run(self, cluster: str | None, workers: int) -> None:
        with _CONNECTION_LOCK:
            folder = Path(tempfile.mkdtemp(prefix="refinesynth-ray-"))
            try:
                if cluster is None:
                    _start(workers, folder)
                else:
                    _connect(cluster)
            except BaseException as error:  # noqa: BLE001 - raised to who waits for it
                self.ready.set_exception(error)
            else:
                self.ready.set_result(None)
                self.closing.wait()
            finally:
                ray().shutdown()
                shutil.rmtree(folder, ignore_errors=True)


def _start(workers: int, folder: Path) -> None:
    options = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    local_options = {"_node_ip_address": "127.0.0.1", "_temp_dir": str(folder)}
    try:
        ray().init("local", num_cpus=workers, object_store_memory=_OBJECT_STORE_BYTES, **options, **local_options)
    except Exception as error:
        raise ConfigurationError(
            f"Ray cannot be started on this machine ({first_line(error)}); try again when it has less to do, or play in one "
            f"process, without workers"
        ) from error


def first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _connect(cluster: str) -> None:
    warnings.filterwarnings("ignore", "Ray Client connection timed out", UserWarning)  # the error says it
    try:
        ray().init(cluster, log_to_driver=False, logging_level="ERROR")
    except Exception as error:
        raise ConfigurationError(
            f"cluster is {cluster!r}, and no Ray cluster can be joined there ({first_line(error)}). Expected auto, "
            f"HOST:6379 from a machine of the cluster, or ray://HOST:10001 from elsewhere, with the same versions of Ray "
            f"and Python; for a cluster with token authentication, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
        ) from error
