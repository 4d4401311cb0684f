"""Grounded worlds as a benchmark: the worlds of any run of grounded play, executed, answering in their own words.

Introduction, goal, actions and observations are those of a grounded run with `terse`, so that the chat is the one that
training sees. Without a folder of benchmark data: `worlds:runs/held-out`, or a file of trajectories.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from refinesynth.episode.ruled import Ruled
from refinesynth.evaluate.environments.environment import (
    Action,
    BadInstance,
    Benchmark,
    Compat,
    Instance,
    Source,
    Start,
    Step,
)
from refinesynth.trajectory import Script
from refinesynth.world import World, check_solvability
from refinesynth.world.errors import RulebookError
from refinesynth.world.ground import some_ground_actions

_MOST_LISTED = 2_000
"""Ground actions that are tried for `valid_actions`; of more, every action has its share."""


class GroundedWorld:
    """One grounded script after another; see `TextEnvironment`.

    `refused` is the world's own ruling. Progress is the share of the goal's conditions that hold, the highest so far.
    """

    def __init__(self, *, compat: Compat) -> None:
        """`compat` makes no difference: these worlds are no part of AgentBoard."""
        del compat
        self._world: World | None = None
        self._state: Any = None
        self._progress = 0.0

    def reset(self, instance: Instance, /) -> Start:
        """See `TextEnvironment.reset`."""
        try:
            script = Script.model_validate(instance.data["script"])
            self._world = World(script)
        except (KeyError, ValueError, RulebookError) as error:
            raise BadInstance(f"the world {instance.id!r} cannot be executed: {error}") from error
        self._state, self._progress = script.environment, 0.0
        actions = tuple(Action(spec.name, spec.description, spec.parameters) for spec in script.actions)
        return Start("", script.goal, actions, script.introduction)

    @property
    def _now(self) -> World:
        if self._world is None:
            raise RuntimeError("reset comes first")
        return self._world

    def step(self, action: str, /) -> Step:
        """See `TextEnvironment.step`."""
        ruling = self._now.step(self._state, action)
        self._state = ruling.state
        self._progress = max(self._progress, ruling.progress)
        text = Ruled(action, ruling, before=(), progress_before=0.0).text
        return Step(text, self._progress, ruling.done, ruling.done, refused=ruling.kind is not None)

    def valid_actions(self) -> Sequence[str]:
        """See `TextEnvironment.valid_actions`."""
        texts, _ = some_ground_actions(self._now, _MOST_LISTED)
        return [text for text in texts if self._now.step(self._state, text).kind is None]

    def solution(self) -> Sequence[str] | None:
        """The shortest that is known: the author's own, pruned, or one that the search finds."""
        return check_solvability(self._now.script).shortest

    def close(self) -> None:
        """Nothing is held."""


def _instances(source: Source) -> list[Instance]:
    if not source.argument:
        raise BadInstance("worlds needs a run of grounded play, or a file of its trajectories: worlds:runs/held-out")
    path = Path(source.argument)
    path = path / "trajectories.jsonl" if path.is_dir() else path
    if not path.is_file():
        raise BadInstance(f"there is no file {str(path)!r}; expected a run of grounded play, or a file of trajectories")
    found: dict[str, Instance] = {}
    for number, record in enumerate(_records(path), start=1):
        script = record.get("script")
        if not isinstance(script, dict):
            raise BadInstance(f"line {number} of {str(path)!r} has no script; expected trajectories that a run wrote")
        if (values := cast("dict[str, Any]", script)).get("rulebook") is None:
            continue
        try:
            digest = Script.model_validate(values).digest
        except ValueError as error:
            raise BadInstance(f"line {number} of {str(path)!r}: its script cannot be read: {error}") from error
        found.setdefault(digest, Instance(digest, {"script": values}))
    if not found:
        raise BadInstance(
            f"no script in {str(path)!r} is grounded, so none of its worlds can be executed; a run with --play grounded has such"
        )
    return list(found.values())


def _records(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                record: object = json.loads(line)
            except ValueError as error:
                if not line.endswith(b"\n"):
                    return  # A run that is going on has not finished it.
                raise BadInstance(f"line {number} of {str(path)!r} is no JSON: {error}") from error
            if not isinstance(record, dict):
                raise BadInstance(f"line {number} of {str(path)!r} is no JSON object; expected a trajectory")
            yield cast("dict[str, Any]", record)


BENCHMARK = Benchmark(
    name="worlds",
    environment="refinesynth.evaluate.environments.worlds:GroundedWorld",
    instances=_instances,
    memory_mb=512,
)
