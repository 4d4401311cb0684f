"""Imports everything once, and from then on forks a Python for each client that asks for one.

    python warm_server.py SOCKET

A client sends the length of what it asks for with its three standard files, then that (see `Task`), and later a byte
for each signal. It is sent the number of the process, and how that ended. When a client goes, its process is killed;
when the last has gone, this ends.
"""

import atexit
import gc
import marshal
import os
import resource
import runpy
import selectors
import signal
import socket
import sys
import threading
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, NoReturn

IMPORTED = [
    "refinesynth.cli.run_display",
    "refinesynth.episode",
    "refinesynth.client.model",
    "refinesynth.rehearsal",
    "refinesynth.serve",
    "refinesynth.export",
    "refinesynth.train.engine.rank_training",
    "refinesynth.train.engine.loop",
    "torch.distributed.run",
    "deepspeed",
    "refinesynth.cli.evaluate",
    "refinesynth.evaluate.comparing.comparison",
    "refinesynth.evaluate.evaluation_run",
    "anthropic",
    "mcp.server.lowlevel",
    "mcp.server.stdio",
    "matplotlib.figure",
]


class Task(NamedTuple):
    """A Python to be."""

    arguments: list[str]
    """After `python`."""
    python: str
    """What takes the place of `python`, for what it starts in its turn."""
    folder: str
    environment: dict[str, str]
    most_bytes: int
    """How long a file may become."""


class Server:
    """Forks whoever is asked for, and tells how they end."""

    def __init__(self, path: str) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(path)
        self._listening.listen(64)
        self._waking, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self._selector = selectors.DefaultSelector()
        for each in (self._listening, self._waking):
            self._selector.register(each, selectors.EVENT_READ)
        self._clients: dict[socket.socket, int | None] = {}
        """With the number of its process."""

    def next(self) -> Task | None:
        """In a fork, what it is to do; None here, once nobody is left."""
        had = False
        while self._clients or not had:
            for key, _ in self._selector.select():
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                if ready is self._listening:
                    client, _ = self._listening.accept()
                    self._clients[client] = None
                    self._selector.register(client, selectors.EVENT_READ)
                    had = True
                elif ready is self._waking:
                    self._waking.recv(4096)
                    self._reap()
                elif ready in self._clients and (task := self._hear(ready)) is not None:
                    return task
        return None

    def _hear(self, client: socket.socket) -> Task | None:
        child = self._clients[client]
        if child is not None:
            signals = client.recv(64)
            for number in signals or [signal.SIGKILL]:
                os.kill(child, number)
            if not signals:
                self._selector.unregister(client)
            return None
        said, files, _, _ = socket.recv_fds(client, 4, 3)
        if not said:
            self._forget(client)
            return None
        with client.makefile("rb", buffering=0) as rest:
            asked = b""
            while len(asked) < int.from_bytes(said, "big"):
                asked += rest.read(int.from_bytes(said, "big") - len(asked)) or b""
        child = os.fork()
        if child == 0:
            for each in (self._listening, self._waking, self._woken, *self._clients):
                each.close()
            self._selector.close()
            return become(Task(*marshal.loads(asked)), files)
        for file in files:
            os.close(file)
        self._clients[client] = child
        client.sendall(b"%d\n" % child)
        return None

    def _reap(self) -> None:
        while any(self._clients.values()):
            child, status = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                return
            client = next(client for client, number in self._clients.items() if number == child)
            with suppress(OSError):
                client.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
            self._forget(client)

    def _forget(self, client: socket.socket) -> None:
        del self._clients[client]
        with suppress(KeyError):
            self._selector.unregister(client)
        client.close()


def become(task: Task, files: list[int]) -> Task:
    """Make of a fork what its client is."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for place, file in enumerate(files):
        os.dup2(file, place)
        os.close(file)
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, TextIOWrapper)
        stream.reconfigure(line_buffering=stream.isatty() or stream is sys.stderr)
    sys.executable = task.python
    os.chdir(task.folder)
    os.environ.clear()
    os.environ.update(task.environment)
    resource.setrlimit(resource.RLIMIT_FSIZE, (task.most_bytes, resource.RLIM_INFINITY))
    # Else it would write down what it compiles, cut off where the limit is.
    sys.dont_write_bytecode = task.most_bytes != resource.RLIM_INFINITY
    return task


def run(arguments: list[str]) -> None:
    """What `python` does with these."""
    kind, *rest = [argument for number, argument in enumerate(arguments) if (number, argument) != (0, "-u")]
    if kind == "-m":
        sys.argv = rest
        sys.path.insert(0, "")
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    else:
        sys.argv = [kind, *rest]
        sys.path.insert(0, str(Path(kind).resolve().parent))
        runpy.run_path(kind, run_name="__main__")


def end(arguments: list[str]) -> NoReturn:
    """Run it to its end, and leave without what an interpreter does last, which is to take all modules apart."""
    interrupted, status = False, 0
    try:
        run(arguments)
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
        if isinstance(exc.code, str):
            sys.stderr.write(f"{exc.code}\n")
    except BaseException as exc:  # noqa: BLE001 - as the interpreter does
        interrupted, status = isinstance(exc, KeyboardInterrupt), 1
        sys.excepthook(type(exc), exc, exc.__traceback__)
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
    os._exit(status & 255)


def main() -> None:
    """Import, serve, and in each fork run what was asked for."""
    for name in IMPORTED:
        import_module(name)
    from refinesynth.client.litellm_sdk import litellm

    litellm()
    threads = {(thread / "comm").read_text().strip() for thread in Path("/proc/self/task").iterdir()}
    # That of pyarrow's allocator knows of forks.
    assert threads - {"jemalloc_bg_thd"} == {"python"}, f"threads do not go on in a fork: {threads}"
    gc.collect()
    gc.freeze()
    task = Server(sys.argv[1]).next()
    if task is not None:
        end(task.arguments)


if __name__ == "__main__":
    main()
