"""Throughput: accepted trajectories a second against the rehearsal's server, beside what its latency allows; and a
run's tail.

python -m bench.throughput [--quick]
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import refinesynth as rs
from bench.figures import Figure, Section
from bench.measuring import ask, calm, cpu_of, pin, process, program
from bench.recording import MODEL, people
from refinesynth.synthesis import Progress

LATENCY = 0.2
"""Of the server, in seconds."""


@dataclass(frozen=True)
class Ran:
    """A run, seen while its pool was full and its first generation through; seconds, and shares of a core."""

    in_flight: int
    accepted: float
    """A second."""
    calls_each: float
    """Calls per accepted trajectory."""
    client: float
    server: float
    tail: float
    """From when the pool was no longer full to the end."""
    episode: float
    """The median."""

    @property
    def ideal(self) -> float:
        """Accepted trajectories a second if nothing took time but the server's latency."""
        return self.in_flight / LATENCY / self.calls_each


def measure(*, quick: bool) -> Section:
    """One live run per level."""
    levels = [(64, 3)] if quick else [(16, 4), (64, 4), (256, 3)]
    with process(_serve) as server:
        address, pid = ask(server)
        runs: list[Ran] = []
        for in_flight, generations in levels:
            with process(_run, address, pid, in_flight, in_flight * generations) as client:
                runs.append(ask(client))
    return Section(
        title="Throughput",
        how=f"Live runs against `refinesynth serve` at {LATENCY * 1000:.0f} ms, client and server on a core each. Ratios are to in flight / latency / "
        "calls per accepted trajectory, while the pool is full. The tail is the time after that; its ratio is to the median episode.",
        figures=tuple(figure for ran in runs for figure in _figures(ran)),
    )


def _figures(ran: Ran) -> tuple[Figure, Figure]:
    return (
        Figure(
            what=f"accepted, {ran.in_flight} in flight",
            value=ran.accepted,
            unit="/s",
            reference=ran.ideal,
            goal=0.9,
            aim="at least",
            of_ratio=True,
            note=f"{ran.calls_each:.1f} calls each; client {ran.client:.0%} and server {ran.server:.0%} of a core",
        ),
        Figure(
            what=f"tail, {ran.in_flight} in flight",
            value=ran.tail,
            unit="s",
            reference=ran.episode,
            goal=2,
            of_ratio=True,
        ),
    )


def _serve(parent: Connection) -> None:
    pin("server")
    from refinesynth.rehearsal import Rehearsal
    from refinesynth.serve import create_app, serve

    serve(
        create_app(Rehearsal(), latency=LATENCY), port=0, on_ready=lambda address: parent.send((address, os.getpid()))
    )


def _run(parent: Connection, address: str, server: int, in_flight: int, episodes: int) -> None:
    """A run in a process of its own, as the command line would do it."""
    pin("client")
    from refinesynth import episode
    from refinesynth.backends import Backend
    from refinesynth.client import open_model

    backend = Backend(model=MODEL, base_url=f"{address}/v1")
    open_model(backend)
    calm()
    lasted: list[float] = []
    episode.play_episode = _timed(episode.play_episode, lasted)
    watch = _Watch(in_flight, server)

    async def run(folder: Path) -> None:
        await rs.synthesize(
            people(2 * episodes),
            n=episodes,
            backend=backend,
            output=folder / "run",
            concurrency=in_flight,
            on_progress=watch.look,
        )

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))
    parent.send(watch.ran(episode=median(lasted)))


def _timed(play: Callable[..., Awaitable[Any]], lasted: list[float]) -> Callable[..., Any]:
    async def timed(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        outcome = await play(*arguments, **options)
        lasted.append(time.perf_counter() - start)
        return outcome

    return timed


@dataclass(frozen=True)
class _Moment:
    time: float
    client: float
    server: float
    """Both in seconds of CPU."""
    progress: Progress


class _Watch:
    """Notes the moments of a run at which something begins or ends."""

    def __init__(self, in_flight: int, server: int) -> None:
        self._in_flight = in_flight
        self._server = server
        self._warm: _Moment | None = None
        self._full: _Moment | None = None
        """The last moment at which all were busy."""

    def look(self, progress: Progress) -> None:
        if progress.finished < self._in_flight or progress.in_flight < self._in_flight:
            return
        now = _Moment(time.perf_counter(), time.process_time(), cpu_of(self._server), progress)
        self._warm = self._warm or now
        self._full = now

    def ran(self, *, episode: float) -> Ran:
        """What was seen, now that the run has ended."""
        end = time.perf_counter()
        first, last = self._warm, self._full
        if first is None or last is None or first is last:
            raise RuntimeError("the run was too short to see anything")
        seconds = last.time - first.time
        accepted = last.progress.gained - first.progress.gained
        calls = last.progress.usage.requests - first.progress.usage.requests
        return Ran(
            in_flight=self._in_flight,
            accepted=accepted / seconds,
            calls_each=calls / accepted,
            client=(last.client - first.client) / seconds,
            server=(last.server - first.server) / seconds,
            tail=end - last.time,
            episode=episode,
        )


if __name__ == "__main__":
    program(measure)
