"""What of the data teaches a model to repair its mistakes: small models, tuned in six ways, in worlds they have not seen.

    python -m bench.ablation [--seeds 0-11] [--worlds 256] [--workers 2] [--variants "full,at least two"]
    python -m bench.ablation --report

The same command goes on: each model's figures are a file of their own in the folder of results. docs/ablation.md says
what is asked and how it is analysed.
"""

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from bench.ablation.one_seed import one_seed

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[2] / "docs" / "ablation.md"

TOKENS = 60_000
"""With loss, on which each variant is tuned: about 600 plays."""
_MOST_STEPS = 6_000
"""Of a pretraining."""


def main() -> int:
    """0 when everything that was asked for is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", default="ablation", choices=("ablation", "generalisation"))
    parser.add_argument("--seeds", default="0-11", help="a range, such as 0-11")
    parser.add_argument("--worlds", type=int, default=256, help="held-out worlds of the primary endpoint")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="trained tokens of each variant")
    parser.add_argument("--steps", type=int, default=_MOST_STEPS, help="of a pretraining at most")
    parser.add_argument("--workers", type=int, default=2, help="processes, of one thread each")
    parser.add_argument("--variants", default="", help="names, separated by commas; all of them by default")
    parser.add_argument("--results", type=Path, help="a folder; its models are not measured again")
    parser.add_argument("--report", action="store_true", help="write tables and picture into docs/ablation.md")
    asked = parser.parse_args()
    if asked.report:
        return _report(asked.experiment, asked.results or RESULTS / asked.experiment)
    first, _, last = asked.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    variants = tuple(name.strip() for name in str(asked.variants).split(",") if name.strip())
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    one = partial(
        one_seed,
        experiment=asked.experiment,
        results=asked.results or RESULTS / asked.experiment,
        worlds=asked.worlds,
        tokens=asked.tokens,
        steps=asked.steps,
        variants=variants,
    )
    with ProcessPoolExecutor(asked.workers, mp_context=get_context("spawn")) as workers:
        for seed, made in zip(seeds, workers.map(one, seeds), strict=True):
            print(f"seed {seed}: {made} models measured", file=sys.stderr, flush=True)
    return 0


def _report(experiment: str, results: Path) -> int:
    from bench.ablation.experiments import EXPERIMENTS
    from bench.ablation.report import Told, picture, read_results, report
    from bench.page import write_section

    models, asked = read_results(results), EXPERIMENTS[experiment]
    told = Told(tuple(one.name for one in asked.variants(0)), asked.starts(1)[0].name, asked.clean)
    text = report(models, told)
    print(text)
    picture(models, told, PAGE.parent / "images" / f"{experiment}.png")
    write_section(f"bench.ablation --experiment {experiment}", asked.heading, text, page=PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
