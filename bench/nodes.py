"""A Ray cluster of several nodes on this machine that may be killed and replaced."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.command import family

_TRIES = 3
"""Ray gives up if it has not started within 30 s, which happens where much else goes on."""
_STARTED = "Ray runtime started"
_COMMON = ("--block", "--disable-usage-stats", "--node-ip-address=127.0.0.1", "--object-store-memory=83886080")
# Where each node counts its ports from the same number, they take each other's.
_PORTS = ("--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0")


@dataclass(frozen=True)
class Node:
    """A node that runs."""

    started: subprocess.Popen[str]

    def workers(self) -> list[int]:
        """The processes of workers on it."""
        return [pid for pid in family(self.started.pid) if _is_worker(pid)]

    def kill(self) -> None:
        """Kill all its processes. Returns when they have ended."""
        for pid in list(family(self.started.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.started.communicate()


@dataclass
class Cluster:
    """A head without a place for workers, and nodes."""

    address: str
    """For `--cluster`; who goes there needs what is in `environment`."""
    client: str
    """For who is on none of its machines."""
    environment: dict[str, str]
    head: Node
    nodes: list[Node] = field(default_factory=list[Node])

    def add(self, *, cpus: int) -> Node:
        """One more node. Returns when it is there."""
        self.nodes.append(_start((f"--address={self.address}", f"--num-cpus={cpus}"), self.environment))
        return self.nodes[-1]

    def kill(self, node: Node) -> None:
        """One node less."""
        self.nodes.remove(node)
        node.kill()

    def cut_off(self) -> None:
        """Kill what those who are outside are connected with."""
        for pid in family(self.head.started.pid):
            with suppress(OSError):
                if b"mode=specific-server" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)


@contextmanager
def cluster() -> Generator[Cluster]:
    """While the block runs there is a cluster, of which nothing is left afterwards.

    Raises:
        RuntimeError: Ray does not start.
    """
    # Not below pytest's folders: the paths of Ray's sockets would be too long.
    folder = Path(tempfile.mkdtemp(prefix="refinesynth-ray-"))
    # Ray listens on all interfaces: nobody else has the token. A client's server takes long to start, or never starts;
    # then the client has to ask for another.
    access = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    access |= {"RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "60"}
    here = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    port, client = _free_port(), _free_port()
    where = ("--head", f"--port={port}", f"--ray-client-server-port={client}")
    what = ("--num-cpus=0", "--include-dashboard=false", f"--temp-dir={folder}")
    head = _start((*where, *what), here | access)
    running = Cluster(f"127.0.0.1:{port}", f"ray://127.0.0.1:{client}", here | access, head)
    try:
        yield running
    finally:
        for node in (*running.nodes, head):
            node.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _start(where: tuple[str, ...], environment: Mapping[str, str]) -> Node:
    ray = Path(sys.executable).with_name("ray")
    said = ""
    for _ in range(_TRIES):
        started = subprocess.Popen(
            [ray, "start", *where, *_COMMON, *_PORTS],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert started.stdout is not None
        said = ""
        for line in started.stdout:
            said += line
            if _STARTED in line:
                return Node(started)
        started.wait()
    raise RuntimeError(f"Ray does not start on this machine: {said}")


def _free_port() -> int:
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return any_port.getsockname()[1]


def _is_worker(pid: int) -> bool:
    with suppress(OSError):
        return b"ray::play_block" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
