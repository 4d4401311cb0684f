"""Workers on Ray: calls a second and CPU per call beside one process, start-up, and a great many episodes.

python -m bench.scale [--quick]
"""

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import refinesynth as rs
from bench.command import family
from bench.engine import MISTAKES
from bench.figures import Figure, Section
from bench.measuring import ask, calm, cpu_of, peak_rss, process, program
from bench.recording import MODEL, people, record
from bench.server import Recorded, Served, served

LATENCY = 500
IN_FLIGHT = 512
PERSONAS = 96
WORKERS = (1, 2, 4)
STUB_WORKERS = 4


@dataclass(frozen=True)
class Ran:
    """What came of a run."""

    calls: int
    cpu: float
    """Seconds, of all its processes, from its first call on."""
    rate: float
    """Calls a second in the middle half of the run."""
    startup: float
    """Seconds until the first call."""


@dataclass(frozen=True)
class Many:
    """What came of a great many episodes."""

    seconds: float
    peaks: dict[int, float]
    """MiB of the driver when so many were committed."""
    of_workers: dict[int, float]
    """Of the largest of the other processes, Ray's own among them."""
    cpu: float
    """Seconds of the driver."""


def measure(*, quick: bool) -> Section:
    """The same live run with each number of workers, then episodes that are made up."""
    recording = record(people(PERSONAS), play="live", mistakes=MISTAKES)
    episodes = PERSONAS * (4 if quick else 12)
    ran = {workers: _live(workers, episodes, recording.answers) for workers in WORKERS}
    few, many = (2_000, 10_000) if quick else (10_000, 100_000)
    with process(_made_up, few, many) as run:
        made_up: Many = ask(run)
    one, million = ran[1], made_up.seconds / many * 1_000_000
    return Section(
        title="Scale",
        how=f"Live runs of {episodes:,} episodes, {IN_FLIGHT:,} in flight, over the direct client against a server that says again, after "
        f"{LATENCY} ms, what the rehearsal said; server, driver and workers share {os.cpu_count()} cores. CPU is that of all processes of the run "
        f"from its first call on, Ray's included. Ratios are to one process. Then {many:,} episodes that are made up, over {STUB_WORKERS} workers.",
        figures=(
            *(figure for workers, found in ran.items() for figure in _figures(workers, found, one)),
            Figure(what="1,000,000 made-up episodes", value=million / 60, unit="min", note=f"from {many:,}"),
            Figure(what="driver's CPU for a made-up episode", value=made_up.cpu / many * 1000, unit="ms"),
            _flat("driver", made_up.peaks, few, many),
            _flat("largest other process", made_up.of_workers, few, many),
        ),
    )


def _figures(workers: int, ran: Ran, one: Ran) -> Iterator[Figure]:
    what = "one process" if workers == 1 else f"{workers} workers"
    yield Figure(what=what, value=ran.rate, unit="calls/s", reference=one.rate, note=f"{ran.calls:,} calls")
    yield Figure(
        what=f"{what}, CPU", value=ran.cpu / ran.calls * 1000, unit="ms a call", reference=one.cpu / one.calls * 1000
    )
    yield Figure(what=f"{what}, first call after", value=ran.startup, unit="s", reference=one.startup)


def _flat(what: str, peaks: dict[int, float], few: int, many: int) -> Figure:
    return Figure(
        what=f"{what}, peak at {many:,} beside {few:,}",
        value=peaks[many],
        unit="MiB",
        reference=peaks[few],
        goal=1.1,
        of_ratio=True,
    )


def _live(workers: int, episodes: int, answers: Recorded) -> Ran:
    with served(answers) as server:
        with process(_run, workers, episodes, server) as run:
            ran: Ran = ask(run)
        unknown = server.traffic()["unknown"]
    if unknown:
        raise RuntimeError(f"{unknown:,.0f} requests were not recorded: a run now asks otherwise than its recording")
    return ran


def _run(parent: Connection, workers: int, episodes: int, server: Served) -> None:
    from refinesynth.backends import Backend

    backend = Backend.model_validate({"model": MODEL, "base_url": server.base_url(LATENCY), "path": "direct"})
    everybody = (people(PERSONAS) * (episodes // PERSONAS + 1))[:episodes]

    async def run(folder: Path) -> None:
        await rs.synthesize(
            everybody,
            n=episodes + 1,
            backend=backend,
            mistakes=MISTAKES,
            output=folder,
            concurrency=IN_FLIGHT,
            workers=workers,
        )

    calm()
    with tempfile.TemporaryDirectory() as folder, Watch(server) as watch:
        asyncio.run(run(Path(folder) / "run"))
    parent.send(watch.ran())


class Watch:
    """Looks four times a second at what the server was asked and what this process and its children have used."""

    def __init__(self, server: Served) -> None:
        self._server = server
        self._seen: list[tuple[float, float, float]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.25):
            cpu = sum(cpu_of(pid) for pid in family(os.getpid()))
            self._seen.append((time.perf_counter() - self._began, self._server.traffic()["requests"], cpu))

    def ran(self) -> Ran:
        """What was seen; CPU up to the last call, when all processes are still there."""
        calls = self._seen[-1][1]
        begun = next(seen for seen in self._seen if seen[1])
        done = next(seen for seen in self._seen if seen[1] == calls)
        middle = [seen for seen in self._seen if 0.25 <= seen[1] / calls <= 0.75]
        rate = (middle[-1][1] - middle[0][1]) / (middle[-1][0] - middle[0][0])
        return Ran(calls=int(calls), cpu=done[2] - begun[2], rate=rate, startup=begun[0])


def _made_up(parent: Connection, few: int, many: int) -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack():
        folder = Path(name)
        asyncio.run(rs.synthesize(people(1), n=1, output=folder / "sample"))
        from bench.stub import Nobody, sample_in

        call = Nobody(sample_in(folder / "sample"))
        found, of_workers, begun, cpu = dict[int, float](), dict[int, float](), list[float](), list[float]()

        def look(progress: Any) -> None:
            if not begun:
                begun.append(time.perf_counter())
                cpu.append(time.process_time())
            for count in (few, many):
                if progress.accepted >= count and count not in found:
                    found[count] = peak_rss()
                    of_workers[count] = max(peak_rss(pid) for pid in family(os.getpid()) if pid != os.getpid())

        everybody = (f"Somebody with the number {number}" for number in range(many))
        calm()
        asked: dict[str, Any] = {"n": many, "output": folder / "run", "concurrency": 256, "workers": STUB_WORKERS}
        asyncio.run(rs.synthesize(everybody, backend="openai/nobody", call=call, on_progress=look, **asked))
        seconds, used = time.perf_counter() - begun[0], time.process_time() - cpu[0]
        _check_order(folder / "run" / "trajectories.jsonl", many)
    parent.send(Many(seconds=seconds, peaks=found, of_workers=of_workers, cpu=used))


def _check_order(trajectories: Path, many: int) -> None:
    count = 0
    with trajectories.open("rb") as lines:
        for line in lines:
            if f'"id":"{count:06d}-bench"'.encode() not in line[:200]:
                raise RuntimeError(f"trajectory {count:,} is another one: {line[:200]!r}")
            count += 1
    if count != many:
        raise RuntimeError(f"{count:,} trajectories are there, and {many:,} were asked for")


if __name__ == "__main__":
    program(measure)
