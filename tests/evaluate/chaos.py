"""An environment that does wrong on purpose, as its instances say; it counts to three otherwise."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refinesynth.evaluate.environments.environment import Action, BadInstance, Benchmark, Instance, Source, Start, Step

GOAL = 3


class Chaos:
    """`count` three times wins. An instance's `wrong` maps a turn to what happens then: `die`, `hang`, `raise`, `print`,
    `leak`; with a file `once`, only as long as that file is there.
    """

    def __init__(self) -> None:
        self._data: dict[str, Any] = {}
        self._count = 0
        self._turn = 0
        self._leaked: list[bytes] = []

    def reset(self, instance: Instance, /) -> Start:
        if instance.data.get("bad"):
            raise BadInstance("this instance is bad on purpose")
        self._data = dict(instance.data)
        self._count = self._turn = 0
        self._misbehave()
        actions = (Action("count", "counts one"), Action("wait"))
        pid = f"pid {os.getpid()}"
        return Start("", "Count to three.", actions, pid)

    def step(self, action: str, /) -> Step:
        self._turn += 1
        self._misbehave()
        refused = action not in self.valid_actions()
        self._count += action == "count"
        done = self._count == GOAL
        return Step(f"{self._count}", self._count / GOAL, done, done, refused=refused)

    def valid_actions(self) -> Sequence[str]:
        return ["count", "wait"]

    def solution(self) -> Sequence[str] | None:
        return ["count"] * self._data.get("solution", GOAL)

    def close(self) -> None:
        """Nothing is held."""

    def _misbehave(self) -> None:
        wrong = self._data.get("wrong", {}).get(str(self._turn))
        if wrong is not None and (once := self._data.get("once")) is not None:
            try:
                Path(once).unlink()
            except FileNotFoundError:
                return
        if wrong == "die":
            os._exit(7)
        if wrong == "hang":
            time.sleep(600)
        if wrong == "raise":
            raise RuntimeError("on purpose")
        if wrong == "print":
            print("{}\n{not json", flush=True)  # noqa: T201 - as an environment may
            os.write(1, b"{}\n")
        if wrong == "leak":
            self._leaked.append(os.urandom(1 << 20) * 60)


def _none(_: Source) -> list[Instance]:
    return []


BENCHMARK = Benchmark(
    name="chaos",
    environment="tests.evaluate.chaos:Chaos",
    instances=_none,
    # Long enough for any step on a busy machine, and short for those that hang.
    step_seconds=3,
    reset_seconds=20,
    memory_mb=100,
)
