"""`refinesynth report` on a large run: seconds and peak memory, beside a bare read of the same lines.

    python -m bench.evaluate.report [N]

The run is rehearsed once for some hundred trajectories, whose lines are then repeated under other ids until there are N
(by default 32,000). Each measurement is a process of its own.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio

import refinesynth as rs

REHEARSED = 250


def main() -> None:
    if len(sys.argv) > 2:
        measure(sys.argv[1], Path(sys.argv[2]))
        return
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 32_000
    with tempfile.TemporaryDirectory() as folder:
        run = large_run(Path(folder) / "run", number)
        for what in ("bare", "report"):
            subprocess.run([sys.executable, "-m", "bench.evaluate.report", what, str(run)], check=True)


def measure(what: str, run: Path) -> None:
    from refinesynth.report import write_report

    begun = time.perf_counter()
    if what == "bare":
        with (run / "trajectories.jsonl").open("rb") as lines:
            records = sum(1 for _ in lines)
    else:
        write_report(run, run.with_name("report.html"))
        with (run / "trajectories.jsonl").open("rb") as lines:
            records = sum(1 for _ in lines)
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{what:<6} {records:>7,} trajectories {seconds:8.1f} s {peak:7.0f} MiB", flush=True)


def large_run(folder: Path, number: int) -> Path:
    """A run without a journal, as if its lines had been copied: the slowest case, as counts come from the lines."""

    async def rehearse() -> None:
        await rs.synthesize(n=min(number, REHEARSED), backend="rehearsal", output=folder)

    anyio.run(rehearse)
    lines = (folder / "trajectories.jsonl").read_bytes().splitlines()
    ids = [trajectory.id.encode() for trajectory in rs.SynthesisResult.open(folder)]
    with (folder / "trajectories.jsonl").open("wb") as file:
        for at in range(number):
            own, line = ids[at % len(ids)], lines[at % len(lines)]
            file.write(line.replace(own, b"%06d%s" % (at, own[6:])) + b"\n")
    (folder / "journal.sqlite").unlink()
    return folder


if __name__ == "__main__":
    main()
