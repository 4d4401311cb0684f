"""The experiment with a real pretrained model, unit by unit: an arm of a seed is trained and plays.

    python -m bench.real                                    what is measured, what is missing, and for how long
    python -m bench.real run --limit-minutes 30             the next missing units that fit into this time
    python -m bench.real run --arm full --seed 0 --device cuda
    python -m bench.real report                             tables and plot into docs/experiments/real-model.md

The outcomes of a unit are a file of their own in bench/real/results. Commit them: another session or machine measures
the others.
"""

import argparse
import os
import runpy
import statistics
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.real.data import ARMS, SIZES, write
from bench.real.report import PAGE, picture, read_results, report
from bench.real.unit import CACHE, RESULTS, path_of, run

SEEDS = {"experiment": 5, "large": 8, "pilot": 1, "smoke": 1}
_GUESSED = {"cpu": 1_000.0, "cuda": 90.0}
"""Seconds of a unit, where none is measured on the device."""


def main() -> int:
    """0 when everything that was asked for is measured, 1 when units are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", default="status", choices=("status", "data", "run", "report"))
    parser.add_argument("--size", default="experiment", choices=tuple(SIZES))
    parser.add_argument("--arm", choices=tuple(ARMS), help="all by default")
    parser.add_argument("--seed", type=int, help="all by default")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--limit-minutes", type=float, help="begin no unit that would end later")
    parser.add_argument("--workers", type=int, default=1, help="units at once; on a CPU each has one thread")
    parser.add_argument("--model", type=Path, help="GGUF file or folder; by default SmolLM2 from the package index")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return _do(_checked(parser))


def _checked(parser: argparse.ArgumentParser) -> argparse.Namespace:
    asked = parser.parse_args()
    if asked.limit_minutes is not None and asked.limit_minutes <= 0:
        parser.error(f"--limit-minutes is {asked.limit_minutes:g}; expected minutes above 0")
    if asked.workers < 1 or (asked.seed or 0) < 0:
        parser.error(f"--workers is {asked.workers} and --seed {asked.seed}; expected 1 or more, and 0 or more")
    if asked.model is not None and not asked.model.exists():
        parser.error(f"--model is {asked.model}, which is not there; expected a GGUF file or a folder of a model")
    if asked.command == "run" and asked.device == "cuda" and not _has_gpu():
        parser.error("--device is cuda, and PyTorch sees no GPU here; run on a machine with one, or with --device cpu")
    return asked


def _do(asked: argparse.Namespace) -> int:
    if asked.command == "report":
        return _report(asked.results, asked.size)
    seeds = range(SEEDS[asked.size]) if asked.seed is None else [asked.seed]
    units = [(arm, seed) for seed in seeds for arm in ARMS if asked.arm in {None, arm} and (ARMS[arm] or not seed)]
    missing = [unit for unit in units if not path_of(*unit, asked.size, asked.results).exists()]
    seconds = _seconds(asked.results, asked.size, asked.device)
    print(f"{len(units) - len(missing)} of {len(units)} units of the size {asked.size!r} are measured.")
    if asked.command == "data":
        for seed in seeds:
            write(CACHE / asked.size, seed, SIZES[asked.size])
        return 0
    if asked.command == "status" or not missing:
        for arm, seed in missing:
            print(f"missing: {arm}, seed {seed}")
        if missing:
            print(f"about {len(missing) * seconds / 3600:.1f} hours of {asked.device}, {seconds:.0f} s a unit")
        return 0
    try:
        return _run(missing, asked, seconds)
    except KeyboardInterrupt:
        print("stopped; the same command goes on with the unit that was begun", file=sys.stderr)
        return 130


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _seconds(results: Path, size: str, device: str) -> float:
    """Median of the units that were measured on such a device."""
    known = [
        sum(one["seconds"].values())
        for one in read_results(results / size)
        if ("thread" in one["device"]) == (device == "cpu") and one["training"]
    ]
    return statistics.median(known) if known else _GUESSED[device]


def _run(missing: list[tuple[str, int]], asked: argparse.Namespace, seconds: float) -> int:
    os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}
    os.environ.setdefault("REFINESYNTH_CACHE", str(CACHE))
    model = asked.model or runpy.run_path(str(Path(__file__).parents[2] / "tests" / "real_model.py"))["smollm2"]()
    ends = time.monotonic() + 60 * (asked.limit_minutes or 1e9)
    todo, going = list(missing), dict[Future[Any], tuple[str, int]]()
    with ProcessPoolExecutor(asked.workers, mp_context=get_context("spawn")) as workers:
        while going or (todo and time.monotonic() + seconds <= ends):
            while todo and len(going) < asked.workers and time.monotonic() + seconds <= ends:
                arm, seed = todo.pop(0)
                write(CACHE / asked.size, seed, SIZES[asked.size])
                how = {"size": asked.size, "model": model, "device": asked.device, "results": asked.results}
                going[workers.submit(run, arm, seed, **how)] = (arm, seed)
            for one in wait(going, return_when=FIRST_COMPLETED).done:
                arm, seed = going.pop(one)
                spent = one.result()["seconds"]
                seconds = max(float(sum(spent.values())), 1.0)
                print(f"{arm}, seed {seed}: {spent}", file=sys.stderr, flush=True)
    if todo:
        print(f"{len(todo)} units are missing; the same command goes on.")
    return int(bool(todo))


def _report(results: Path, size: str) -> int:
    from bench.page import write_section

    found = read_results(results / size)
    if not found:
        print(f"nothing is measured in {results / size}; run `python -m bench.real run --size {size}` first")
        return 2
    text = report(found)
    print(text)
    if len({one["arm"] for one in found}) > 1:
        picture(found, PAGE.parents[1] / "images" / f"real-model-{size}.png")
        text += f"\n\n![Success from each start, a dot for each seed](../images/real-model-{size}.png)"
    write_section(f"bench.real report --size {size}", f"What was measured: {size}", text, page=PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
