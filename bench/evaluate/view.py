"""`refinesynth view` on a large run: seconds per 1,000 trajectories and peak memory, beside the bare write of such logs.

    python -m bench.evaluate.view [N]

The run is rehearsed once for some hundred trajectories, whose lines are then repeated under other ids until there are N
(by default 32,000). Each measurement is a process of its own.
"""

import itertools
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
        for what in ("bare", "all", "again"):
            subprocess.run([sys.executable, "-m", "bench.evaluate.view", what, str(run)], check=True)


def measure(what: str, run: Path) -> None:
    from inspect_ai.log import read_eval_log, write_eval_log

    from refinesynth.evaluate.inspect_logs import write_logs

    if what == "bare":
        part = run.with_name("part")
        part.mkdir()
        (part / "config.json").write_bytes((run / "config.json").read_bytes())
        with (run / "trajectories.jsonl").open("rb") as lines:
            (part / "trajectories.jsonl").write_bytes(b"".join(itertools.islice(lines, 1_000)))
        (path,) = write_logs(part).glob("*.eval")
        log = read_eval_log(str(path))
        begun = time.perf_counter()
        write_eval_log(log, str(part / "again.eval"))
        samples = len(log.samples or [])
    else:
        samples = 0

        def tell(written: int) -> None:
            nonlocal samples
            samples = written

        begun = time.perf_counter()
        write_logs(run, tell)
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{what:<6} {samples:>7,} {seconds:8.1f} s {1000 * seconds / samples:7.2f} s per 1,000 {peak:7.0f} MiB",
        flush=True,
    )


def large_run(folder: Path, number: int) -> Path:
    """A run without a journal, as if its lines had been copied."""

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
