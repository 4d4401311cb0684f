"""AgentBoard's planning problems solved by pyperplan, and played at random:

python -m bench.evaluate.pddl_oracle DATA
"""

import sys
import time
from pathlib import Path
from random import Random

from refinesynth.evaluate.environments.environment import Source
from refinesynth.evaluate.environments.pddl import BENCHMARK
from tests.evaluate.solving_environments import SolvingPddl as Pddl


def main(data: Path) -> None:
    environment = Pddl()
    won, within, progress, actions, solving, playing = 0, 0, 0.0, 0, 0.0, 0.0
    randomly = 0.0
    problems = BENCHMARK.instances(Source(data))
    for problem in problems:
        environment.reset(problem)
        begun = time.perf_counter()
        found = environment.solution() or ()
        took = time.perf_counter() - begun
        begun = time.perf_counter()
        steps = [environment.step(action) for action in found]
        playing += time.perf_counter() - begun
        solving, actions = solving + took, actions + len(found)
        success = bool(steps) and steps[-1].success
        won, within = won + success, within + (success and len(found) <= BENCHMARK.steps)
        progress += steps[-1].progress if steps else 0
        if not success or len(found) > BENCHMARK.steps or took > 5:
            print(f"  {problem.id}: {len(found)} actions, {'won' if success else 'not won'}, {took:.1f} s")
        randomly += _random(environment, environment.reset(problem) and Random(problem.id))
    share = randomly / len(problems)
    print(f"{won} of {len(problems)} won, {within} in {BENCHMARK.steps} actions, ", end="")
    print(f"progress {progress / len(problems):.1%}; random play: progress {share:.1%}; ", end="")
    print(f"planning {solving:.0f} s, step {1_000 * playing / actions:.1f} ms")
    environment.close()


def _random(environment: Pddl, random: Random) -> float:
    progress = 0.0
    for _ in range(BENCHMARK.steps):
        if not (valid := environment.valid_actions()):
            break
        progress = environment.step(random.choice(valid)).progress
    return progress


if __name__ == "__main__":
    main(Path(sys.argv[1]))
