"""Verification: trajectories a second through the chains, beside what reading them from disk costs in the same process.

python bench/verification.py [TRAJECTORIES]
"""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio

import refinesynth as rs
from refinesynth.rules import Rule

ROUNDS = 5


def main(count: int) -> None:
    trajectories = anyio.run(_synthesize, count)
    turns = sum(len(found.turns) for found in trajectories) / count
    print(
        f"{count} rehearsed trajectories of {turns:.1f} turns, each with a script of its own; best of {ROUNDS} rounds"
    )
    lines = [found.to_json() for found in trajectories]
    drafts = [found.draft() for found in trajectories]
    reading = _best(lambda: [rs.Trajectory.from_json(line) for line in lines])
    print(f"{'reading a line (reference)':32} {count / reading:9,.0f}/s   1.00")
    for name, rule in (
        ("agentrefine()", rs.rules.agentrefine()),
        ("strict()", rs.rules.strict()),
        ("script()", rs.rules.script()),
    ):
        took = _best(lambda rule=rule: _verify(drafts, rule))
        print(f"{name:32} {count / took:9,.0f}/s  {took / reading:5.2f}")


async def _synthesize(count: int) -> list[rs.Trajectory]:
    with tempfile.TemporaryDirectory() as folder:
        backend = "rehearsal:natural_mistake=0"
        return list(
            await rs.synthesize(rs.personas.shipped()[:count], n=count, backend=backend, output=Path(folder) / "run")
        )


def _verify(drafts: Sequence[rs.Draft], rule: Rule) -> None:
    for draft in drafts:
        rs.rules.verify(draft, rule)


def _best(work: Callable[[], object]) -> float:
    """Seconds of CPU of the best round, after one that fills the caches of compiled patterns."""
    work()
    times: list[float] = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
