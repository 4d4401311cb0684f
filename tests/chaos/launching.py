"""Starts the same run again and again at next to no cost, and ends it badly: see `warm_python`."""

import os
import resource
import select
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import warm_client


class Launched:
    """One process, until it ends or is killed."""

    def __init__(self, warm: Path, arguments: Sequence[str], said: Path, environment: dict[str, str], most_bytes: int):
        files = [os.open("/dev/null", os.O_RDONLY)]
        files += [os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for _ in range(2)]
        self._server = warm_client.ask(
            str(warm / "socket"), arguments, environment=environment, most_bytes=most_bytes, files=files
        )
        for file in files:
            os.close(file)
        self._told = b""
        self._hear(lines=1)

    def _hear(self, lines: int) -> bytes:
        while self._told.count(b"\n") < lines:
            part = self._server.recv(64)
            assert part, "the process that forks is gone"
            self._told += part
        return self._told.splitlines()[lines - 1]

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._told.count(b"\n") > 1 or bool(select.select([self._server], [], [], 0)[0])

    def signal(self, number: int) -> None:
        """Send it a signal. Harmless if it has ended."""
        with suppress(OSError):
            self._server.send(bytes([number]))

    def kill(self) -> int:
        """Kill it with `kill -9`, unless it has ended; how it ended."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        """How it ended: an exit code, or minus a signal."""
        code = int(self._hear(lines=2))
        self._server.close()
        return code


@dataclass(frozen=True)
class Launcher:
    """Forks processes that write what they print to one file."""

    warm: Path
    """The fixture of this name."""
    said: Path
    """What they print, all of them."""

    def command(
        self, command: Sequence[str], *, most_bytes: int | None = None, environment: dict[str, str] | None = None
    ) -> Launched:
        """The command line; no file may grow beyond `most_bytes`, as on a disk that is full."""
        return self._launch(["-m", "refinesynth", *command], most_bytes, environment)

    def run(
        self, command: Sequence[str], *, most_bytes: int | None = None, environment: dict[str, str] | None = None
    ) -> tuple[int, str]:
        """A command's exit code, and all that it printed."""
        self.said.unlink(missing_ok=True)
        code = self.command(command, most_bytes=most_bytes, environment=environment).wait()
        return code, self.said.read_text()

    def _launch(
        self, arguments: Sequence[str], most_bytes: int | None = None, environment: dict[str, str] | None = None
    ) -> Launched:
        limit = resource.RLIM_INFINITY if most_bytes is None else most_bytes
        return Launched(self.warm, arguments, self.said, {**os.environ, **(environment or {})}, limit)
