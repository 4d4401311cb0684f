"""One run on two nodes, whose workers and nodes are killed again and again: nothing lost, nothing twice, and asked again
at most what was in flight, and what was on the disk of a node that is gone.

python -m bench.chaos [--quick]
"""

import asyncio
import json
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import refinesynth as rs
from bench.command import family
from bench.figures import Figure, Section
from bench.measuring import program
from refinesynth.rehearsal import Rehearsal
from refinesynth.serve import create_app, running
from refinesynth.synthesis.workers.cluster import ray

WORKERS = 4
IN_FLIGHT = 32
LATENCY = 0.05
"""Of the server, in seconds."""
NODE_EVERY = 10
"""Among so many kills one is of a node."""


def measure(*, quick: bool) -> Section:
    """Kill, and count what the server was asked twice."""
    kills, n = (5, 60) if quick else (50, 400)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running(create_app(Rehearsal(), latency=0.0)) as address:
            asyncio.run(rs.synthesize(n=n, output=folder / "whole", concurrency=IN_FLIGHT, backend=_backend(address)))
        server = _Counted()
        with running(create_app(server, latency=LATENCY, log=folder / "asked.jsonl")) as address:
            killer = _Killer(server, folder, kills=kills, every=max(1, n * 15 // kills))
            asked: dict[str, Any] = {"n": n, "output": folder / "run", "concurrency": IN_FLIGHT, "workers": WORKERS}
            with killer:
                began = time.perf_counter()
                journals = "$REFINESYNTH_BENCH_DISK/journals"
                asyncio.run(
                    rs.synthesize(backend=_backend(address), cluster=killer.address, journals=journals, **asked)
                )
                seconds = time.perf_counter() - began
        same = all(
            (folder / "run" / file).read_bytes() == (folder / "whole" / file).read_bytes()
            for file in ("trajectories.jsonl", "rejected.jsonl")
        )
        events = [json.loads(line) for line in (folder / "run" / "events.jsonl").read_text().splitlines()]
        lost = sum(event["requests"] for event in events if event["event"] == "journal_lost")
        paid = Counter(
            (line["session"], line["digest"], line["seed"])
            for line in map(json.loads, (folder / "asked.jsonl").read_text().splitlines())
            if line["paid"]
        )
    again = paid.total() - len(paid)
    # A worker has its part of what is in flight, a node what its workers have.
    at_most = killer.workers * IN_FLIGHT // WORKERS + killer.nodes * IN_FLIGHT + lost
    return Section(
        title="Chaos",
        how=f"A live run of {n:,} with {WORKERS} workers on two nodes, {IN_FLIGHT} in flight, of which a worker (kill -9) or a node was killed "
        f"every {killer.every} answers. Asked again: what the server answered twice, beside what was in flight or lost with a node's disk.",
        figures=(
            Figure(what="workers killed", value=killer.workers),
            Figure(what="nodes killed", value=killer.nodes),
            Figure(what="the same files as a run that nobody disturbs", value=float(same), goal=1, aim="at least"),
            Figure(what="answers", value=paid.total(), note=f"in {seconds:.0f} s"),
            Figure(what="asked again", value=again, goal=at_most, note=f"{lost:,} lost with disks"),
        ),
    )


def _backend(address: str) -> rs.Backend:
    return rs.Backend(model="openai/rehearsal", base_url=f"{address}/v1", path="direct", retries=20)


class _Counted:
    """The rehearsal, which counts its answers."""

    def __init__(self) -> None:
        self.answers = 0
        self._rehearsal = Rehearsal()

    async def __call__(self, **request: Any) -> object:
        self.answers += 1
        return await self._rehearsal(**request)


@dataclass
class _Killer:
    """A cluster of two nodes beside the head, each with a disk of its own, and what kills them."""

    server: _Counted
    folder: Path
    kills: int
    every: int
    """Answers from one to the next."""
    workers: int = 0
    nodes: int = 0
    address: str = ""
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "_Killer":  # noqa: PYI034 - private
        ray()
        from ray.cluster_utils import Cluster

        self._cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        self._nodes = [self._add(number) for number in range(2)]
        self.address = self._cluster.address
        self._thread = threading.Thread(target=self._kill)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._cluster.shutdown()

    def _add(self, number: int) -> Any:
        disk = self.folder / f"disk-{number}"
        disk.mkdir()
        return self._cluster.add_node(num_cpus=WORKERS // 2, env_vars={"REFINESYNTH_BENCH_DISK": str(disk)})

    def _kill(self) -> None:
        for number in range(1, self.kills + 1):
            enough = self.server.answers + self.every
            while self.server.answers < enough:
                if self._ended.wait(0.02):
                    return
            if number % NODE_EVERY == NODE_EVERY // 2:
                self._cluster.remove_node(self._nodes.pop(0), allow_graceful=False)
                self._nodes.append(self._add(number + 1))
                self.nodes += 1
            elif found := [pid for pid in family(os.getpid()) if _is_worker(pid)]:
                with suppress(OSError):
                    os.kill(random.choice(found), signal.SIGKILL)
                    self.workers += 1
        # A node ends with the thread that started it.
        self._ended.wait()


def _is_worker(pid: int) -> bool:
    with suppress(OSError):
        return b"ray::Worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


if __name__ == "__main__":
    program(measure)
