"""Does a tuned model learn from its own mistakes, round by round?

    python -m bench.rounds [--seeds 2-7] [--rounds 3] [--worlds 128] [--workers 2]
    python -m bench.rounds --report

A base model of `bench.ablation` is tuned on plays of a teacher. In each round it then plays scripts that nobody has
played, as `refinesynth run --scripts` has it, and the base is tuned anew on the teacher's plays and on all of its own
that reached the goal. Beside it: the same number of trained tokens, all of them the teacher's. The same command goes
on, model by model; docs/ablation.md says what is asked.
"""

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from bench.rounds.one_seed import one_seed

RESULTS = Path(__file__).parents[1] / "ablation" / "results" / "rounds"
PAGE = Path(__file__).parents[2] / "docs" / "ablation.md"

_TOKENS = 15_000
"""With loss, of the first tuning; each round adds as many."""
_SCRIPTS = 400
"""Played in each round."""
_MOST_STEPS = 6_000
"""Of a pretraining."""


def main() -> int:
    """0 when everything that was asked for is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="2-7", help="a range, such as 2-7")
    parser.add_argument("--rounds", type=int, default=3, help="tunings after the first one")
    parser.add_argument("--worlds", type=int, default=128, help="held-out worlds from each start")
    parser.add_argument("--scripts", type=int, default=_SCRIPTS, help="played in each round")
    parser.add_argument("--tokens", type=int, default=_TOKENS, help="trained tokens that each round adds")
    parser.add_argument("--steps", type=int, default=_MOST_STEPS, help="of a pretraining at most")
    parser.add_argument("--workers", type=int, default=2, help="processes, of one thread each")
    parser.add_argument("--results", type=Path, default=RESULTS, help="a folder; its models are not measured again")
    parser.add_argument("--report", action="store_true", help="write the table into docs/ablation.md")
    asked = parser.parse_args()
    if asked.report:
        return _report(asked.results)
    first, _, last = asked.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    one = partial(
        one_seed,
        results=asked.results,
        rounds=asked.rounds,
        worlds=asked.worlds,
        scripts=asked.scripts,
        tokens=asked.tokens,
        steps=asked.steps,
    )
    with ProcessPoolExecutor(asked.workers, mp_context=get_context("spawn")) as workers:
        for seed, made in zip(seeds, workers.map(one, seeds), strict=True):
            print(f"seed {seed}: {made} models measured", file=sys.stderr, flush=True)
    return 0


def _report(results: Path) -> int:
    from bench.page import write_section
    from bench.rounds.report import picture, read_rounds, report

    models = read_rounds(results)
    text = report(models)
    print(text)
    picture(models, PAGE.parent / "images" / "rounds.png")
    write_section("bench.rounds", "Learning from one's own mistakes", text, page=PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
