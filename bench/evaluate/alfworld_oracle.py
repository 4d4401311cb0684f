"""All of ALFWorld's walkthroughs, and how many of AgentBoard's subgoals their observations meet:

python -m bench.evaluate.alfworld_oracle DATA
"""

import sys
import time
from collections import Counter
from pathlib import Path
from typing import get_args

from refinesynth.evaluate.environments.alfworld import BENCHMARK, AlfWorld
from refinesynth.evaluate.environments.environment import Compat, Source


def main(data: Path) -> None:
    for compat in get_args(Compat):
        environment = AlfWorld(compat=compat)
        games, won, subgoals, unmet = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
        missed: list[str] = []
        resets = steps = 0.0
        actions = 0
        for instance in BENCHMARK.instances(Source(data)):
            begun = time.perf_counter()
            environment.reset(instance)
            reset = time.perf_counter()
            walkthrough = environment.solution() or ()
            success = [environment.step(action).success for action in walkthrough][-1:] == [True]
            resets, steps, actions = (
                resets + reset - begun,
                steps + time.perf_counter() - reset,
                actions + len(walkthrough),
            )
            games[instance.level] += 1
            won[instance.level] += success
            failed = [pattern for pattern, met in environment.subgoals.items() if not met]
            subgoals[instance.level] += len(environment.subgoals)
            unmet[instance.level] += len(failed)
            missed += [f"{instance.id}: {pattern}" for pattern in failed]
        print(f"compat {compat}\n{'kind':10}{'games':>8}{'won':>8}{'subgoals':>10}{'met':>8}")
        for kind in games:
            print(f"{kind:10}{games[kind]:8}{won[kind]:8}{subgoals[kind]:10}{subgoals[kind] - unmet[kind]:8}")
        met = subgoals.total() - unmet.total()
        print(f"{'all':10}{games.total():8}{won.total():8}{subgoals.total():10}{met:8}")
        print(f"reset {resets / games.total():.2f} s, step {1_000 * steps / actions:.0f} ms", *missed, sep="\n  ")
        environment.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
