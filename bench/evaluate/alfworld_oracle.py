"""All of ALFWorld's walkthroughs, how many of AgentBoard's subgoals their observations meet, and the walkthroughs again
under each perturbation, with the original wording tried first:

    python -m bench.evaluate.alfworld_oracle DATA
"""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from refinesynth.evaluate.environments.alfworld import BENCHMARK
from refinesynth.evaluate.environments.environment import Instance, Source
from refinesynth.evaluate.environments.perturbation import PERTURBATIONS, perturbed
from tests.evaluate.solving_environments import SolvingAlfWorld as AlfWorld


def main(data: Path) -> None:
    instances = BENCHMARK.instances(Source(data))
    environment = AlfWorld()
    _subgoals(environment, instances)
    print(f"{'perturbation':14}{'games':>6}{'won':>6}{'actions in other words':>24}{'refused in the original':>25}")
    for name in PERTURBATIONS:
        _in_other_words(environment, instances, name)


def _subgoals(environment: AlfWorld, instances: Sequence[Instance]) -> None:
    games, won, subgoals, met = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    missed: list[str] = []
    resets = steps = 0.0
    actions = 0
    for instance in instances:
        begun = time.perf_counter()
        environment.reset(instance)
        reset = time.perf_counter()
        walkthrough = environment.solution() or ()
        success = [environment.step(action).success for action in walkthrough][-1:] == [True]
        resets, steps, actions = resets + reset - begun, steps + time.perf_counter() - reset, actions + len(walkthrough)
        for kind in (instance.level, "all"):
            games[kind] += 1
            won[kind] += success
            subgoals[kind] += len(environment.subgoals)
            met[kind] += sum(environment.subgoals.values())
        missed += [f"{instance.id}: {pattern}" for pattern, found in environment.subgoals.items() if not found]
    print(f"{'kind':14}{'games':>6}{'won':>6}{'subgoals':>10}{'met':>6}")
    for kind in sorted(games, key="all".__eq__):
        print(f"{kind:14}{games[kind]:6}{won[kind]:6}{subgoals[kind]:10}{met[kind]:6}")
    print(f"reset {resets / len(instances):.2f} s, step {1_000 * steps / actions:.0f} ms", *missed, sep="\n  ")


def _in_other_words(environment: AlfWorld, instances: Sequence[Instance], name: str) -> None:
    swap, player = PERTURBATIONS[name], perturbed(environment, name)
    won = worded = refused = 0
    for instance in instances:
        player.reset(instance)
        success = False
        for action in map(swap, environment.solution()):
            if swap(action) != action:
                worded += 1
                refused += player.step(swap(action)).refused
            success = player.step(action).success
        won += success
    print(f"{name:14}{len(instances):6}{won:6}{worded:24}{refused:25}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
