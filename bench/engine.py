"""The whole engine: CPU per call of a live run, with its actors, journal and verification.

python -m bench.engine [--quick]
"""

import asyncio
import tempfile
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

import refinesynth as rs
from bench.calls import ANSWER, Cell, client
from bench.figures import Figure, Section
from bench.measuring import Used, ask, calm, pin, process, program, rss
from bench.recording import MODEL, people, record
from bench.server import Canned, Recorded, Served, completion, served

LATENCY = 500
"""Of the server, in milliseconds."""
MISTAKES = rs.Mistakes(policy="prompted", turns=(1, 4))
"""What the player is asked for then goes round with the episode's index, every sixth alike, so that a recording of some
personas, a multiple of six, serves any number of them."""


@dataclass(frozen=True)
class Load:
    """What is to be run."""

    path: str
    """How the backend is reached."""
    personas: int
    """Different ones, which the recording holds."""
    episodes: int
    in_flight: int


@dataclass(frozen=True)
class Ran:
    """What came of it."""

    calls: int
    accepted: int
    cpu: float
    """Seconds."""
    rate: float
    """Calls a second, in the middle half of the run."""
    at_once: int
    """Most requests that the server had at once."""
    kib: float
    """Memory of one episode in flight, beyond that of the process before the run."""


def measure(*, quick: bool) -> Section:
    """One run over each path against the same recorded answers, and raw aiohttp against the same server."""
    personas = 96 if quick else 300
    recording = record(people(personas), play="live", mistakes=MISTAKES)
    with served(Canned(completion(ANSWER))) as server, process(client, "aiohttp + orjson", server) as aiohttp:
        raw: float = ask(aiohttp, Cell(LATENCY, in_flight=1024, seconds=2.0)).cpu_ms
    lean, through_litellm = (
        _ran(Load(path, personas, episodes=episodes, in_flight=1024), recording.answers)
        for path, episodes in (("direct", 1024 if quick else 2048), ("litellm", 256 if quick else 1024))
    )
    return Section(
        title="Engine",
        how=f"Live runs with 1,024 episodes in flight against a server that says again, after {LATENCY} ms, what the rehearsal said: CPU of the "
        "client, which has a core to itself, per call, everything included but start-up. Ratios are to raw aiohttp with orjson.",
        figures=(
            Figure(what="raw aiohttp + orjson", value=raw, unit="ms", reference=raw),
            _cpu("a run, direct client", lean, raw, goal=4.5),
            Figure(
                what="a run, direct client",
                value=lean.rate,
                unit="calls/s",
                goal=1_000,
                aim="at least",
                note=f"at most {lean.at_once:,} at once",
            ),
            Figure(what="an episode in flight, direct client", value=lean.kib, unit="KiB", goal=120),
            _cpu("a run, through litellm", through_litellm, raw, goal=20),
            Figure(
                what="a run, through litellm",
                value=through_litellm.rate,
                unit="calls/s",
                note=f"at most {through_litellm.at_once:,} at once",
            ),
            Figure(what="an episode in flight, through litellm", value=through_litellm.kib, unit="KiB"),
        ),
    )


def _cpu(what: str, ran: Ran, raw: float, *, goal: float) -> Figure:
    """CPU per call; the goal is a ratio to the raw client."""
    note = f"{ran.accepted:,} accepted with {ran.calls:,} calls"
    cpu = ran.cpu / ran.calls * 1000
    return Figure(what=what, value=cpu, unit="ms", reference=raw, goal=goal, of_ratio=True, note=note)


def _ran(load: Load, answers: Recorded) -> Ran:
    with served(answers) as server:
        with process(_run, load, server) as run:
            ran: Ran = ask(run)
        unknown = server.traffic()["unknown"]
    if unknown:
        raise RuntimeError(f"{unknown:,.0f} requests were not recorded: a run now asks otherwise than its recording")
    return ran


def _run(parent: Connection, load: Load, server: Served) -> None:
    """A run in a process of its own, as the command line would do it."""
    pin("client")
    from refinesynth.backends import Backend

    backend = Backend.model_validate({"model": MODEL, "base_url": server.base_url(LATENCY), "path": load.path})
    everybody = people(load.personas) * (load.episodes // load.personas + 1)

    async def run(folder: Path, personas: list[str]) -> int:
        result = await rs.synthesize(
            personas,
            # More than there are personas, so that all of them are played.
            n=len(personas) + 1,
            backend=backend,
            mistakes=MISTAKES,
            output=folder,
            concurrency=load.in_flight,
        )
        return len(result)

    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        # What is imported and filled at first use belongs to the process, not to its episodes. Six that are not the
        # first six: no session begins twice.
        runner.run(run(Path(folder) / "first", everybody[6:12]))
        calm()
        with Watch(server) as watch:
            before, calls, idle = Used.now(), server.traffic()["requests"], rss()
            accepted = runner.run(run(Path(folder) / "run", everybody[: load.episodes]))
            used, calls = Used.now() - before, server.traffic()["requests"] - calls
    kib = (watch.most_memory - idle) * 1024 / min(load.in_flight, load.episodes)
    at_once = int(server.traffic()["most_at_once"])
    parent.send(Ran(calls=int(calls), accepted=accepted, cpu=used.cpu, rate=watch.rate(), kib=kib, at_once=at_once))


class Watch:
    """Looks twice a second how many requests the server has had, and how much memory this process has."""

    def __init__(self, server: Served) -> None:
        self._server = server
        self._seen: list[tuple[float, float]] = []
        self.most_memory = 0.0
        """MiB."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.5):
            self.most_memory = max(self.most_memory, rss())
            self._seen.append((Used.now().wall, self._server.traffic()["requests"]))

    def rate(self) -> float:
        """Requests a second while the middle half of them came."""
        first, last = self._seen[0][1], self._seen[-1][1]
        middle = [seen for seen in self._seen if 0.25 <= (seen[1] - first) / (last - first) <= 0.75]
        (start, before), (end, after) = middle[0], middle[-1]
        return (after - before) / (end - start)


if __name__ == "__main__":
    program(measure)
