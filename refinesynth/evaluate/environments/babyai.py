"""BabyAI as AgentBoard plays it: 28 levels of minigrid with four seeds each, in words.

These quirks of AgentBoard are kept:

- The list of actions has `pick up`, but only `pickup` is accepted.
- The goal has `and` instead of `then` and `after you`, which hides the order of its parts.
- An action of several moves ends early when a move leaves the view unchanged, even if the agent moved.
- An action that meets the goal before its last move continues, and only the last move counts: `toggle and go through`
  never meets the goal of opening a door.
- A level that ended is over only with a progress above 0.5, and a progress of 1 is success even if the level is not
  solved. A level ended by a mistake (the wrong door first) is success if the progress is above 0.5.
- Each step meets at most one subgoal.
- Any text with `check` in it lists the actions.
- Paths and numbers: see `View`.

Minigrid's own limit of moves is disabled, because AgentBoard ignores it.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

from refinesynth.evaluate.environments.environment import (
    AGENTBOARD,
    CHECK,
    Action,
    BadInstance,
    Benchmark,
    Instance,
    Source,
    Start,
    Step,
    labels,
)

Cell = tuple[int, int]
Pose = tuple[Cell, int]
"""A cell and a heading on it: 0 ahead, 1 right, 2 back, 3 left."""

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)
"""minigrid's primitive actions."""

UNKNOWN = "The action is not recognized. Please check valid actions."
NO_CHANGE = "No change in state."

_KINDS = {2: "wall", 4: "door", 5: "key", 6: "ball", 7: "box"}
"""minigrid's codes of the things in BabyAI's levels."""
_COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
_DOORS = ("open", "closed", "locked")
_VIEW_AHEAD, _VIEW_ASIDE = 6, 3
"""Cells that the agent sees ahead and to each side."""
_HEADINGS = ((1, 0), (0, 1), (-1, 0), (0, -1))


@dataclass(frozen=True)
class Thing:
    """A thing in view."""

    kind: str
    """wall, door, key, ball or box."""
    name: str
    """Name with colour and, for a door, its state: `red closed door`."""
    cell: Cell
    number: int
    """Number among things of that name, the nearest first."""

    @property
    def colour(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def position(self) -> str:
        ahead, right = self.cell
        if right == 0:
            return f"right in front of you {ahead} steps away."
        return f"{ahead} steps in front of you and {abs(right)} steps to your {'right' if right > 0 else 'left'}."


def _things(image: Sequence[Sequence[Sequence[int]]]) -> list[Thing]:
    size = len(image)
    visible: list[tuple[int, str, str, Cell]] = []
    for row in range(size):
        for column in range(size):
            code, colour, state = image[column][row]
            kind = _KINDS.get(code)
            cell = (size - 1 - row, column - size // 2)
            if kind is None or cell == (0, 0):  # A carried thing appears on the agent's own cell.
                continue
            name = f"{_COLOURS[colour]} {_DOORS[state]} door" if kind == "door" else f"{_COLOURS[colour]} {kind}"
            visible.append((cell[0] + abs(cell[1]), kind, name, cell))
    visible.sort(key=lambda item: item[0])
    numbers: Counter[str] = Counter()
    things: list[Thing] = []
    for _, kind, name, cell in visible:
        numbers[name] += 1
        things.append(Thing(kind, name, cell, numbers[name]))
    return things


def _barrier(things: Sequence[Thing]) -> Thing | None:
    return next((thing for thing in things if thing.kind in {"box", "wall"} and thing.cell[1] == 0), None)


class _Paths:
    """Poses that the agent can reach with their moves, in breadth-first order."""

    def __init__(self, things: Sequence[Thing], heading: int) -> None:
        self._blocked = {thing.cell for thing in things if thing.kind != "door"}
        self._min_ahead = -1 if heading in {0, 1} else 0
        self._rightmost = 4 if heading in {1, 2} else _VIEW_ASIDE
        self._moves: dict[Pose, list[int]] = {}
        moves_to: dict[Pose, list[int]] = {((0, 0), 0): []}
        queue = deque(moves_to)
        while queue:
            pose = queue.popleft()
            moves = self._moves.setdefault(pose, moves_to[pose])
            for move, next_pose in _next_poses(pose):
                # AgentBoard's search closes a pose when it leaves the queue: the last path found to it wins.
                ahead, right = next_pose[0]
                in_view = self._min_ahead <= ahead <= _VIEW_AHEAD and -_VIEW_ASIDE <= right <= self._rightmost
                if in_view and next_pose not in self._moves and next_pose[0] not in self._blocked:
                    moves_to[next_pose] = [*moves, move]
                    queue.append(next_pose)

    def moves_onto(self, cell: Cell) -> list[int] | None:
        """Moves onto the cell; None if there is no path."""
        return self._moves_to({(cell, heading) for heading in range(4)})

    def moves_to_face(self, cell: Cell) -> list[int] | None:
        """Moves to a pose in front of the cell, facing it."""
        return self._moves_to({((cell[0] - dx, cell[1] - dy), heading) for heading, (dx, dy) in enumerate(_HEADINGS)})

    def _moves_to(self, targets: set[Pose]) -> list[int] | None:
        return next((moves for pose, moves in self._moves.items() if pose in targets), None)


def _next_poses(pose: Pose) -> tuple[tuple[int, Pose], ...]:
    (ahead, right), heading = pose
    dx, dy = _HEADINGS[heading]
    return (
        (FORWARD, ((ahead + dx, right + dy), heading)),
        (LEFT, ((ahead, right), (heading - 1) % 4)),
        (RIGHT, ((ahead, right), (heading + 1) % 4)),
    )


class View:
    """Description of an encoded image for the player, and the accepted actions.

    As in AgentBoard, paths lead through closed doors and, by the heading, over cells one row or column beyond the view;
    among equal names, `pickup` and `go to` count only things with a path.
    """

    def __init__(self, image: Sequence[Sequence[Sequence[int]]], heading: int, carrying: str) -> None:
        """`image` is minigrid's observation, [7 columns from the left][7 rows from the farthest][kind, colour, state].

        `heading` is its direction (0 right, 1 down, 2 left, 3 up), `carrying` such as `red key`, or empty.
        """
        things = _things(image)
        objects = [thing for thing in things if thing.kind != "wall"]
        self.description = _description(things, objects, carrying)
        self.actions: dict[str, Sequence[int]] = {"turn left": [LEFT], "turn right": [RIGHT]}
        """Accepted texts in AgentBoard's order, with their primitive moves."""
        self.refusals: dict[str, str] = {}
        """Refused texts about things in view, with reasons."""
        self._paths, self._carrying = _Paths(things, heading), carrying
        self._add_forward(things)
        if not carrying:
            self._add_reachable("pickup", [thing for thing in objects if thing.kind != "door"], [PICKUP])
        self._add_drop(things)
        for thing in objects:
            if thing.kind == "door":
                self._add_door(thing, thing.name.split()[1])
        self._add_reachable("go to", objects, [])

    def _add_forward(self, things: Sequence[Thing]) -> None:
        barrier = _barrier(things)
        if barrier is not None and barrier.cell[0] == 1:
            self.refusals["move forward"] = "There is a barrier in front of you, you can't move forward."
        else:
            self.actions["move forward"] = [FORWARD]

    def _add_reachable(self, verb: str, things: Sequence[Thing], final_moves: Sequence[int]) -> None:
        reachable: Counter[str] = Counter()
        for thing in things:
            path = self._paths.moves_to_face(thing.cell)
            target = f"{thing.name} {reachable[thing.name] + 1}"
            if path is None:
                self.refusals[f"{verb} {target}"] = f"You cannot {verb} {target}, as there is no path leading to it."
            else:
                reachable[thing.name] += 1
                self.actions[f"{verb} {target}"] = [*path, *final_moves]

    def _add_drop(self, things: Sequence[Thing]) -> None:
        if not self._carrying:
            self.refusals["drop"] = "You cannot drop the object, as you are not carrying anything."
        elif any(thing.cell == (1, 0) and thing.kind != "door" for thing in things):
            self.refusals["drop"] = "You cannot drop the object, as there is already an object in front of you."
        else:
            self.actions["drop"] = [DROP]

    def _add_door(self, door: Thing, state: str) -> None:
        target = f"{door.name} {door.number}"
        verb = "go through" if state == "open" else "toggle and go through"
        reason, path = "there is no path leading to it", None
        if state == "locked" and not self._carrying.endswith(" key"):
            reason = "you are not carrying a key"
        elif state == "locked" and not self._carrying.startswith(f"{door.colour} "):
            reason = "the color of the key you are carrying does not match the color of door"
        elif state == "open":
            path = self._paths.moves_onto(door.cell)
        else:
            path = self._paths.moves_to_face(door.cell)
        if path is None:
            self.refusals[f"{verb} {target}"] = f"You cannot {verb} {target}, as {reason}."
        else:
            self.actions[f"{verb} {target}"] = path if state == "open" else [*path, TOGGLE, FORWARD]
            if state != "open" and not path:
                self.actions["toggle"] = [TOGGLE]
        if state == "closed":
            self.refusals[f"go through {target}"] = (
                f"You cannot go through {target}, as it is closed. You should toggle it first."
            )


def _description(things: Sequence[Thing], objects: Sequence[Thing], carrying: str) -> str:
    text = "In front of you in this room, you can see several objects: "
    if not things:
        text = "You cannot see any objects within sight."
    text += "".join(f"There is a {thing.name} {thing.number} {thing.position}  " for thing in objects)
    text += "The room has walls around you. "
    if barrier := _barrier(things):
        text += f"You are facing a {barrier.kind} {barrier.cell[0]} steps away. "
    return text + (f"You are carrying a {carrying}." if carrying else "You are not carrying anything.")


_CHECK = "check available actions"
_COMPLETED = "\n The task is completed."


class Level:
    """A level in play. It can be pickled, which lets a search continue from any state."""

    def __init__(self, level: Any, state: Any, subgoals: Sequence[Sequence[str]]) -> None:
        """`level` is minigrid's, just reset, and `state` its observation; each plan of `subgoals` has the same length."""
        self.level = level
        self.subgoals = [list(plan) for plan in subgoals]
        """Remaining subgoals of each alternative plan."""
        self._subgoal_count = len(self.subgoals[0])
        self.progress, self.done, self.won = 0.0, False, False
        self._update_view(state["image"])

    @property
    def goal(self) -> str:
        return str(self.level.mission).replace("then", "and").replace("after you", "and")

    def _update_view(self, image: Any) -> None:
        self._image = image
        carrying = self.level.carrying
        carried = "" if carrying is None else f"{carrying.color} {carrying.type}"
        self.view = View(image.tolist(), int(self.level.agent_dir), carried)

    def step(self, action: str) -> Step:
        text = action.lower().strip()
        if "check" in text:
            listed = ", ".join((*self.view.actions, _CHECK))
            return self._reply(f"You can take the following actions: {listed}")
        if moves := self.view.actions.get(text):
            return self._reply(self._move(moves))
        is_valid = not text or text in self.view.actions
        return self._reply(NO_CHANGE if is_valid else self.view.refusals.get(text, UNKNOWN), refused=True)

    def _reply(self, text: str, *, refused: bool = False) -> Step:
        return Step(text, self.progress, self.done, self.won, refused=refused)

    def _move(self, moves: Iterable[int]) -> str:
        ended = False
        for move in moves:
            image = self._image
            state, _, ended, _, _ = self.level.step(move)
            self._image = state["image"]
            if (image == self._image).all():
                break
        self._update_view(self._image)
        observation = self.view.description + (_COMPLETED if ended else "")
        self._update_progress(observation)
        self.done = ended and self.progress > 0.5  # noqa: PLR2004 - AgentBoard's own bound
        if self.progress == 1 and not self.done:
            self.done = True
            observation += _COMPLETED
        self.won = self.done
        return observation

    def _update_progress(self, observation: str) -> None:
        """Remove the first subgoal that the observation shows; the plans of one level are alternatives, place by place."""
        sentences = observation.split(".")
        indices = range(len(self.subgoals[0]))
        shown = next((i for i in indices if any(_shows(sentences, plan[i]) for plan in self.subgoals)), None)
        if shown is not None:
            for plan in self.subgoals:
                plan.pop(shown)
        self.progress = max(self.progress, (self._subgoal_count - len(self.subgoals[0])) / self._subgoal_count)


def _shows(sentences: Iterable[str], pattern: str) -> bool:
    """True if all parts of a pattern, between its stars, are in one sentence."""
    pattern = pattern.strip()
    parts = [part.strip(".") for part in pattern.split("**" if "**" in pattern else "*")]
    return any(all(part in sentence for part in parts) for sentence in sentences)


FIRST_SEED = 1234
_LEVEL = re.compile(r"BabyAI-[A-Za-z0-9]+-v0")
_RENAMED = {"BabyAI-GoToObjS6-v0": "BabyAI-GoToObjS4-v0"}
"""Level names of AgentBoard's minigrid to those of minigrid 3.2."""

_INTRODUCTION = (
    "You are in a building of one or more rooms, which you see from where you stand: up to six steps ahead and three to "
    "each side, not through walls and closed doors. Objects are numbered, the nearest of its kind and colour first; the "
    "numbers change as you move."
)


_ACTIONS = (
    Action("turn left"),
    Action("turn right"),
    Action("move forward"),
    Action("go to {obj} {id}", "Walk to an object or door in view and face it."),
    Action("pick up {obj} {id}", "Walk to an object in view and take it; you carry one at most."),
    Action("drop", "Put what you carry on the free place before you."),
    Action("go through {door} {id}", "Walk into an open door."),
    Action("toggle and go through {door} {id}", "Walk to a closed or locked door, open it and walk into it."),
    Action("toggle", "Open the door right before you; a locked one needs the key of its colour."),
    Action(CHECK, "List what you can do now."),
)


class BabyAI:
    """Environment that plays one level after another."""

    _level: Level

    def __init__(self) -> None:
        import gymnasium
        import minigrid

        del minigrid  # Imported for the levels that it registers.
        self._make: Any = gymnasium.make

    def reset(self, instance: Instance, /) -> Start:
        try:
            self._level = self._begin(instance)
        except Exception as error:  # minigrid may raise anything for an unknown level or seed.
            raise BadInstance(
                f"the BabyAI level {instance.id!r} cannot be made: {error!r}; expected a level of minigrid 3.2, a seed and "
                "ways of as many subgoals"
            ) from error
        actual, label = self._level.view.description, instance.data.get("observation")
        if label is not None and label != actual:
            raise BadInstance(
                f"the BabyAI level {instance.id!r} begins with {actual!r}, but its label says {label!r}; expected the levels "
                "that minigrid 3.2 makes"
            )
        return Start(actual, self._level.goal, _ACTIONS, _INTRODUCTION)

    def _begin(self, instance: Instance) -> Level:
        name, seed = str(instance.data["level"]), int(instance.data["seed"])
        plans = [list(map(str, plan)) for plan in instance.data["subgoals"]]
        if not _LEVEL.fullmatch(name) or not plans[0] or any(len(plan) != len(plans[0]) for plan in plans):
            raise ValueError(f"{name!r} with the subgoals {plans!r}")
        with redirect_stdout(StringIO()):  # minigrid prints each layout that it rejects.
            level = self._make(_RENAMED.get(name, name), disable_env_checker=True).unwrapped
            state, _ = level.reset(seed=seed)
        level.max_steps = 10**9
        return Level(level, state, plans)

    def step(self, action: str, /) -> Step:
        return self._level.step(action)

    def valid_actions(self) -> Sequence[str]:
        """Actions with at least one move; other actions change nothing."""
        return [text for text, moves in self._level.view.actions.items() if moves]

    def close(self) -> None:
        """Nothing is held."""


def _instances(source: Source) -> list[Instance]:
    """One instance per row; the n-th row of a level has the n-th seed."""
    seen: Counter[str] = Counter()
    instances: list[Instance] = []
    for label in labels(source.folder("babyai", holds=f"babyai/test.jsonl of {AGENTBOARD}")):
        level = label.text("subtask")
        seed = FIRST_SEED + seen[level]
        seen[level] += 1
        data = {
            "level": level,
            "seed": seed,
            "subgoals": [label.texts(name) for name in label if name.startswith("subgoals")],
            "observation": label.text("init_obs"),
        }
        name = f"{level.removeprefix('BabyAI-').removesuffix('-v0')}-{seed}"
        instances.append(Instance(name, data, label.text("difficulty")))
    return instances


BENCHMARK = Benchmark(
    name="babyai",
    environment=f"{__name__}:BabyAI",
    instances=_instances,
    extra="refinesynth[babyai]",
    memory_mb=512,
    process_variables={"PYGAME_HIDE_SUPPORT_PROMPT": "1"},
)
