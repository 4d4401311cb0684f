"""Does a policy gradient in a run's worlds make a tuned model better in worlds that it has not seen?

    python -m bench.rl [--seeds 0,1,3] [--updates 100] [--worlds 64] [--workers 2]
    python -m bench.rl --report

A base model of `bench.ablation` is tuned on plays of a teacher. Then it plays the worlds of these plays itself,
several times each, and is updated towards the plays that earned more than others in the same world. Success in held-out
worlds is measured before and after. The same command goes on, seed by seed; docs/ablation.md says what is asked.

The update is our own. TRL's GRPOTrainer, which `tests/parity` runs in our worlds, takes a model that calls tools with a
chat template that it knows; these models write `Thought: ... Action: ...` with a template of three tokens.
"""

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from bench.rl.one_seed import Sizes, one_seed

RESULTS = Path(__file__).parents[1] / "ablation" / "results" / "rl"
MODELS = Path(__file__).parents[2] / "runs" / "rl"
PAGE = Path(__file__).parents[2] / "docs" / "ablation.md"


def main() -> int:
    """0 when everything that was asked for is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,3", help="separated by commas")
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--groups", type=int, default=4, help="worlds in each update")
    parser.add_argument("--plays", type=int, default=4, help="of each of these worlds")
    parser.add_argument("--rate", type=float, default=3e-4, help="learning rate of the updates")
    parser.add_argument("--worlds", type=int, default=64, help="held-out worlds of the endpoint")
    parser.add_argument("--tokens", type=int, default=15_000, help="trained tokens of the tuning")
    parser.add_argument("--workers", type=int, default=2, help="processes, of one thread each")
    parser.add_argument("--results", type=Path, default=RESULTS, help="a folder; its seeds are not measured again")
    parser.add_argument("--models", type=Path, default=MODELS, help="a folder; its bases are not pretrained again")
    parser.add_argument("--report", action="store_true", help="write the table into docs/ablation.md")
    asked = parser.parse_args()
    if asked.report:
        return _report(asked.results)
    seeds = [int(seed) for seed in str(asked.seeds).split(",")]
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    sizes = Sizes(**{name: getattr(asked, name) for name in Sizes._fields})
    one = partial(one_seed, results=asked.results, models=asked.models, sizes=sizes)
    with ProcessPoolExecutor(asked.workers, mp_context=get_context("spawn")) as workers:
        for seed, new in zip(seeds, workers.map(one, seeds), strict=True):
            print(f"seed {seed}: {'measured' if new else 'was there'}", file=sys.stderr, flush=True)
    return 0


def _report(results: Path) -> int:
    from bench.page import write_section
    from bench.rl.report import report

    text = report(results)
    print(text)
    write_section("bench.rl", "A policy gradient in the worlds", text, page=PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
