"""The cluster on which workers run: one that is there, or one on this machine, as long as a run lasts."""

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
from refinesynth.extras import require

_SURROUNDINGS = {
    # By itself Ray lets everything else on the machine go before its workers.
    "RAY_worker_niceness": "0",
    # Ray reports what it is used for unless told otherwise.
    "RAY_USAGE_STATS_ENABLED": "0",
    # It keeps 3 kB of each of the last 100,000 calls for a dashboard, of which there is none.
    "RAY_task_events_report_interval_ms": "0",
    # After a connection is lost, Ray would start another cluster, here.
    "RAY_ENABLE_AUTO_CONNECT": "0",
    # What the driver would print of other processes, in the middle of the board. What matters of it, the run says.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
_OBJECT_STORE = 80 * 2**20
"""The least that Ray takes, in bytes: messages of this size never go there."""

_TRIES = 3
"""Ray gives up if it has not started within 30 s, which happens where much else goes on."""

_ONE = Lock()
"""Ray is one for a process."""


def ray() -> Any:
    """Ray, which says nothing and reports nothing.

    Raises:
        ConfigurationError: It is not installed.
    """
    for name, value in _SURROUNDINGS.items():
        os.environ.setdefault(name, value)
    return require("ray", "cluster")


async def answered(call: Any) -> Any:
    """The result of a task or of a call to an actor; raises its error.

    To await it would pass a cancellation on to Ray, whose client then fails to answer, and prints a traceback.
    """
    future, done, loop = call.future(), anyio.Event(), asyncio.get_running_loop()

    def tell(_: object) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(done.set)

    future.add_done_callback(tell)
    await done.wait()
    return future.result()


def number_of(name: str, default: float) -> float:
    """A number from the environment.

    Raises:
        ConfigurationError: It is none, or negative.
    """
    given = os.environ.get(name, str(default))
    with suppress(ValueError):
        if (number := float(given)) >= 0:
            return number
    raise ConfigurationError(f"the environment variable {name} is {given!r}; expected a number, 0 or more")


@asynccontextmanager
async def connected(cluster: str | None, *, workers: int) -> AsyncGenerator[None, None]:
    """While the block runs, Ray is connected to a cluster: to that at the address `cluster`, or the one to which this
    process is connected already, or one on this machine with a CPU for each worker, of which nothing is left afterwards.

    Raises:
        ConfigurationError: Ray is not installed, or there is no such cluster.
    """
    if "ray" in sys.modules and ray().is_initialized():
        yield
        return
    session = Session(cluster, workers=workers)
    try:
        await anyio.to_thread.run_sync(session.up.result, abandon_on_cancel=True)
        yield
    finally:
        session.over.set()
        if session.up.done():
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(session.thread.join)


class Session:
    """Ray, connected in a thread of its own: what it starts on this machine ends with the thread that started it, also
    if the process is killed, and it would set the main thread's signal handlers.
    """

    def __init__(self, cluster: str | None, *, workers: int) -> None:
        """Begin; `up` tells when it is connected, and `over` is to be set for the end."""
        if cluster is None and "ray" not in sys.modules:
            # Ray's processes listen on all interfaces, whatever address they are given: nobody else has this token. It
            # is looked at when Ray is imported; where that was before, Ray has one in ~/.ray.
            os.environ.setdefault("RAY_AUTH_MODE", "token")
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        self.up = Future[None]()
        self.over = Event()
        self.thread = Thread(target=self._run, args=(cluster, workers), name="refinesynth-ray", daemon=True)
        self.thread.start()

    def _run(self, cluster: str | None, workers: int) -> None:
        with _ONE:
            folder = Path(tempfile.mkdtemp(prefix="refinesynth-ray-"))
            try:
                if cluster is None:
                    _start(workers, folder)
                else:
                    _join(cluster)
            except BaseException as error:  # noqa: BLE001 - raised to who waits for it
                self.up.set_exception(error)
            else:
                self.up.set_result(None)
                self.over.wait()
            finally:
                ray().shutdown()
                shutil.rmtree(folder, ignore_errors=True)


def _start(workers: int, folder: Path) -> None:
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    here = {"_node_ip_address": "127.0.0.1", "_temp_dir": str(folder)}
    for tries in range(_TRIES, 0, -1):
        try:
            ray().init("local", num_cpus=workers, object_store_memory=_OBJECT_STORE, **quiet, **here)
        except Exception as error:
            ray().shutdown()
            if tries == 1:
                raise ConfigurationError(
                    f"Ray cannot be started on this machine ({_first_line(error)}); try again when it has less to do, or play in "
                    f"one process, without workers"
                ) from error
        else:
            return


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _join(cluster: str) -> None:
    warnings.filterwarnings("ignore", "Ray Client connection timed out", UserWarning)  # the error says it
    try:
        ray().init(cluster, log_to_driver=False, logging_level="ERROR")
    except Exception as error:
        raise ConfigurationError(
            f"cluster is {cluster!r}, and no Ray cluster can be joined there ({_first_line(error)}). Expected auto, "
            f"HOST:6379 from a machine of the cluster, or ray://HOST:10001 from elsewhere, where `ray start --head` has run "
            f"with the same versions of Ray and Python. Where that said that it has token authentication: RAY_AUTH_MODE=token, and the "
            f"token in ~/.ray/auth_token or RAY_AUTH_TOKEN"
        ) from error
