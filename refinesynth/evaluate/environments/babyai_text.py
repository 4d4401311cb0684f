"""BabyAI in words, as in AgentBoard: text of the agent's view, and texts for primitive moves.

Cells are (ahead, right) in the agent's frame; it stands on (0, 0).
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Cell = tuple[int, int]
Pose = tuple[Cell, int]
"""A cell and a heading on it: 0 ahead, 1 right, 2 back, 3 left."""

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)
"""minigrid's primitive actions."""

UNKNOWN = "The action is not recognized. Please check valid actions."
NO_CHANGE = "No change in state."

_KINDS = {2: "wall", 4: "door", 5: "key", 6: "ball", 7: "box"}
"""minigrid's encoding of what BabyAI's levels hold."""
_COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
_DOORS = ("open", "closed", "locked")
_AHEAD, _ASIDE = 6, 3
"""Distance that the agent sees."""
_HEADINGS = ((1, 0), (0, 1), (-1, 0), (0, -1))


@dataclass(frozen=True)
class Thing:
    """Something in view."""

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
    def place(self) -> str:
        ahead, right = self.cell
        if right == 0:
            return f"right in front of you {ahead} steps away."
        return f"{ahead} steps in front of you and {abs(right)} steps to your {'right' if right > 0 else 'left'}."


@dataclass(frozen=True)
class View:
    """Text for the player, and the texts that it may answer."""

    description: str
    actions: Mapping[str, Sequence[int]]
    """Accepted texts in AgentBoard's order, with their primitive moves."""
    refusals: Mapping[str, str]
    """Texts about things in view that are refused, with reasons."""


def view(image: Sequence[Sequence[Sequence[int]]], heading: int, carrying: str) -> View:
    """The view of an encoded image.

    As in AgentBoard, paths lead through closed doors and, by the heading, over cells one column beyond the view; of equal
    names, `pickup` and `go to` count only what a path leads to.

    `image` is minigrid's observation, [7 columns from the left][7 rows from the farthest][kind, colour, state], `heading`
    its direction (0 right, 1 down, 2 left, 3 up), `carrying` such as `red key`, or empty.
    """
    things = _things(image)
    named = [thing for thing in things if thing.kind != "wall"]
    options = _Options(things, _Paths(things, heading), carrying)
    return View(_description(things, named, carrying), options.actions, options.refusals)


def _things(image: Sequence[Sequence[Sequence[int]]]) -> list[Thing]:
    size = len(image)
    found: list[tuple[int, str, str, Cell]] = []
    for row in range(size):
        for column in range(size):
            code, colour, state = image[column][row]
            kind = _KINDS.get(code)
            cell = (size - 1 - row, column - size // 2)
            if kind is None or cell == (0, 0):  # What is carried shows on the agent's own cell.
                continue
            name = f"{_COLOURS[colour]} {_DOORS[state]} door" if kind == "door" else f"{_COLOURS[colour]} {kind}"
            found.append((cell[0] + abs(cell[1]), kind, name, cell))
    found.sort(key=lambda one: one[0])
    numbers: Counter[str] = Counter()
    things: list[Thing] = []
    for _, kind, name, cell in found:
        numbers[name] += 1
        things.append(Thing(kind, name, cell, numbers[name]))
    return things


def _barrier(things: Sequence[Thing]) -> Thing | None:
    return next((thing for thing in things if thing.kind in {"box", "wall"} and thing.cell[1] == 0), None)


def _description(things: Sequence[Thing], named: Sequence[Thing], carrying: str) -> str:
    text = "In front of you in this room, you can see several objects: "
    if not things:
        text = "You cannot see any objects within sight."
    text += "".join(f"There is a {thing.name} {thing.number} {thing.place}  " for thing in named)
    text += "The room has walls around you. "
    if barrier := _barrier(things):
        text += f"You are facing a {barrier.kind} {barrier.cell[0]} steps away. "
    return text + (f"You are carrying a {carrying}." if carrying else "You are not carrying anything.")


class _Paths:
    """Poses that the agent can reach, in breadth-first order."""

    def __init__(self, things: Sequence[Thing], heading: int) -> None:
        self._blocked = {thing.cell for thing in things if thing.kind != "door"}
        self._behind = -1 if heading in {0, 1} else 0
        self._rightmost = 4 if heading in {1, 2} else _ASIDE
        self._moves: dict[Pose, list[int]] = {}
        came: dict[Pose, list[int]] = {((0, 0), 0): []}
        queue = deque(came)
        while queue:
            pose = queue.popleft()
            moves = self._moves.setdefault(pose, came[pose])
            for move, reached in _next(pose):
                # AgentBoard's search closes a pose when it leaves the queue: the last way found to it is the one taken.
                if reached in self._moves or not self._free(reached[0]):
                    continue
                came[reached] = [*moves, move]
                queue.append(reached)

    def _free(self, cell: Cell) -> bool:
        ahead, right = cell
        return cell not in self._blocked and self._behind <= ahead <= _AHEAD and -_ASIDE <= right <= self._rightmost

    def onto(self, cell: Cell) -> list[int] | None:
        """Moves onto the cell; None if there is no path."""
        return self._first({(cell, heading) for heading in range(4)})

    def before(self, cell: Cell) -> list[int] | None:
        """Moves to a pose in front of the cell, facing it."""
        return self._first({((cell[0] - dx, cell[1] - dy), heading) for heading, (dx, dy) in enumerate(_HEADINGS)})

    def _first(self, wanted: set[Pose]) -> list[int] | None:
        return next((moves for pose, moves in self._moves.items() if pose in wanted), None)


def _next(pose: Pose) -> tuple[tuple[int, Pose], ...]:
    (ahead, right), heading = pose
    dx, dy = _HEADINGS[heading]
    return (
        (FORWARD, ((ahead + dx, right + dy), heading)),
        (LEFT, ((ahead, right), (heading - 1) % 4)),
        (RIGHT, ((ahead, right), (heading + 1) % 4)),
    )


class _Options:
    """Actions of a view and reasons for refusals, in AgentBoard's order."""

    def __init__(self, things: Sequence[Thing], paths: _Paths, carrying: str) -> None:
        self.actions: dict[str, Sequence[int]] = {"turn left": [LEFT], "turn right": [RIGHT]}
        self.refusals: dict[str, str] = {}
        self._paths, self._carrying = paths, carrying
        named = [thing for thing in things if thing.kind != "wall"]
        self._forward(things)
        if not carrying:
            self._each("pickup", [thing for thing in named if thing.kind != "door"], [PICKUP])
        self._drop(things)
        for thing in named:
            if thing.kind == "door":
                self._door(thing, thing.name.split()[1])
        self._each("go to", named, [])

    def _forward(self, things: Sequence[Thing]) -> None:
        barrier = _barrier(things)
        if barrier is not None and barrier.cell[0] == 1:
            self.refusals["move forward"] = "There is a barrier in front of you, you can't move forward."
        else:
            self.actions["move forward"] = [FORWARD]

    def _each(self, verb: str, things: Sequence[Thing], then: Sequence[int]) -> None:
        reachable: Counter[str] = Counter()
        for thing in things:
            path = self._paths.before(thing.cell)
            what = f"{thing.name} {reachable[thing.name] + 1}"
            if path is None:
                self.refusals[f"{verb} {what}"] = f"You cannot {verb} {what}, as there is no path leading to it."
            else:
                reachable[thing.name] += 1
                self.actions[f"{verb} {what}"] = [*path, *then]

    def _drop(self, things: Sequence[Thing]) -> None:
        if not self._carrying:
            self.refusals["drop"] = "You cannot drop the object, as you are not carrying anything."
        elif any(thing.cell == (1, 0) and thing.kind != "door" for thing in things):
            self.refusals["drop"] = "You cannot drop the object, as there is already an object in front of you."
        else:
            self.actions["drop"] = [DROP]

    def _door(self, door: Thing, state: str) -> None:
        what = f"{door.name} {door.number}"
        verb = "go through" if state == "open" else "toggle and go through"
        reason, path = "there is no path leading to it", None
        if state == "locked" and not self._carrying.endswith(" key"):
            reason = "you are not carrying a key"
        elif state == "locked" and not self._carrying.startswith(f"{door.colour} "):
            reason = "the color of the key you are carrying does not match the color of door"
        elif state == "open":
            path = self._paths.onto(door.cell)
        else:
            path = self._paths.before(door.cell)
        if path is None:
            self.refusals[f"{verb} {what}"] = f"You cannot {verb} {what}, as {reason}."
        else:
            self.actions[f"{verb} {what}"] = path if state == "open" else [*path, TOGGLE, FORWARD]
            if state != "open" and not path:
                self.actions["toggle"] = [TOGGLE]
        if state == "closed":
            self.refusals[f"go through {what}"] = (
                f"You cannot go through {what}, as it is closed. You should toggle it first."
            )
