"""One run on two nodes, of which workers, nodes and the command itself are killed again and again: nothing lost, nothing
twice, and asked again at most what was in flight.

python -m bench.chaos [--quick]
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import orjson

from bench.figures import Figure, Section
from bench.measuring import program
from bench.nodes import Cluster, cluster
from bench.recording import people
from refinesynth.rehearsal import Rehearsal
from refinesynth.run import RunFolder
from refinesynth.serve import running
from tests.faulty_server import faulty_app

WORKERS = 4
IN_FLIGHT = 32
LATENCY = 0.25
"""Of the server, in seconds."""
SEED = 11
FILES = ("trajectories.jsonl", "rejected.jsonl")


def measure(*, quick: bool) -> Section:
    """Kill, and count what the server was asked twice."""
    kills, n = (6, 40) if quick else (50, 360)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running(faulty_app(Rehearsal(), log=folder / "asked-whole.jsonl")) as address:
            asked = _command(address, n, folder / "whole")
            subprocess.run(asked, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        whole = _asked(folder / "asked-whole.jsonl")
        server = _Counted()
        app = faulty_app(server, latency=LATENCY, jitter=0.5, log=folder / "asked.jsonl")
        with running(app) as address, cluster() as nodes:
            ordeal = _Ordeal(nodes, folder, server, urlsplit(address).port or 0)
            began = time.perf_counter()
            ordeal.run(_command(address, n, folder / "run"), kills=kills, every=whole.total() / (kills + 1))
            seconds = time.perf_counter() - began
        return _section(folder, ordeal, kills=kills, n=n, seconds=seconds)


def _section(folder: Path, ordeal: "_Ordeal", *, kills: int, n: int, seconds: float) -> Section:
    asked, whole = _asked(folder / "asked.jsonl"), _asked(folder / "asked-whole.jsonl")
    again, by_itself = asked.total() - len(asked), whole.total() - len(whole)
    ids = [trajectory.id for trajectory in RunFolder.open(folder / "run").trajectories()]
    same = sum((folder / "run" / file).read_bytes() == (folder / "whole" / file).read_bytes() for file in FILES)
    of = ordeal.killed
    return Section(
        title="Chaos",
        how=f"A live run of {n:,} by {WORKERS} workers on two nodes, {IN_FLIGHT} episodes in flight, against a server that answers after "
        f"{LATENCY * 1000:.0f} ms. At random moments (seed {SEED}) a worker was killed, or a node, in whose place comes another "
        f"one, or the command, which is then given again. In flight is what the killed processes had open to the server.",
        figures=(
            Figure(what="kills (kill -9)", value=of.total(), goal=kills, aim="at least", note=f"in {seconds:.0f} s"),
            Figure(what="of workers, of nodes, of the command", value=None, note=", ".join(map(str, of.values()))),
            Figure(what="given up by itself, and gone on with", value=ordeal.given_up),
            Figure(what="files that equal those of a run undisturbed", value=same, goal=len(FILES), aim="at least"),
            Figure(what="trajectories", value=len(ids), goal=n, aim="at least"),
            Figure(what="trajectories twice", value=len(ids) - len(set(ids)), goal=0),
            Figure(what="requests", value=asked.total(), reference=whole.total(), note="beside the run undisturbed"),
            Figure(
                what="requests made again",
                value=again - by_itself,
                goal=ordeal.in_flight,
                note="beside those in flight",
            ),
        ),
    )


def _command(address: str, n: int, folder: Path) -> list[str]:
    personas = folder.parent / "personas.txt"
    personas.write_text("\n".join(people(2 * n)), encoding="utf-8")
    run = [sys.executable, "-m", "refinesynth", "run", str(personas), "-n", str(n), "--seed", str(SEED)]
    run += ["--concurrency", str(IN_FLIGHT), "--backend", "openai/rehearsal"]
    return [*run, "--set", f"base_url={address}/v1", "--set", "path=direct", "-o", str(folder)]


def _asked(log: Path) -> Counter[tuple[str, str, str]]:
    """How often each request was made."""
    lines = map(orjson.loads, log.read_bytes().splitlines())
    return Counter((line["session"], line["digest"], str(line["seed"])) for line in lines)


class _Counted:
    """The rehearsal, which counts its answers."""

    def __init__(self) -> None:
        self.answers = 0
        self._rehearsal = Rehearsal()

    async def __call__(self, **request: Any) -> object:
        self.answers += 1
        return await self._rehearsal(**request)


@dataclass
class _Ordeal:
    """The run, and what befalls it."""

    nodes: Cluster
    folder: Path
    server: _Counted
    port: int
    in_flight: int = 0
    """Requests that killed processes had open."""
    killed: Counter[str] = field(default_factory=lambda: Counter(worker=0, node=0, command=0))
    given_up: int = 0
    """How often the run ended by itself, because too many workers had died; it goes on with the same command."""
    _chance: random.Random = field(default_factory=lambda: random.Random(SEED))

    def run(self, command: list[str], *, kills: int, every: float) -> None:
        """Have it played to its end, through so many kills, about one for each `every` answers."""
        for _ in range(2):
            self.nodes.add(cpus=WORKERS // 2)
        away = ["--workers", str(WORKERS), "--cluster", self.nodes.address]
        what = ["node"] * max(1, kills // 10) + ["command"] * max(1, kills // 20)
        what += ["worker"] * (kills - len(what))
        self._chance.shuffle(what)
        while True:
            with (self.folder / "said").open("wb") as said:
                run = subprocess.Popen(
                    [*command, *away], env=self.nodes.environment, stdout=said, stderr=said, start_new_session=True
                )
            try:
                while what and self._answered(every * self._chance.uniform(0.4, 1.2), run):
                    self._kill(what[-1], run)
                    if what.pop() == "command":
                        break
                else:
                    run.wait()
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(run.pid, signal.SIGKILL)
                run.wait()
            if run.returncode == 1 and b"died one after the other" in (self.folder / "said").read_bytes():
                self.given_up += 1
                self.in_flight += IN_FLIGHT
            elif run.returncode != -signal.SIGKILL:
                break
        if run.returncode:
            raise RuntimeError(
                f"the run ended with exit code {run.returncode}: {(self.folder / 'said').read_text()[-3000:]}"
            )

    def _answered(self, many: float, run: subprocess.Popen[bytes]) -> bool:
        """Wait for so many answers; False if the run ends before."""
        enough, never = self.server.answers + many, Event()
        while self.server.answers < enough:
            if run.poll() is not None:
                return False
            never.wait(0.02)
        return True

    def _kill(self, what: str, run: subprocess.Popen[bytes]) -> None:
        node = self._chance.choice(self.nodes.nodes)
        workers = [pid for one in self.nodes.nodes for pid in one.workers()]
        alone = self._chance.sample(workers, min(1, len(workers)))
        victims = {"worker": alone, "node": node.workers(), "command": workers}[what]
        for pid in victims:
            # What is answered from here on, nobody reads.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        in_flight = sum(_connections(pid, self.port) for pid in victims)
        self.in_flight += in_flight
        self.killed[what] += 1
        print(f"{self.server.answers:,} answers, {self.killed.total()}: {what}, {in_flight} in flight", file=sys.stderr)
        if what == "command":
            os.killpg(run.pid, signal.SIGKILL)
        for pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if what == "node":
            self.nodes.kill(node)
            self.nodes.add(cpus=WORKERS // 2)


def _connections(pid: int, port: int) -> int:
    """How many a process has to a port of this machine: of HTTP, as many requests as it may have in flight."""
    sockets = set[str]()
    with suppress(OSError):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                sockets.add(str(file.readlink()))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == "01" and f"socket:[{row[9]}]" in sockets for row in rows)


if __name__ == "__main__":
    sys.exit(any(figure.met is False for figure in program(measure).figures))
