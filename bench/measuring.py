"""What the programs share: their command line, a process on a core of its own, what a process used."""

import argparse
import gc
import multiprocessing as mp
import os
import resource
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from bench.figures import Section, table
from refinesynth.synthesis.concurrency import tune_gc

Core = Literal["client", "server"]
"""Whose core: on a machine with two or more, what is measured and what serves it do not share one."""


class Measure(Protocol):
    """What a program does."""

    def __call__(self, *, quick: bool) -> Section: ...


def program(measure: Measure) -> Section:
    """The command line of one program: measure, print the table, and write it down where `--json` says so. Gives what was
    found.
    """
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, for a first look")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    asked = parser.parse_args()
    section = measure(quick=asked.quick)
    print(f"{section.how}\n\n{table([section])}")
    if asked.json is not None:
        asked.json.write_bytes(section.to_json())
    return section


def pin(core: Core, pid: int = 0) -> None:
    """Keep a process, this one unless said otherwise, on its core, as far as the machine has two and the system can."""
    if hasattr(os, "sched_setaffinity") and len(cores := sorted(os.sched_getaffinity(pid))) > 1:
        os.sched_setaffinity(pid, {cores[0] if core == "client" else cores[-1]})


def calm() -> None:
    """Set the garbage collector as the command line does for a run, once everything is imported."""
    gc.collect()
    tune_gc()


@dataclass(frozen=True, slots=True)
class Used:
    """What a process used since some moment, all of its threads together."""

    cpu: float
    """Seconds."""
    wall: float
    """Seconds."""

    @classmethod
    def now(cls) -> Self:
        """Since the process began, and since no particular moment."""
        return cls(cpu=time.process_time(), wall=time.perf_counter())

    def __sub__(self, earlier: "Used") -> "Used":
        return Used(cpu=self.cpu - earlier.cpu, wall=self.wall - earlier.wall)


def cpu_of(pid: int) -> float:
    """Seconds of CPU that another process has used; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss() -> float:
    """MiB of memory that this process holds now; its peak where the system does not tell."""
    return _status("VmRSS") or _most_so_far()


def peak_rss(pid: int | None = None) -> float:
    """MiB of memory that this process held at most so far; or another one, then 0 if it has ended or the system does
    not tell."""
    if pid is not None:
        return _status("VmHWM", str(pid))
    # What getrusage says begins with the peak of the process that started this one.
    return _status("VmHWM") or _most_so_far()


def _most_so_far() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def _status(name: str, pid: str = "self") -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    # A process that has ended and was not asked for its exit code yet has no memory to tell of.
    return next((int(line.split()[1]) / 2**10 for line in lines if line.startswith(f"{name}:")), 0.0)


@contextmanager
def process(target: Callable[..., None], *arguments: Any) -> Generator[Connection]:
    """A fresh process that runs `target(connection, *arguments)`; it is ended when the block is left."""
    spawn = mp.get_context("spawn")
    ours, theirs = spawn.Pipe()
    child = spawn.Process(target=target, args=(theirs, *arguments), daemon=True)
    child.start()
    theirs.close()
    try:
        yield ours
    finally:
        child.terminate()
        child.join()
        ours.close()


def ask(connection: Connection, question: object = None) -> Any:
    """What a process answers to `question`; RuntimeError if it ended instead."""
    try:
        if question is not None:
            connection.send(question)
        return connection.recv()
    except (EOFError, OSError):
        raise RuntimeError("a process ended before it answered; its traceback is above") from None
