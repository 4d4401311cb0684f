"""BabyAI solved by its search, and played at random:

python -m bench.evaluate.babyai_oracle DATA
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean

from refinesynth.evaluate.environments.babyai import BENCHMARK
from refinesynth.evaluate.environments.environment import Instance, Source
from tests.evaluate.solving_environments import SolvingBabyAI as BabyAI

SEEDS, REPEATS = 5, 10


def main(data: Path) -> None:
    levels = list(BENCHMARK.instances(Source(data)))
    print(f"{'player':10}{'episodes':>9}{'success':>9}{'progress':>9}{'actions':>9}{'CPU s':>8}")
    environment = BabyAI()
    begun = time.process_time()
    found = {level.id: _solution(environment, level) for level in levels}
    print(f"{'(search)':10}{len(levels):9}{'':27}{time.process_time() - begun:8.1f}")
    _report(environment, "oracle", levels * REPEATS, _scripted(found))
    for seed in range(SEEDS):
        _report(environment, f"random {seed}", levels, _random(environment, Random(seed)))


def _solution(environment: BabyAI, level: Instance) -> Sequence[str]:
    environment.reset(level)
    return environment.solution() or ()


def _scripted(found: Mapping[str, Sequence[str]]) -> Callable[[Instance, int], str | None]:
    return lambda level, turn: next(iter(found[level.id][turn:]), None)


def _random(environment: BabyAI, random: Random) -> Callable[[Instance, int], str | None]:
    return lambda _level, _turn: random.choice(environment.valid_actions())


def _report(
    environment: BabyAI, player: str, levels: Sequence[Instance], act: Callable[[Instance, int], str | None]
) -> None:
    won, progress, actions, begun = 0, list[float](), 0, time.process_time()
    for level in levels:
        environment.reset(level)
        reached, success, turn = 0.0, False, 0
        while turn < BENCHMARK.steps and (action := act(level, turn)) is not None:
            step = environment.step(action)
            reached, success, turn = step.progress, step.success, turn + 1
            if step.done:
                break
        won, actions = won + success, actions + turn
        progress.append(reached)
    share, mean = won / len(levels), fmean(progress)
    print(f"{player:10}{len(levels):9}{share:9.1%}{mean:9.1%}{actions:9}{time.process_time() - begun:8.1f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
