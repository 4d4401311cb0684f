"""What an evaluation adds to the environments it plays: BabyAI's 112 instances, ten times each, by the random control
through Inspect, beside the same actions in bare environments.

    python -m bench.evaluate.overhead DATA [EPOCHS]

Two processes of environments each; wall-clock seconds, and seconds of CPU of all processes together.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from inspect_ai.log import EvalSample, read_eval_log

from refinesynth.chat import parse_player
from refinesynth.evaluate.environments.babyai import BENCHMARK, BabyAI
from refinesynth.evaluate.environments.environment import Instance, Source
from refinesynth.evaluate.evaluation_run import evaluate
from refinesynth.evaluate.settings import Evaluation

PROCESSES = 2

Episode = tuple[Instance, tuple[str, ...]]


def main(data: Path, epochs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asked = Evaluation(
            model="random", tasks="babyai", data=data, output=Path(folder), epochs=epochs, environments=PROCESSES
        )
        logs, *through = timed(lambda: evaluate(asked))
        samples = read_eval_log(logs[0].location).samples or []
    instances = {one.id: one for one in BENCHMARK.instances(Source(data))}
    episodes = [(instances[str(sample.id)], actions(sample)) for sample in samples]
    steps, *bare = timed(lambda: in_processes(episodes))
    print(f"{len(episodes):,} episodes, {steps:,} steps")
    print(f"{'':28}{'seconds':>10}{'of CPU':>10}{'ms of CPU a step':>18}")
    for name, (wall, cpu) in (("through the evaluation", through), ("bare environments", bare)):
        print(f"{name:28}{wall:10.1f}{cpu:10.1f}{1_000 * cpu / steps:18.2f}")
    print(f"{'ratio':28}{through[0] / bare[0]:10.2f}{through[1] / bare[1]:10.2f}")


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """What it gives, wall-clock seconds, and seconds of CPU, those of ended processes included."""
    begun, before = time.perf_counter(), os.times()
    found = work()
    after = os.times()
    return found, time.perf_counter() - begun, sum(after[:4]) - sum(before[:4])


def actions(sample: EvalSample) -> tuple[str, ...]:
    """What was done in an episode."""
    return tuple(parse_player(message.text).action for message in sample.messages if message.role == "assistant")


def in_processes(episodes: Sequence[Episode]) -> int:
    """Play them in bare environments; the number of steps."""
    with ProcessPoolExecutor(PROCESSES) as pool:
        return sum(pool.map(played, [episodes[at::PROCESSES] for at in range(PROCESSES)]))


def played(episodes: Sequence[Episode]) -> int:
    environment = BabyAI()
    steps = 0
    for instance, taken in episodes:
        environment.reset(instance)
        for action in taken:
            environment.valid_actions()  # As the random control asks for before each step.
            environment.step(action)
            steps += 1
    return steps


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10)
