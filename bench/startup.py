"""Start-up: an import, `--help`, and how soon a run that is gone on with makes its first new call.

python -m bench.startup [--quick]
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import anyio

from bench.figures import Figure, Section
from bench.measuring import program
from bench.recording import MODEL
from bench.server import Canned, Served, completion, served
from refinesynth.run import CompletedEpisode, EpisodeLine, RunFolder, RunWriter, fingerprint
from refinesynth.trajectory import Persona, Usage

IMPORTS = {
    "python -c pass": ("-c", "pass"),
    "import refinesynth": ("-c", "import refinesynth"),
    "refinesynth.rules": ("-c", "import refinesynth; refinesynth.rules"),
    "refinesynth.synthesize": ("-c", "import refinesynth; refinesynth.synthesize"),
    "refinesynth --help": ("-m", "refinesynth", "--help"),
}


def measure(*, quick: bool) -> Section:
    """Imports beside an interpreter that does nothing; resumed runs beside a new one."""
    rounds, launches = (3, 1) if quick else (9, 3)
    return Section(
        title="Start-up",
        how=f"Imports: median of {rounds} interleaved rounds, beside an interpreter that does nothing. Runs: from the command to its first request "
        f"over the path that `auto` takes, median of {launches}, beside a new run; the episodes that are finished have short records.",
        figures=(*_imports(rounds), *_runs((32_000,) if quick else (32_000, 1_000_000), launches)),
    )


def _imports(rounds: int) -> list[Figure]:
    taken: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for _ in range(rounds):
        for name, arguments in IMPORTS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            taken[name].append(time.perf_counter() - start)
    medians = {name: median(times) * 1000 for name, times in taken.items()}
    reference = next(iter(medians.values()))
    goals = {"import refinesynth": 300, "refinesynth --help": 300}
    return [
        Figure(what=name, value=took, unit="ms", reference=reference, goal=goals.get(name))
        for name, took in medians.items()
    ]


def _runs(sizes: Sequence[int], launches: int) -> list[Figure]:
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as name, served(Canned(completion("no script at all"))) as server:
        place = Path(name)
        personas = place / "personas.txt"
        people = (f"Somebody with the number {number}" for number in range(max(sizes) + 1000))
        personas.write_text("".join(f"{each}\n" for each in people), encoding="utf-8")
        fresh = median(_first_call(server, personas, place / f"new-{at}") for at in range(launches))
        figures.append(Figure(what="first call of a new run", value=fresh, unit="s", reference=fresh))
        for finished in sizes:
            folder = place / f"finished-{finished}"
            _first_call(server, personas, folder)
            anyio.run(_finish, folder, finished)
            took = median(_first_call(server, personas, folder) for _ in range(launches))
            goal = 2.0 if finished == sizes[0] else None
            what = f"first call with {finished:,} finished"
            figures.append(Figure(what=what, value=took, unit="s", reference=fresh, goal=goal))
    return figures


def _first_call(server: Served, personas: Path, folder: Path) -> float:
    """Seconds from the command to its first request; it is killed then."""
    run = (sys.executable, "-m", "refinesynth", "run", personas, "-n", str(10**7), "--concurrency", "4", "-o", folder)
    backend = ("--backend", MODEL, "--set", f"base_url={server.base_url(60_000)}")
    before = server.traffic()["requests"]
    start = time.time()
    with (folder.parent / "errors").open("wb") as errors:
        process = subprocess.Popen([*run, *backend], env=dict(os.environ), stdout=subprocess.DEVNULL, stderr=errors)
    while (now := server.traffic())["requests"] == before:
        if process.poll() is not None:
            raise RuntimeError(f"the run ended: {(folder.parent / 'errors').read_text(encoding='utf-8')[-3000:]}")
        time.sleep(0.05)
    # The last of the first few, which come together: nobody knows here which was the first.
    process.kill()
    process.wait()
    return now["last_request"] - start


async def _finish(folder: Path, count: int) -> None:
    """Go on with the run in `folder` as if so many episodes had come to an end, each with a short record."""
    run = RunWriter.claim(folder, RunFolder.open(folder).config)
    try:
        for start in range(0, count, 500):
            await run.append(*(_finished(index) for index in range(start, min(start + 500, count))))
    finally:
        run.close()


def _finished(index: int) -> CompletedEpisode:
    line = EpisodeLine(
        index=index,
        id=f"{index:06d}-bench",
        persona=fingerprint(Persona(text=f"Somebody with the number {index}")),
        accepted=True,
        trajectories=1,
        reason=None,
        scripts_refused=0,
        drafts_refused=0,
        by_rule={},
        violations={},
        usage=Usage(requests=20, input_tokens=40_000, output_tokens=4_000),
        cost_usd=0.01,
    )
    return CompletedEpisode(line=line, trajectories=(b'{"bench": true}',), rejected=())


if __name__ == "__main__":
    program(measure)
