"""Two PDDL domains as rulebooks: the shipped blocks world, and gripper; and how their states say the domains'
literals."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from pydantic import JsonValue

from bench.grounded.pddl_aims import Aim, carry_over, stack_up
from bench.grounded.pddl_files import Literal, Problem
from refinesynth.trajectory import ActionSpec, Effect, EffectOp, MistakeKind, Requirement, Rulebook, Script


@dataclass(frozen=True)
class Domain:
    """A domain in both languages."""

    name: str
    """Of its file and folder."""
    templates: Mapping[str, str]
    """By operator, the action text, whose placeholders are the operator's parameters `0`, `1`, ..."""
    arities: Mapping[str, int]
    script: Callable[[Problem], Script]
    """The rulebook with a problem's objects, initial state and goal."""
    literals: Callable[[Any], Iterator[Literal]]
    """What a state says in PDDL, apart from what never changes."""
    aim: Aim
    fixed: frozenset[str] = frozenset()
    """Predicates that no operator changes."""

    def text(self, action: Literal) -> str:
        """A PDDL action as a player would type it."""
        return self.templates[action[0]].format(*action[1:])


def _need(condition: str, kind: MistakeKind, hint: str) -> Requirement:
    return Requirement(condition=condition, kind=kind, hint=hint)


def _blocks(problem: Problem) -> Script:
    """The four operators of the shipped blocks world over a problem's blocks, with nothing in the box."""
    shipped = files("refinesynth.prompts") / "examples" / "grounded" / "blocks.json"
    script = Script.from_json(shipped.read_bytes())
    on: dict[str, JsonValue] = {}
    for name, *objects in problem.initial:
        if name in {"on", "on-table", "holding"}:
            on[objects[0]] = {"on-table": "table", "holding": "hand"}.get(name) or objects[1]
    held: list[JsonValue] = [block for block, base in on.items() if base == "hand"]
    actions = tuple(
        action.model_copy(update={"parameters": dict.fromkeys(action.parameters, problem.objects)})
        for action in script.actions
        if action.name.split()[0] in {"pick", "put", "stack", "unstack"}
    )
    goal = tuple(f"{_BLOCKS_GOAL[name].format(*objects)}" for name, *objects in problem.goal)
    rulebook = Rulebook(goal=goal, invariants=script.rulebook.invariants if script.rulebook else ())
    environment: dict[str, JsonValue] = {"hand": held, "on": on, "box": {"open": False, "blocks": []}}
    update = {"environment": environment, "actions": actions, "rulebook": rulebook, "completion_conditions": goal}
    return script.model_copy(update=update)


_BLOCKS_GOAL = {
    "on": "state.on['{0}'] == '{1}'",
    "on-table": "state.on['{0}'] == 'table'",
    "holding": "'{0}' in state.hand",
    "arm-empty": "size(state.hand) == 0",
    "clear": "state.on['{0}'] != 'hand' && !state.on.exists(other, state.on[other] == '{0}')",
}


def _blocks_literals(state: Any) -> Iterator[Literal]:
    if not state["hand"]:
        yield ("arm-empty",)
    below = set(state["on"].values())
    for block, base in state["on"].items():
        yield {"table": ("on-table", block), "hand": ("holding", block)}.get(base) or ("on", block, base)
        if base != "hand" and block not in below:
            yield ("clear", block)


def _gripper(problem: Problem) -> Script:
    """A robot that carries balls between rooms, one in each gripper."""
    sorts = {sort: tuple(each[1] for each in sorted(problem.initial) if each[0] == sort) for sort in _SORTS}
    at: dict[str, JsonValue] = dict.fromkeys(sorts["ball"], "nowhere")
    at.update({name: place for kind, name, *rest in map(_padded, problem.initial) if kind == "at" for place in rest})
    holds: dict[str, JsonValue] = dict.fromkeys(sorts["gripper"], "")
    holds.update({gripper: ball for kind, ball, gripper in map(_padded, problem.initial) if kind == "carry"})
    robot = next(each[1] for each in problem.initial if each[0] == "at-robby")
    goal = tuple(_GRIPPER_GOAL[name].format(*objects) for name, *objects in problem.goal)
    return Script(
        introduction="You steer a robot that carries balls from room to room.",
        environment={"robot": robot, "at": at, "holds": holds},
        goal="Bring the balls where they belong.",
        completion_conditions=goal,
        actions=_gripper_actions(sorts),
        rulebook=Rulebook(goal=goal),
    )


_SORTS = ("room", "ball", "gripper")
_GRIPPER_GOAL = {
    "at": "state.at['{0}'] == '{1}'",
    "at-robby": "state.robot == '{0}'",
    "free": "state.holds['{0}'] == ''",
    "carry": "state.holds['{1}'] == '{0}'",
}


def _padded(literal: Literal) -> tuple[str, str, str]:
    name, *objects = literal
    first, second, *_ = (*objects, "", "")
    return name, first, second


def _gripper_actions(sorts: Mapping[str, tuple[str, ...]]) -> tuple[ActionSpec, ...]:
    rooms, balls, grippers = (sorts[sort] for sort in _SORTS)
    three = {"ball": balls, "room": rooms, "gripper": grippers}
    here = _need("state.robot == room", MistakeKind.PLACE, "The robot is in {state:/robot}, not in {room}.")
    return (
        ActionSpec(
            name="move from {start} to {room}",
            pattern=r"^move from (?P<start>\w+) to (?P<room>\w+)$",
            parameters={"start": rooms, "room": rooms},
            requires=(_need("state.robot == start", MistakeKind.PLACE, "The robot is in {state:/robot}."),),
            effects=(Effect(op=EffectOp.SET, path="/robot", value="{room}"),),
            reveals="The robot is in {room}.",
        ),
        ActionSpec(
            name="pick {ball} in {room} with {gripper}",
            pattern=r"^pick (?P<ball>\w+) in (?P<room>\w+) with (?P<gripper>\w+)$",
            parameters=three,
            requires=(
                here,
                _need("state.at[ball] == room", MistakeKind.PLACE, "There is no {ball} in {room}."),
                _need("state.holds[gripper] == ''", MistakeKind.LOGIC, "{gripper} holds {state:/holds/{gripper}}."),
            ),
            effects=(
                Effect(op=EffectOp.SET, path="/at/{ball}", value="nowhere"),
                Effect(op=EffectOp.SET, path="/holds/{gripper}", value="{ball}"),
            ),
            reveals="{gripper} holds {ball}.",
        ),
        ActionSpec(
            name="drop {ball} in {room} from {gripper}",
            pattern=r"^drop (?P<ball>\w+) in (?P<room>\w+) from (?P<gripper>\w+)$",
            parameters=three,
            requires=(
                here,
                _need("state.holds[gripper] == ball", MistakeKind.LOGIC, "{gripper} does not hold {ball}."),
            ),
            effects=(
                Effect(op=EffectOp.SET, path="/at/{ball}", value="{room}"),
                Effect(op=EffectOp.SET, path="/holds/{gripper}", value=""),
            ),
            reveals="{ball} lies in {room}.",
        ),
    )


def _gripper_literals(state: Any) -> Iterator[Literal]:
    yield ("at-robby", state["robot"])
    for ball, room in state["at"].items():
        if room != "nowhere":
            yield ("at", ball, room)
    for gripper, ball in state["holds"].items():
        yield ("carry", ball, gripper) if ball else ("free", gripper)


DOMAINS = (
    Domain(
        name="blockworld",
        templates={
            "pickup": "pick up {0}",
            "putdown": "put down {0}",
            "stack": "stack {0} on {1}",
            "unstack": "unstack {0} from {1}",
        },
        arities={"pickup": 1, "putdown": 1, "stack": 2, "unstack": 2},
        script=_blocks,
        literals=_blocks_literals,
        aim=stack_up,
    ),
    Domain(
        name="gripper",
        templates={
            "move": "move from {0} to {1}",
            "pick": "pick {0} in {1} with {2}",
            "drop": "drop {0} in {1} from {2}",
        },
        arities={"move": 2, "pick": 3, "drop": 3},
        script=_gripper,
        literals=_gripper_literals,
        aim=carry_over,
        fixed=frozenset(_SORTS),
    ),
)
