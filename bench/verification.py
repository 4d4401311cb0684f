"""Verification: trajectories of 20 turns a second through the chains of rules, on one core.

python -m bench.verification [--quick]
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path

import anyio

import refinesynth as rs
from bench.figures import Figure, Section
from bench.measuring import ask, pin, process, program
from refinesynth.rules import Rule

TURNS = 20


def measure(*, quick: bool) -> Section:
    """Every chain over the same rehearsed trajectories, each with a script of its own."""
    pin("client")
    rounds = 3 if quick else 15
    trajectories = anyio.run(_synthesize, 60 if quick else 200)
    count = len(trajectories)
    lines = [found.to_json() for found in trajectories]
    drafts = [found.draft() for found in trajectories]
    with process(_first_sight, lines) as fresh:
        first = ask(fresh) / count
    reading = _best(lambda: [rs.Trajectory.from_json(line) for line in lines], rounds) / count

    def figure(name: str, rule: Rule, goal: float | None = None) -> Figure:
        rate = 1 / (_best(lambda: _verify(drafts, rule), rounds) / count)
        return Figure(what=name, value=rate, unit="/s", reference=1 / reading, goal=goal, aim="at least")

    return Section(
        title="Verification",
        how=f"{count} trajectories of {TURNS} turns, each with a script of its own, best of {rounds} rounds of CPU time; their patterns are compiled, as "
        "they are in a run after a script's first exchange. Ratios are to reading the same lines from JSON.",
        figures=(
            Figure(what="reading a line", value=1 / reading, unit="/s", reference=1 / reading),
            figure("agentrefine()", rs.rules.agentrefine(), goal=5_000),
            figure("strict()", rs.rules.strict(), goal=2_000),
            Figure(what="strict(), seen for the first time", value=1 / first, unit="/s", reference=1 / reading),
            figure("script()", rs.rules.script()),
        ),
    )


async def _synthesize(count: int) -> list[rs.Trajectory]:
    with tempfile.TemporaryDirectory() as folder:
        personas = rs.personas.shipped()[: 3 * count]
        result = await rs.synthesize(personas, n=3 * count, backend="rehearsal", output=Path(folder) / "run")
        # `agentrefine()` asks for two mistakes, of which a run makes one or more.
        chosen = (found for found in result if len(found.turns) == TURNS and len(found.mistakes()) > 1)
        return list(islice(chosen, count))


def _first_sight(parent: Connection, lines: Sequence[bytes]) -> None:
    """In a fresh process, where no pattern is compiled yet."""
    pin("client")
    drafts = [rs.Trajectory.from_json(line).draft() for line in lines]
    strict = rs.rules.strict()
    parent.send(_seconds(lambda: _verify(drafts, strict)))


def _verify(drafts: Sequence[rs.Draft], rule: Rule) -> None:
    for draft in drafts:
        if not rs.rules.verify(draft, rule).accepted:
            raise AssertionError("a trajectory that the run accepted is refused now")


def _best(work: Callable[[], object], rounds: int) -> float:
    """Seconds of CPU of the best round, after one that fills the caches of compiled patterns."""
    work()
    return min(_seconds(work) for _ in range(rounds))


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    program(measure)
