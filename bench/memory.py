"""Memory: whether a run's peak grows with how many trajectories are asked for.

python -m bench.memory [--quick]
"""

import asyncio
import random
import tempfile
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import orjson
from anyio.lowlevel import checkpoint

import refinesynth as rs
from bench.command import peaks
from bench.figures import Figure, Section
from bench.measuring import ask, calm, peak_rss, process, program
from bench.recording import MODEL, people, record
from bench.server import Recorded, digest
from refinesynth.outcome import EpisodeOutcome
from refinesynth.synthesis import Progress
from refinesynth.trajectory import Persona

CONCURRENCY = 256
NARRATED_MISTAKES = rs.Mistakes(policy="at_least")
"""Asks for as many in every episode, so that a recording of some personas serves any number of episodes."""


def measure(*, quick: bool) -> Section:
    """A run of made-up episodes, and a narrated one whose answers come from memory."""
    few, many = (2_000, 10_000) if quick else (5_000, 100_000)
    some, more = (200, 1_000) if quick else (1_000, 5_000)
    with process(_made_up, few, many) as run:
        made_up: Mapping[int, float] = ask(run)
    personas = people(more // 10)
    with process(
        _narrated, record(personas, play="narrated", mistakes=NARRATED_MISTAKES).answers, personas, some, more
    ) as run:
        narrated: Mapping[int, float] = ask(run)
    short, long = (100, 400) if quick else (500, 2_000)
    commanded = [(play, 1) for play in ("live", "narrated", "grounded")] + [("grounded", 2)]
    return Section(
        title="Memory",
        how=f"Peak memory of one run with {CONCURRENCY} episodes in flight, in relation to its peak at a smaller number of accepted trajectories. Engine alone: "
        "everything around an invented episode. Narrated: everything but the network. From the command line: the largest process of "
        "`refinesynth run` with the rehearsal and the default of 16 in flight.",
        figures=(
            _figure("engine alone", made_up, few, many),
            _figure("narrated", narrated, some, more),
            *(
                _figure(
                    f"{play} from the command line{f', {count} workers' if count > 1 else ''}",
                    peaks(play, (short, long), count),
                    short,
                    long,
                )
                for play, count in commanded
            ),
        ),
    )


def _figure(what: str, peaks: Mapping[int, float], few: int, many: int) -> Figure:
    return Figure(
        what=f"{what}, peak at {many:,} beside {few:,}",
        value=peaks[many],
        unit="MiB",
        reference=peaks[few],
        goal=1.1,
        of_ratio=True,
    )


class _Peaks:
    """Peak memory in MiB when so many are accepted."""

    def __init__(self, *at: int) -> None:
        self._at = at
        self.found: dict[int, float] = {}

    def look(self, progress: Progress) -> None:
        for count in self._at:
            if progress.accepted >= count and count not in self.found:
                self.found[count] = peak_rss()


def _made_up(parent: Connection, few: int, many: int) -> None:
    from refinesynth import episode

    sample = asyncio.run(_sample())

    async def play(persona: Persona, *, index: int, **_: Any) -> EpisodeOutcome:
        # Episodes end out of their order, as they do.
        for _turn in range(random.randrange(20)):
            await checkpoint()
        name = f"{index:06d}-bench"
        trajectory = sample.model_copy(update={"id": name, "persona": persona})
        return EpisodeOutcome(
            index=index, id=name, persona=persona, trajectories=(trajectory,), usage=sample.provenance.usage
        )

    episode.play_episode = play
    calm()
    found = _Peaks(few, many)
    everybody = (Persona(text=f"Somebody with the number {number}") for number in range(many))
    asyncio.run(_run(everybody, many, found))
    parent.send(found.found)


async def _sample() -> rs.Trajectory:
    with tempfile.TemporaryDirectory() as folder:
        result = await rs.synthesize(people(1), n=1, output=Path(folder) / "run")
        return next(iter(result))


def _narrated(parent: Connection, recorded: Recorded, personas: list[str], few: int, many: int) -> None:
    from refinesynth.client.session import SESSION_HEADER

    # One answer to each request: a recording that counts what it said to whom would grow with the run.
    recorded = Recorded({asked: known[-1:] for asked, known in recorded.bodies.items()})

    async def call(**request: Any) -> object:
        session = request["extra_headers"][SESSION_HEADER].encode()
        await checkpoint()
        answer = recorded.answer(session, digest(request["messages"], session))
        if answer is None:
            raise RuntimeError("a run now asks otherwise than its recording")
        return orjson.loads(answer)

    calm()
    found = _Peaks(few, many)
    everybody = (Persona(text=text) for _ in range(2 * many // len(personas)) for text in personas)
    asyncio.run(_run(everybody, many, found, call=call, play="narrated", mistakes=NARRATED_MISTAKES))
    parent.send(found.found)


async def _run(personas: Any, n: int, found: _Peaks, **options: Any) -> None:
    from refinesynth.backends import Backend

    if "call" in options:
        options["backend"] = Backend(model=MODEL, base_url="http://127.0.0.1:1/v1")
    with tempfile.TemporaryDirectory() as folder:
        await rs.synthesize(
            personas, n=n, output=Path(folder) / "run", concurrency=CONCURRENCY, on_progress=found.look, **options
        )


if __name__ == "__main__":
    program(measure)
