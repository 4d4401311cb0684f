"""Four planning domains in words, as AgentBoard plays them: gripper, blockworld, barman and tyreworld, by pddlgym.

The goal is told as AgentBoard's label tells it. With `compat="agentboard"` these quirks are kept, and with
`compat="repaired"` repaired:

- Some sentences are wrong: what a hand holds is not said, balls carry grippers, and glasses that have held something are
  described by an order to pour it. Repaired: `_REPAIRED`.
- Any text with `check` or `look around` in it lists the valid actions or the facts. Repaired: only these texts.

In both, lists are sorted, which AgentBoard leaves to chance, and an action that is listed as valid but would change
nothing (cleaning a clean shaker) is refused. Barman and tyreworld tell after the first observation only what is new.
"""

import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from refinesynth.evaluate.environments.environment import (
    CHECK,
    Action,
    BadInstance,
    Benchmark,
    Compat,
    Instance,
    Source,
    Start,
    Step,
)
from refinesynth.evaluate.environments.labels import AGENTBOARD, labels

_WORDS: Mapping[str, str] = {
    # blockworld
    "clear": "The {} is clear.",
    "arm-empty": "Your arm is empty.",
    "on-table": "{} is on the table.",
    "pickup": "Pickup {}.",
    "putdown": "Putdown {}.",
    "stack": "Stack {} on {}.",
    "unstack": "Unstack {} from {}.",
    # tyreworld
    "isopen": "{} is open.",
    "closed": "{} is closed.",
    "have": "You have {}.",
    "in": "{} is in {}.",
    "loose": "The nut {} on the hub {} is loose.",
    "tight": "The nut {} on the hub {} is tight.",
    "unlocked": "{} is unlocked.",
    "on-ground": "Hub {} is on the ground.",
    "not-on-ground": "Hub {} is not on the ground.",
    "inflated": "Wheel {} is inflated.",
    "not-inflated": "Wheel {} is not inflated.",
    "fastened": "Hub {} is fastened.",
    "unfastened": "Hub {} is unfastened.",
    "on": "{} is on {}.",
    "intact": "Wheel {} is intact.",
    "open": "Open {}.",
    "close": "Close {}.",
    "fetch": "Fetch {} from {}.",
    "put-away": "Put-away {} in {}.",
    "loosen": "Loosen the nut {} on the hub {}.",
    "tighten": "Tighten the nut {} on the hub {}.",
    "jack-up": "jack-up the hub {}.",
    "jack-down": "Jack-down the hub {}.",
    "undo": "Undo the fastening of the nut {} on the hub {}.",
    "do-up": "Do-up the nut {} on the hub {}.",
    "remove-wheel": "Remove-wheel {} from the hub {}.",
    "put-on-wheel": "put-on-wheel {} on the hub {}.",
    "inflate": "Inflate the wheel {}.",
    # gripper
    "ball": "{} is a ball. ",
    "gripper": "{} is a gripper. ",
    "at-robby": "Robby is at {}. ",
    "at": "{} is at {}. ",
    "free": "{} is free. ",
    "carry": "{} is carrying {}. ",
    "move": "Move from {} to {}. ",
    "pick": "Pick up {} at {} with arm {}. ",
    # barman
    "ontable": "{} is on the table. ",
    "holding": "You are holding {}. ",
    "empty": "{} is empty. ",
    "contains": "{} contains {}. ",
    "clean": "{} is clean. ",
    "used": "Pour {} from a shot glass to a used shaker {}",
    "dispenses": "{} dispenses {}. ",
    "shaker-empty-level": "{} is at empty level {}. ",
    "shaker-level": "{} is at level {}. ",
    "next": "level {} is next to level {}. ",
    "unshaked": "{} is unshaked. ",
    "shaked": "{} is shaked. ",
    "cocktail-part1": "{} part1 ingredient is {}. ",
    "cocktail-part2": "{} part2 ingredient is {}. ",
    "grasp": "{} grasp {}. ",
    "leave": "{} leave {}. ",
    "fill-shot": "fill-shot glass {} with {} with {} and {} holding {}. ",
    "refill-shot": "refill-shot {} with {} with {} and {} holding {}. ",
    "empty-shot": "use hand {} to empty-shot glass {} with beverage {}. ",
    "clean-shot": "clean-shot glass {} with {} with hand {} holding shot glass and {}. ",
    "pour-shot-to-clean-shaker": "pour-shot-to-clean-shaker from a shot glass {} with {} to a clean shaker {} with hand {} "
    "from level {} to level {}",
    "pour-shot-to-used-shaker": "pour-shot-to-used-shaker from a shot glass {} with {} to a used shaker {} with hand {} "
    "from level {} to level {}",
    "empty-shaker": "use hand {} to empty-shaker {} with ingredient {} from level {} to level {}.",
    "clean-shaker": "use hand {} and hand {} to clean-shaker {}",
    "shake": "shake a cocktail {} with ingredient {} and ingredient {} in a shaker {} with hand {} and hand {}",
    "pour-shaker-to-shot": "pour-shaker-to-shot to a shot glass {} the ingredient {} with hand {} from shaker {} from level "
    "{} to level {}",
}
"""By name of the predicate or action; one that is missing is said as its name and its objects."""

_REPAIRED: Mapping[str, str] = {
    **_WORDS,
    "carry": "{1} is carrying {0}. ",
    "drop": "Drop {} at {} with arm {}. ",
    "room": "{} is a room. ",
    "handempty": "{} is empty. ",
    "used": "{} has been used for {}. ",
    "pour-shaker-to-shot": "pour-shaker-to-shot the beverage {} to a shot glass {} with hand {} from shaker {} from level {} "
    "to level {}",
}
_HOLDING = "{0} is holding {1}. "
"""Sentence of a hand that holds; AgentBoard names only the hand, as what is held."""


def sentence(name: str, objects: Sequence[str], *, repaired: bool) -> str:
    """A fact or an action in words."""
    words = _REPAIRED if repaired else _WORDS
    template = _HOLDING if repaired and name == "holding" and len(objects) > 1 else words.get(name)
    if template is None or template.count("{") > len(objects):
        return " ".join((name, *objects)) if objects else f"{name} "
    return template.format(*objects)


_LOOK_ACTION = Action("look around", "All that is the case.")
_CHECK = Action(CHECK, "List what you can do now.")
_POUR = "shot} {ingredient} {shaker} {hand} {level1} {level2}"

ACTIONS: Mapping[str, tuple[Action, ...]] = {
    "gripper": (
        Action("move {room1} {room2}", "Go from the room where you are to another."),
        Action("pick {obj} {room} {gripper}", "Take an object that is in your room with a free gripper."),
        Action("drop {obj} {room} {gripper}", "Put down in your room what the gripper carries."),
        _CHECK,
    ),
    "blockworld": (
        Action("pickup {block}", "Take a clear block from the table with your empty arm."),
        Action("putdown {block}", "Put the block that you hold on the table."),
        Action("stack {block1} {block2}", "Put the block that you hold on a clear one."),
        Action("unstack {block1} {block2}", "Take a clear block from the one below it with your empty arm."),
        _CHECK,
    ),
    "barman": (
        Action("{hand} grasp {container}", "Take a container from the table with an empty hand."),
        Action("{hand} leave {container}", "Put the container that the hand holds on the table."),
        Action(
            "fill-shot {shot} {ingredient} {hand1} {hand2} {dispenser}",
            "Fill a clean, empty shot glass, held in the first hand; the second is empty.",
        ),
        Action(
            "refill-shot {shot} {ingredient} {hand1} {hand2} {dispenser}",
            "Fill an empty shot glass again with what it held before; the second hand is empty.",
        ),
        Action("empty-shot {hand} {shot} {beverage}", "Empty the shot glass that the hand holds."),
        Action(
            "clean-shot {shot} {beverage} {hand1} {hand2}",
            "Clean an empty shot glass of what it held, the second hand being empty.",
        ),
        Action(f"pour-shot-to-clean-shaker {{{_POUR}", "Into a clean, empty shaker, which rises to the next level."),
        Action(f"pour-shot-to-used-shaker {{{_POUR}", "Into a shaker that is not shaken yet, to its next level."),
        Action(
            "empty-shaker {hand} {shaker} {cocktail} {level1} {level2}", "Empty a shaken shaker to its empty level."
        ),
        Action("clean-shaker {hand1} {hand2} {shaker}", "Clean an empty shaker, the second hand being empty."),
        Action(
            "shake {cocktail} {ingredient1} {ingredient2} {shaker} {hand1} {hand2}",
            "Make the cocktail of its two parts, which the shaker holds, the second hand being empty.",
        ),
        Action(
            "pour-shaker-to-shot {beverage} {shot} {hand} {shaker} {level1} {level2}",
            "From a shaken shaker into a clean, empty shot glass; the shaker sinks to the level below.",
        ),
        _LOOK_ACTION,
        _CHECK,
    ),
    "tyreworld": (
        Action("open {container}", "Open an unlocked, closed container."),
        Action("close {container}"),
        Action("fetch {object} {container}", "Take a thing out of an open container."),
        Action("put-away {object} {container}", "Put a thing that you have into an open container."),
        Action("loosen {nut} {hub}", "Loosen a tight nut on a hub on the ground, with the wrench."),
        Action("tighten {nut} {hub}", "Tighten a loose nut on a hub on the ground, with the wrench."),
        Action("jack-up {hub}", "Lift a hub off the ground with the jack, which stays under it."),
        Action("jack-down {hub}", "Lower a hub and have the jack again."),
        Action("undo {nut} {hub}", "Take a loose nut off a fastened hub in the air, with the wrench."),
        Action("do-up {nut} {hub}", "Put a nut that you have on an unfastened hub in the air, with the wrench."),
        Action("remove-wheel {wheel} {hub}", "Take a wheel from an unfastened hub in the air."),
        Action("put-on-wheel {wheel} {hub}", "Put a wheel that you have on a free, unfastened hub in the air."),
        Action("inflate {wheel}", "Inflate an intact wheel with the pump."),
        _LOOK_ACTION,
        _CHECK,
    ),
}
"""By game."""

INTRODUCTIONS: Mapping[str, str] = {
    "gripper": "You are a robot with two grippers, which carry objects from room to room, one each.",
    "blockworld": "You are an arm that holds one block at a time, above a table on which blocks stand and are stacked.",
    "barman": "You are a barman with two hands, shot glasses, a shaker and dispensers of ingredients. A cocktail is shaken of "
    "two ingredients, which are poured into the shaker from shot glasses.",
    "tyreworld": "You change tyres. The tools and the intact wheels are in the boot, the nuts are tight on the hubs.",
}


_LOOK = "look around"
_HOLDS = f"pddl/ of {AGENTBOARD}: test.jsonl, and for each domain DOMAIN.pddl and the folder DOMAIN/ of its problems"
_UNKNOWN = "The action is not valid and therefore takes no effect. Please check valid actions."
_REFUSED = (
    "The action is not valid and therefore takes no effect. Please remember to satisfy the restriction of actions. You can "
    "also check valid actions."
)
_TOLD_NEWS = frozenset({"barman", "tyreworld"})
_MOST_BYTES = 1_000_000
_WORD = re.compile(r"[\w-]+")


class Pddl:
    """One problem after another; see `TextEnvironment`. What pddlgym writes lies in a folder that goes with the problem."""

    def __init__(self, *, compat: Compat) -> None:
        from pddlgym import spaces
        from pddlgym.core import PDDLEnv

        self._make: Any = PDDLEnv
        self._spaces: Any = spaces
        self._repaired = compat == "repaired"
        self._folder: TemporaryDirectory[str] | None = None
        self._game = None
        self._world: Any = None
        self._state: Any = None
        self._goal: frozenset[Any] = frozenset()
        self._valid: dict[str, Any] = {}
        self._progress, self._done = 0.0, False

    def reset(self, instance: Instance, /) -> Start:
        self.close()
        try:
            game, goal = str(instance.data["game"]), str(instance.data["goal"])
            self._begin(Path(instance.data["domain"]), Path(instance.data["problem"]))
            self._check(game, [str(one).strip() for one in instance.data["subgoals"]])
        except Exception as error:  # Whatever pddlgym raises of files that it cannot read.
            raise BadInstance(
                f"the problem {instance.id!r} cannot be played: {error!r}; expected {', '.join(ACTIONS)}, with the files and "
                "the goals of AgentBoard"
            ) from error
        self._game = game
        # What holds from the start counts from the first action on that changes something, as AgentBoard counts.
        self._progress, self._done = 0.0, False
        return Start(self._facts(self._state.literals), goal, ACTIONS[game], INTRODUCTIONS[game])

    def _begin(self, domain: Path, problem: Path) -> None:
        if (size := max(path.stat().st_size for path in (domain, problem))) > _MOST_BYTES:
            raise ValueError(f"a file of {size:,} bytes")
        self._folder = TemporaryDirectory(prefix="refinesynth-pddl-")
        self._spaces.TMP_PDDL_DIR = self._folder.name
        problems = Path(self._folder.name, "problems")
        problems.mkdir()
        shutil.copy(problem, problems / "problem.pddl")
        self._world = self._make(str(domain), str(problems), operators_as_actions=True, dynamic_action_space=True)
        self._world.fix_problem_index(0)
        self._enter(self._world.reset()[0])
        goal = self._state.goal
        self._goal = frozenset(getattr(goal, "literals", (goal,)))

    def _check(self, game: str, subgoals: Sequence[str]) -> None:
        said = sorted(self._say(fact).strip() for fact in self._goal)
        if game not in ACTIONS or said != list(subgoals):
            raise ValueError(f"{game!r} has the goals {said}, its label {subgoals}")

    def _enter(self, state: Any) -> None:
        self._state = state
        valid = ((self._say(action), action) for action in self._world.action_space.all_ground_literals(state))
        self._valid = dict(sorted(valid, key=lambda one: one[0]))

    def _say(self, literal: Any) -> str:
        objects = [str(one.name) for one in literal.variables]
        return sentence(literal.predicate.name, objects, repaired=self._repaired)

    def _facts(self, literals: Iterable[Any]) -> str:
        return " ".join(sorted(self._say(fact).capitalize() for fact in literals))

    def _satisfied(self) -> float:
        return len(self._goal & self._state.literals) / max(len(self._goal), 1)

    def step(self, action: str, /) -> Step:
        text = action.lower()
        if self._asks(text, "check", CHECK):
            look = (_LOOK,) if self._game in _TOLD_NEWS else ()
            return self._said("Valid actions are: " + ", ".join((*self._valid, CHECK, *look)))
        if self._asks(text, _LOOK, _LOOK):
            return self._said(self._facts(self._state.literals))
        literal = self._read(text)
        if literal is None:
            return self._said(_UNKNOWN, refused=True)
        if literal not in self._valid.values():
            return self._said(_REFUSED, refused=True)
        before = self._state
        state, _, self._done, *_ = self._world.step(literal)
        if state.literals == before.literals:
            return self._said(_REFUSED, refused=True)
        self._enter(state)
        self._progress = max(self._progress, self._satisfied())
        told = state.literals - before.literals if self._game in _TOLD_NEWS else state.literals
        return self._said(self._facts(told) + (" The goal is satisfied." if self._done else ""))

    def _asks(self, text: str, part: str, whole: str) -> bool:
        return text.strip(" .\n") == whole if self._repaired else part in text

    def _said(self, text: str, *, refused: bool = False) -> Step:
        return Step(text, self._progress, self._done, self._done, refused=refused)

    def _read(self, text: str) -> Any:
        """The first word that names a valid action, with as many of the named objects as it takes."""
        predicates = {action.predicate.name.lower(): action.predicate for action in self._valid.values()}
        objects = {str(one.name): one for one in self._state.objects}
        words = [word[0] for word in _WORD.finditer(text)]
        predicate = next((predicates[word] for word in words if word in predicates), None)
        if predicate is None:
            return None
        named = [objects[word] for word in words if word in objects][: predicate.arity]
        return predicate(*named) if len(named) == predicate.arity else None

    def valid_actions(self) -> Sequence[str]:
        return [text.strip() for text in self._valid]

    def close(self) -> None:
        """Remove the files of the problem."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _instances(source: Source) -> list[Instance]:
    """One per row; the n-th row of a domain has its n-th problem by file name."""
    folder = source.folder("pddl", holds=_HOLDS)
    seen: Counter[str] = Counter()
    found: list[Instance] = []
    for label in labels(folder):
        game = label.text("subtask")
        if game not in ACTIONS:
            raise BadInstance(f"{str(folder)!r} has the domain {game!r}; expected one of {', '.join(ACTIONS)}")
        problems = sorted((folder / game).glob("*.pddl"))
        if seen[game] >= len(problems) or not (folder / f"{game}.pddl").is_file():
            raise BadInstance(f"{str(folder / game)!r} holds {len(problems)} problems, too few; expected {_HOLDS}")
        problem = problems[seen[game]]
        seen[game] += 1
        data = {
            "game": game,
            "domain": str(folder / f"{game}.pddl"),
            "problem": str(problem),
            "goal": label.text("goal").strip(),
            "subgoals": label.texts("subgoals"),
        }
        found.append(Instance(f"{game}-{problem.stem}", data, game))
    return found


BENCHMARK = Benchmark(
    name="pddl",
    environment=f"{__name__}:Pddl",
    instances=_instances,
    extra="refinesynth[pddl]",
    process_variables={"MPLBACKEND": "Agg"},
)
