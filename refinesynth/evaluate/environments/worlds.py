"""Benchmarks from the grounded worlds of a run, which are executed and described in their own words.

Introduction, goal, actions and observations are those of a grounded run with `terse`, as in the chat of training.
`worlds:runs/held-out` names a run or a file of trajectories. `mistakes:` begins after the first mistake of each
trajectory, with the earlier turns in the chat, and tests the repair. `recovery:` begins after each stretch of
mistakes and measures the repair; the level is the kind, position and number of the mistakes. A record may hold
`slips`, the share of correct actions that fail transiently.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from refinesynth.environments import GroundedEnvironment
from refinesynth.errors import RulebookError
from refinesynth.evaluate.environments.environment import (
    Action,
    BadInstance,
    Benchmark,
    Exchange,
    Instance,
    Source,
    Start,
    Step,
    digest_of,
)
from refinesynth.files.compressed import open_jsonl
from refinesynth.trajectory import Draft, DungeonMasterTurn, PlayerTurn, Script
from refinesynth.world.ground_actions import some_ground_actions

_POSITIONS = ("early", "middle", "late")
"""Thirds of a play."""

_MAX_ROW = 3
"""Largest number of consecutive mistakes in a level; longer stretches have the same level."""

_MAX_ACTIONS = 2_000
"""Most ground actions that `valid_actions` tries; if there are more, each action gets a share."""


class GroundedWorld:
    """Environment of grounded scripts. Progress is the highest share of the goal's conditions so far."""

    _environment: GroundedEnvironment
    _measured: bool

    def reset(self, instance: Instance, /) -> Start:
        try:
            script = Script.model_validate(instance.data["script"])
            turns = _turns(script, instance.data.get("turns", ()))
            self._environment = GroundedEnvironment(script)
            seed = int(blake2b(instance.id.encode(), digest_size=4).hexdigest(), 16)
            self._environment.reset(seed, before=turns)
            self._environment.slips = float(instance.data.get("slips", 0))
        except (KeyError, TypeError, ValueError, RulebookError) as error:
            raise BadInstance(f"the world {instance.id!r} cannot be executed: {error}") from error
        self._measured = bool(instance.data.get("measured"))
        pairs = ((turn.thought, turn.action, answer.observation, answer.flagged) for _, turn, answer in _pairs(turns))
        return _start(script, tuple(Exchange(*pair) for pair in pairs))

    def step(self, action: str, /) -> Step:
        """Take one action. An action that slips does not count as refused."""
        ruled, _ = self._environment.rule(action)
        refused = ruled.ruling.kind is not None and not ruled.transient
        measures = {"repaired": float(self._environment.recovered)} if self._measured else {}
        return Step(
            ruled.text,
            # A score counts the turns before the play, too, as in logs of earlier versions.
            max(self._environment.progress, self._environment.progress_before),
            ruled.done,
            ruled.done,
            refused=refused,
            measures=measures,
            slipped=ruled.transient,
        )

    def valid_actions(self) -> Sequence[str]:
        world, state = self._environment.world, self._environment.state
        texts, _ = some_ground_actions(world, _MAX_ACTIONS)
        return [text for text in texts if world.step(state, text).kind is None]

    def solution(self) -> Sequence[str] | None:
        return self._environment.solution()

    def close(self) -> None:
        """Nothing is held."""


def _start(script: Script, history: tuple[Exchange, ...]) -> Start:
    names = {"name", "description", "types", "pattern", "function"}
    actions = tuple(
        Action(**spec.model_dump(mode="json", include=names), parameters=spec.parameters) for spec in script.actions
    )
    return Start("", script.goal, actions, script.introduction, history)


def _turns(script: Any, turns: Any) -> list[PlayerTurn | DungeonMasterTurn]:
    """The turns of a record; raises ValueError."""
    parsed = Draft.model_validate({"script": script, "turns": turns}).turns
    return [turn for turn in parsed if isinstance(turn, PlayerTurn | DungeonMasterTurn)]


def _pairs(
    turns: Sequence[PlayerTurn | DungeonMasterTurn],
) -> Iterator[tuple[int, PlayerTurn, DungeonMasterTurn]]:
    """Number of turns up to each answer, the player's turn and the answer."""
    for end, (turn, answer) in enumerate(pairwise(turns), 2):
        if isinstance(turn, PlayerTurn) and isinstance(answer, DungeonMasterTurn):
            yield end, turn, answer


def _instances(source: Source) -> list[Instance]:
    """One instance for each world and share of slips."""
    instances: dict[tuple[str, float], Instance] = {}
    seen: set[str] = set()
    for number, record, script, path in _grounded(source, "worlds"):
        try:
            digest = Script.model_validate(script).digest
        except ValueError as error:
            raise BadInstance(f"line {number} of {path!r}: its script cannot be read: {error}") from error
        slips = _slips(record, number, path)
        if (digest, share := slips.get("slips", 0.0)) not in instances:
            name = f"{digest} with slips {share:g}" if digest in seen else digest
            instances[digest, share] = Instance(name, {"script": script, **slips})
            seen.add(digest)
    return list(instances.values())


def _mistake_instances(source: Source, name: str) -> list[Instance]:
    """One instance for the first mistake of each trajectory, or with `recovery` for each stretch of mistakes.

    The branches of a play share their beginnings; equal instances count once.
    """
    instances: dict[str, Instance] = {}
    seen = set[str]()
    for number, record, script, path in _grounded(source, name):
        try:
            turns = _turns(script, record["turns"])
        except (KeyError, ValueError) as error:
            raise BadInstance(f"line {number} of {path!r} is no trajectory: {error}") from error
        base = {"script": script, **_slips(record, number, path)}
        if name == "recovery":
            base["measured"] = True
            ends = [(end, f" turn {end}", level) for end, level in _stretches(turns)]
        else:
            ends = [(end, "", "") for end, _, answer in _pairs(turns) if answer.flagged][:1]
        for end, suffix, level in ends:
            data = {**base, "turns": [turn.model_dump(mode="json") for turn in turns[:end]]}
            if (digest := digest_of({"slips": 0.0, **data})) in seen:
                continue
            seen.add(digest)
            id_ = f"{record.get('id') or number}{suffix}"
            id_ = id_ if id_ not in instances else f"{id_} of line {number}"
            instances[id_] = Instance(id_, data, level)
    if not instances:
        raise BadInstance(f"no trajectory in {source.argument!r} has a mistake to begin behind")
    return list(instances.values())


def _stretches(turns: Sequence[PlayerTurn | DungeonMasterTurn]) -> Iterator[tuple[int, str]]:
    """Number of turns up to the end of each stretch of mistakes, and its level: kind, position and number of mistakes."""
    answered = [(end, turn.action, answer) for end, turn, answer in _pairs(turns)]
    streak: list[str] = []
    for number, (end, action, answer) in enumerate(answered):
        streak = [*streak, action] if answer.flagged else []
        is_last = number + 1 == len(answered) or not answered[number + 1][2].flagged
        if streak and is_last and answer.mistake_kind is not None:
            position = _POSITIONS[3 * number // len(answered)]
            count = "loop" if len(streak) > 1 and len(set(streak)) == 1 else str(min(len(streak), _MAX_ROW))
            yield end, f"kind={answer.mistake_kind.value} position={position} row={count}"


def _slips(record: Mapping[str, Any], number: int, path: str) -> dict[str, float]:
    slips = record.get("slips", 0.0)
    if isinstance(slips, bool) or not isinstance(slips, int | float) or not 0 <= slips < 1:
        raise BadInstance(
            f"line {number} of {path!r} has the slips {slips!r}; expected the share of right actions that fail for a "
            "moment, at least 0 and below 1; correct it, or leave it out"
        )
    return {"slips": float(slips)} if "slips" in record else {}


def _grounded(source: Source, name: str) -> Iterator[tuple[int, dict[str, Any], dict[str, Any], str]]:
    """Number, record, script and file name of each line with a grounded script."""
    if not source.argument:
        raise BadInstance(f"{name} needs a run of grounded play, or a file of its trajectories: {name}:runs/held-out")
    path = Path(source.argument)
    path = path / "trajectories.jsonl" if path.is_dir() else path
    if not path.is_file():
        raise BadInstance(f"there is no file {str(path)!r}; expected a run of grounded play, or a file of trajectories")
    is_empty = True
    with open_jsonl(path) as lines:
        for number, line in enumerate(lines, start=1):
            location = f"line {number} of {str(path)!r}"
            try:
                parsed: object = json.loads(line)
            except ValueError as error:
                if not line.endswith(b"\n"):
                    break  # A run in progress has not finished this line.
                raise BadInstance(f"{location} is no JSON: {error}") from error
            record = cast("dict[str, Any]", parsed if isinstance(parsed, dict) else {})
            script: dict[str, Any] | None = record.get("script")
            if not isinstance(script, dict):
                raise BadInstance(f"{location} has no script; expected trajectories that a run wrote")
            if script.get("rulebook") is not None:
                is_empty = False
                yield number, record, script, str(path)
    if is_empty:
        raise BadInstance(
            f"no script in {str(path)!r} is grounded, so none of its worlds can be executed; a run with --play grounded has such"
        )


BENCHMARK = Benchmark(
    name="worlds",
    environment="refinesynth.evaluate.environments.worlds:GroundedWorld",
    instances=_instances,
    in_process=True,
)

MISTAKES = replace(BENCHMARK, name="mistakes", instances=partial(_mistake_instances, name="mistakes"))

RECOVERY = replace(BENCHMARK, name="recovery", instances=partial(_mistake_instances, name="recovery"))
