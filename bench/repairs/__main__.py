"""The experiments on own mistakes and repairs, unit by unit: an arm of a seed is tuned and plays.

    python -m bench.repairs                             what is measured, what is missing, and for how long
    nice -n 19 python -m bench.repairs run              the missing units; the same command goes on where it was stopped
    python -m bench.repairs run --experiment gradient --seeds 20,21
    python -m bench.repairs report                      tables into docs/experiments/student-teacher.md

The outcomes of a unit are a file of their own in bench/repairs/results. Commit them: another session or machine measures
the others. The page says what is asked.
"""

import argparse
import os
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import orjson

from bench.repairs.unit import ARMS, CACHE, RESULTS, Sizes, path_of, run

PAGE = Path(__file__).parents[2] / "docs" / "experiments" / "student-teacher.md"
_GUESSED = {"base": 800.0, "price": 70.0, "gradient": 110.0, "rounds": 280.0}
"""Seconds of a core for a unit, where none is measured."""


def main() -> int:
    """0 when everything that was asked for is measured, 1 when units are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", default="status", choices=("status", "run", "report"))
    parser.add_argument("--experiment", choices=tuple(ARMS), help="all by default, in this order")
    parser.add_argument("--seeds", default="20,21,22,23,24,25", help="separated by commas")
    parser.add_argument("--workers", type=int, default=2, help="processes, of one thread each")
    parser.add_argument("--results", type=Path, default=RESULTS, help="a folder; its units are not measured again")
    parser.add_argument("--cache", type=Path, default=CACHE, help="a folder of base models and of what was played")
    asked = parser.parse_args()
    seeds = list(dict.fromkeys(one.strip() for one in str(asked.seeds).split(",")))
    if asked.workers < 1 or not all(one.isdecimal() for one in seeds):
        parser.error(
            f"--workers is {asked.workers} and --seeds {asked.seeds!r}; expected 1 or more, and seeds as 20,21"
        )
    if asked.command == "report":
        return _report(asked.results)
    experiments = [asked.experiment] if asked.experiment else list(ARMS)
    missing = {
        (experiment, int(seed)): arms
        for experiment in experiments
        for seed in seeds
        if (arms := _missing(experiment, int(seed), asked.results))
    }
    every = len(seeds) * sum(len(ARMS[one]) for one in experiments)
    print(f"{every - sum(map(len, missing.values()))} of {every} units are measured.")
    _tell(missing, asked.results, asked.cache)
    return int(bool(missing)) if asked.command == "status" else _run(list(missing), asked)


def _missing(experiment: str, seed: int, results: Path) -> list[str]:
    """Arms that are missing."""
    return [arm for arm in ARMS[experiment] if not path_of(experiment, arm, seed, results).exists()]


def _tell(missing: dict[tuple[str, int], list[str]], results: Path, cache: Path) -> None:
    """Print what is missing, and how long it takes."""
    seconds = 0.0
    for (experiment, seed), arms in missing.items():
        print(f"missing: {experiment}, seed {seed}: {'; '.join(arms)}")
        known = [orjson.loads(path.read_bytes())["seconds"] for path in (results / experiment).glob("*.json")]
        each = statistics.median([sum(one.values()) for one in known]) if known else _GUESSED[experiment]
        seconds += len(arms) * each
    bases = {seed for _, seed in missing if not (cache / f"seed-{seed:02d}" / "base.json").exists()}
    if missing:
        print(f"{len(bases)} base models are to be pretrained.")
        print(f"about {(seconds + len(bases) * _GUESSED['base']) / 3600:.1f} hours of one core")


def _run(todo: list[tuple[str, int]], asked: argparse.Namespace) -> int:
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    one = partial(run, results=asked.results, cache=asked.cache, sizes=Sizes())
    failed = 0
    with ProcessPoolExecutor(asked.workers, mp_context=get_context("spawn")) as workers:
        going = {workers.submit(one, *unit): unit for unit in todo}
        try:
            for future in as_completed(going):
                if error := future.exception():
                    failed = 1
                    print(f"{going[future]} failed: {error!r}; the others go on", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            workers.shutdown(wait=False, cancel_futures=True)
            print("stopped; the same command goes on with the unit that was begun", file=sys.stderr)
            return 130
    return failed


def _report(results: Path) -> int:
    from bench.page import write_section
    from bench.repairs.report import TABLES, read_results

    units = read_results(results)
    for experiment, table in TABLES.items():
        text = table(units)
        print(f"{text}\n")
        write_section(f"bench.repairs report, {experiment}", f"What was measured: {experiment}", text, page=PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
