"""Blocks on two nodes: both are used, one that dies is replaced, and where there is no place that is said."""

import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import pytest
from run_records import events

from bench.nodes import Cluster, cluster
from refinesynth import Backend, synthesize
from refinesynth.rehearsal import Rehearsal
from refinesynth.run import RunFolder
from refinesynth.serve import create_app, running

pytestmark = [pytest.mark.process, pytest.mark.long]

PATIENCE = 240
"""Seconds after which something is taken to hang; on a loaded machine Ray alone takes a good part of it."""
N = 12


@pytest.fixture(scope="module")
def two_nodes() -> Generator[Cluster]:
    with cluster() as nodes:
        nodes.add(cpus=1)
        nodes.add(cpus=1)
        yield nodes


class Gate:
    """The rehearsal, which answers so many requests, and more when it is opened."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.answers = 0
        self.reached = Event()
        self.open = Event()

    async def __call__(self, **request: Any) -> object:
        self.answers += 1
        if self.answers > self.most:
            self.reached.set()
            while not self.open.is_set():  # noqa: ASYNC110 - set by another thread
                await anyio.sleep(0.02)
        return await Rehearsal()(**request)


@contextmanager
def run(
    nodes: Cluster, address: str, folder: Path, *, workers: int = 2, cluster: str = "", **environment: str
) -> Generator[subprocess.Popen[str]]:
    """The command, which is killed where it has not ended."""
    command = [sys.executable, "-m", "refinesynth", "run", "-n", str(N), "--seed", "7", "--concurrency", "6"]
    command += ["--backend", "openai/rehearsal", "--set", f"base_url={address}/v1", "--set", "path=direct"]
    command += ["--workers", str(workers), "--cluster", cluster or nodes.address]
    with subprocess.Popen(
        [*command, "-o", str(folder)],
        env=nodes.environment | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def run_from_outside(
    nodes: Cluster,
    address: str,
    folder: Path,
    *,
    when: Callable[[], object],
    then: Callable[[], object],
    grace: int = 30,
) -> tuple[int, str]:
    """The command, connected by Ray's client, to its end: the exit code, and what it said.

    `grace`: seconds in which a lost connection is mended. Begun anew where the client gives up before it is connected,
    as it does on a machine that does much else.
    """
    code, said = 0, ""
    for _ in range(3):
        with run(nodes, address, folder, cluster=nodes.client, RAY_CLIENT_RECONNECT_GRACE_PERIOD=str(grace)) as started:
            deadline = time.monotonic() + PATIENCE
            while started.poll() is None and not when() and time.monotonic() < deadline:
                time.sleep(0.05)
            if started.poll() is None:
                then()
            _, said = started.communicate(timeout=PATIENCE)
            code = started.returncode
        if "can be joined there" not in said:
            break
    return code, said


def until(true: Callable[[], object], started: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert started.poll() is None, started.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def whole(address: str, folder: Path) -> list[bytes]:
    backend = Backend(model="openai/rehearsal", base_url=f"{address}/v1", path="direct")
    await synthesize(n=N, seed=7, concurrency=6, backend=backend, output=folder)
    return contents(folder)


def contents(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in ("trajectories.jsonl", "rejected.jsonl")]


async def test_both_nodes_play_and_one_that_dies_is_replaced_with_the_same_files_in_the_end(
    two_nodes: Cluster, tmp_path: Path
) -> None:
    gate, folder = Gate(most=60), tmp_path / "run"
    with running(create_app(gate)) as address:
        with run(two_nodes, address, folder) as started:
            until(gate.reached.is_set, started)
            until(lambda: [len(node.workers()) for node in two_nodes.nodes] == [1, 1], started)
            # Completions from both nodes are in the run's own journal a moment later.
            until(lambda: sum(row.requests for row in RunFolder.open(folder).spent()) == 60, started)
            two_nodes.kill(two_nodes.nodes[0])
            two_nodes.add(cpus=1)
            gate.open.set()
            code, said = started.wait(PATIENCE), started.communicate()[1]
        for _ in range(2):
            # On a loaded machine Ray may lose the driver's connection besides; then the same command continues the run.
            if code == 3 and "the connection to the Ray cluster is lost" in " ".join(said.split()):
                with run(two_nodes, address, folder) as started:
                    code, said = started.wait(PATIENCE), started.communicate()[1]
    assert code == 0, said
    with running(create_app(Rehearsal())) as address:
        assert contents(folder) == await whole(address, tmp_path / "whole")


async def test_workers_without_a_place_are_said_and_begin_when_there_is_one(two_nodes: Cluster, tmp_path: Path) -> None:
    gate, folder = Gate(most=40), tmp_path / "run"
    with running(create_app(gate)) as address:
        with run(two_nodes, address, folder, workers=3) as started:
            until(lambda: (folder / "events.jsonl").exists() and events(folder, "workers_wait"), started)
            said = events(folder, "workers_wait")[0]["text"]
            assert " of 3 workers wait for a place: each takes 1 CPU" in said
            third = two_nodes.add(cpus=1)
            until(third.workers, started)
            gate.open.set()
            assert started.wait(PATIENCE) == 0, started.communicate()[1]
        two_nodes.kill(third)
        assert contents(folder) == await whole(address, tmp_path / "whole")


async def test_a_run_that_loses_the_cluster_says_so_and_goes_on(two_nodes: Cluster, tmp_path: Path) -> None:
    gate, folder = Gate(most=40), tmp_path / "run"
    with running(create_app(gate)) as address:
        code, said = run_from_outside(
            two_nodes, address, folder, when=gate.reached.is_set, then=two_nodes.cut_off, grace=2
        )
        assert code == 3, said
        assert "the connection to the Ray cluster is lost (" in " ".join(said.split())
        gate.open.set()
        code, said = run_from_outside(two_nodes, address, folder, when=lambda: False, then=two_nodes.cut_off)
        assert code == 0, said
        assert "Traceback" not in said
        assert contents(folder) == await whole(address, tmp_path / "whole")
