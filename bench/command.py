"""A run from the command line, watched from outside: what its processes held at most when so many were accepted."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.measuring import peak_rss
from bench.recording import people

_LOOK = 0.5
"""Seconds between two looks."""


def peaks(play: str, at: Sequence[int], workers: int = 1) -> Mapping[int, float]:
    """By how many were accepted: MiB that the largest process of `refinesynth run`, offline, had held at most.

    Raises:
        RuntimeError: The run ended before.
    """
    most = max(at)
    with tempfile.TemporaryDirectory() as name:
        personas, folder = Path(name) / "personas.txt", Path(name) / "run"
        personas.write_text("\n".join(people(2 * most)), encoding="utf-8")
        asked = [str(personas), "-n", str(most), "--play", play, "--workers", str(workers), "-o", str(folder)]
        command = [sys.executable, "-m", "refinesynth", "run", *asked]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
            found: dict[int, float] = {}
            for accepted, peak in _looks(run, folder / "trajectories.jsonl"):
                for count in at:
                    if accepted >= count:
                        found.setdefault(count, peak)
        if len(found) < len(at):
            raise RuntimeError(f"the run ended with exit code {run.returncode} before {most:,} were accepted")
        return found


def _looks(run: subprocess.Popen[bytes], trajectories: Path) -> Iterator[tuple[int, float]]:
    """How many are accepted, and the highest peak of a process so far: again and again until the run has ended, and
    once then."""
    accepted, read, peak = 0, 0, 0.0
    ended = False
    while not ended:
        ended = run.poll() is not None
        peak = max(peak, *(peak_rss(pid) for pid in family(run.pid)))
        if trajectories.exists():
            with trajectories.open("rb") as lines:
                lines.seek(read)
                new = lines.read()
            accepted, read = accepted + new.count(b"\n"), read + len(new)
        yield accepted, peak
        if not ended:
            time.sleep(_LOOK)


def family(pid: int) -> Iterator[int]:
    """A process and all that it started, as far as the system tells."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found = children.read_text(encoding="utf-8").split()
        except OSError:
            continue
        for child in found:
            yield from family(int(child))
