"""Neighbours: the same simple job in Bespoke Curator, NeMo Data Designer and refinesynth, and after a kill.

python -m bench.rivals [--quick]; once before, python -m bench.rivals.setup
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Figure, Section
from bench.measuring import pin, program
from bench.rivals.jobs import CONCURRENCY, Job, neighbour, our_calls, our_run
from bench.server import Served, served

LATENCY = 200
"""Of the server, in milliseconds."""


@dataclass(frozen=True)
class Ended:
    """A command that ran to its end."""

    cpu: float
    """Seconds, its children's included."""
    mib: float
    """Of memory, at most."""
    rate: float
    """Answers a second from the first request to the last answer."""
    made: int


def measure(*, quick: bool) -> Section:
    """Each job alone, one after the other."""
    completions = 200 if quick else 1000
    with tempfile.TemporaryDirectory() as folder:
        jobs = (
            neighbour("Bespoke Curator", "curator", completions=completions),
            neighbour("NeMo Data Designer", "designer", completions=completions),
            our_calls(completions=completions),
            our_run(Path(folder), completions=completions),
        )
        figures = [figure for job in jobs for figure in _figures(job, quick=quick)]
    return Section(
        title="Neighbours",
        how=f"{completions:,} completions at {LATENCY} ms, at most {CONCURRENCY} in flight, one run each. The task is a sentence about a person; the narrated run "
        "writes and verifies scripts and trajectories, with prompts of 24,000 characters. CPU excludes start-up. After the kill the same command is repeated, and the server counts repeated requests.",
        figures=tuple(figures),
    )


def _figures(job: Job, *, quick: bool) -> Iterator[Figure]:
    if job.missing is not None:
        yield Figure(what=job.name, value=None, note=job.missing)
        return
    if not quick:
        # Brings the files into the system's cache.
        _run(job, only_one=True)
    start = _run(job, only_one=True)
    ended = _run(job)
    cpu = (ended.cpu - start.cpu) / job.completions * 1000
    note = f"{ended.rate:,.0f} calls/s, {ended.mib:,.0f} MiB, start-up {start.cpu:.1f} s CPU"
    yield Figure(what=job.name, value=cpu, unit="ms CPU per call", note=note)
    if not quick:
        yield from _killed(job)


def _killed(job: Job) -> Iterator[Figure]:
    """Killed when two fifths of the answers are out, and started again."""
    with served(job.answers) as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _started(job, server, folder) as process:
            before = server.traffic()
            while process.poll() is None and before["answered"] < job.completions * 0.4:
                time.sleep(0.01)
                before = server.traffic()
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        ended = _to_the_end(job, server, folder)
        after = server.traffic()
    asked = f"killed with {before['answered']:,.0f} answered and {before['in_flight']:,.0f} not"
    yield Figure(
        what=f"{job.name}, lost after kill -9",
        value=job.results - ended.made,
        goal=0 if job.is_ours else None,
        note=asked,
    )
    again = after["requests"] - after["distinct"]
    yield Figure(
        what=f"{job.name}, asked again after kill -9",
        value=again,
        goal=CONCURRENCY if job.is_ours else None,
        note=asked,
    )


def _run(job: Job, *, only_one: bool = False) -> Ended:
    with served(job.answers) as server, tempfile.TemporaryDirectory() as folder:
        return _to_the_end(job, server, Path(folder), only_one=only_one)


def _to_the_end(job: Job, server: Served, folder: Path, *, only_one: bool = False) -> Ended:
    with _started(job, server, folder, only_one=only_one) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    printed = (folder / "printed").read_text(encoding="utf-8")
    # A run of ours that played all of its personas had fewer than it was asked for, on purpose.
    if process.returncode not in (0, 1) or not printed.strip():
        raise RuntimeError(f"{job.name} failed: {(folder / 'errors').read_text(encoding='utf-8')[-3000:]}")
    traffic = server.traffic()
    return Ended(
        cpu=used.ru_utime + used.ru_stime,
        mib=used.ru_maxrss / 1024,
        rate=traffic["answered"] / max(traffic["seconds"], 0.001),
        made=job.made(folder, printed),
    )


@contextmanager
def _started(job: Job, server: Served, folder: Path, *, only_one: bool = False) -> Generator[subprocess.Popen[bytes]]:
    """Its process, in a group of its own, on the client's core."""
    command = job.command(server.base_url(LATENCY), folder, only_one)
    with (folder / "printed").open("wb") as printed, (folder / "errors").open("wb") as errors:
        environment = {**os.environ, **job.environment}
        process = subprocess.Popen(command, env=environment, stdout=printed, stderr=errors, start_new_session=True)
        pin("client", process.pid)
        yield process


if __name__ == "__main__":
    program(measure)
