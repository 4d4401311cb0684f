"""Four planning domains in words, as AgentBoard plays them: gripper, blockworld, barman and tyreworld, by pddlgym.

The goal has the wording of AgentBoard's label. These quirks of AgentBoard are kept:

- Some sentences are wrong: the object that a hand holds is not named, balls carry grippers, and a used glass is
  described by an order to pour.
- Any text with `check` or `look around` in it lists the valid actions or the facts.

Lists are sorted; AgentBoard's order is random. An action that is listed as valid but would change nothing (cleaning a
clean shaker) is refused. After the first observation, barman and tyreworld only report new facts.
"""

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
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

_DATA: Any = json.loads(Path(__file__).with_name("pddl.json").read_text(encoding="utf-8"))
_TEMPLATES: Mapping[str, str] = _DATA["words"]


def sentence(name: str, objects: Sequence[str]) -> str:
    """A fact or an action in words."""
    template = _TEMPLATES.get(name)
    if template is None or template.count("{") > len(objects):
        return " ".join((name, *objects)) if objects else f"{name} "
    return template.format(*objects)


_LOOK = "look around"
_REPORTS_CHANGES = frozenset({"barman", "tyreworld"})
"""Games that only report new facts after the first observation, and list `look around`."""

ACTIONS: Mapping[str, tuple[Action, ...]] = {
    name: (
        *(Action(*action) for action in game["actions"].items()),
        *([Action(_LOOK, "All that is the case.")] if name in _REPORTS_CHANGES else []),
        Action(CHECK, "List what you can do now."),
    )
    for name, game in _DATA["games"].items()
}

INTRODUCTIONS: Mapping[str, str] = {name: game["introduction"] for name, game in _DATA["games"].items()}

_FILES = f"pddl/ of {AGENTBOARD}: test.jsonl, and for each domain DOMAIN.pddl and the folder DOMAIN/ of its problems"
_UNKNOWN = "The action is not valid and therefore takes no effect. Please check valid actions."
_REFUSED = (
    "The action is not valid and therefore takes no effect. Please remember to satisfy the restriction of actions. You can "
    "also check valid actions."
)
_WORD = re.compile(r"[\w-]+")


class Pddl:
    """Environment that plays one problem after another. pddlgym writes into a temporary folder for each problem."""

    def __init__(self) -> None:
        from pddlgym import spaces
        from pddlgym.core import PDDLEnv

        self._make: Any = PDDLEnv
        self._spaces: Any = spaces
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
            self._check(game, [str(text).strip() for text in instance.data["subgoals"]])
        except Exception as error:  # pddlgym may raise anything for unreadable files.
            raise BadInstance(
                f"the problem {instance.id!r} cannot be played: {error!r}; expected {', '.join(ACTIONS)}, with the files and "
                "the goals of AgentBoard"
            ) from error
        self._game = game
        # As in AgentBoard, goals that hold at the start count after the first action that changes the state.
        self._progress, self._done = 0.0, False
        return Start(self._facts(self._state.literals), goal, ACTIONS[game], INTRODUCTIONS[game])

    def _begin(self, domain: Path, problem: Path) -> None:
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
        goals = sorted(self._in_words(fact).strip() for fact in self._goal)
        if game not in ACTIONS or goals != list(subgoals):
            raise ValueError(f"{game!r} has the goals {goals}, its label {subgoals}")

    def _enter(self, state: Any) -> None:
        self._state = state
        valid = ((self._in_words(action), action) for action in self._world.action_space.all_ground_literals(state))
        self._valid = dict(sorted(valid, key=lambda pair: pair[0]))

    def _in_words(self, literal: Any) -> str:
        return sentence(literal.predicate.name, [str(variable.name) for variable in literal.variables])

    def _facts(self, literals: Iterable[Any]) -> str:
        return " ".join(sorted(self._in_words(fact).capitalize() for fact in literals))

    def step(self, action: str, /) -> Step:
        text = action.lower()
        if "check" in text:
            look = (_LOOK,) if self._game in _REPORTS_CHANGES else ()
            return self._reply("Valid actions are: " + ", ".join((*self._valid, CHECK, *look)))
        if _LOOK in text:
            return self._reply(self._facts(self._state.literals))
        literal = self._parse(text)
        if literal is None:
            return self._reply(_UNKNOWN, refused=True)
        if literal not in self._valid.values():
            return self._reply(_REFUSED, refused=True)
        previous = self._state
        state, _, self._done, *_ = self._world.step(literal)
        if state.literals == previous.literals:
            return self._reply(_REFUSED, refused=True)
        self._enter(state)
        satisfied = len(self._goal & state.literals) / max(len(self._goal), 1)
        self._progress = max(self._progress, satisfied)
        facts = state.literals - previous.literals if self._game in _REPORTS_CHANGES else state.literals
        return self._reply(self._facts(facts) + (" The goal is satisfied." if self._done else ""))

    def _reply(self, text: str, *, refused: bool = False) -> Step:
        return Step(text, self._progress, self._done, self._done, refused=refused)

    def _parse(self, text: str) -> Any:
        """The action of the first word that names a valid one, with the first named objects; None if there are too few."""
        predicates = {action.predicate.name.lower(): action.predicate for action in self._valid.values()}
        objects = {str(item.name): item for item in self._state.objects}
        words = [word[0] for word in _WORD.finditer(text)]
        predicate = next((predicates[word] for word in words if word in predicates), None)
        if predicate is None:
            return None
        arguments = [objects[word] for word in words if word in objects][: predicate.arity]
        return predicate(*arguments) if len(arguments) == predicate.arity else None

    def valid_actions(self) -> Sequence[str]:
        return [text.strip() for text in self._valid]

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _instances(source: Source) -> list[Instance]:
    """One instance per row; the n-th row of a domain has its n-th problem by file name."""
    folder = source.folder("pddl", holds=_FILES)
    seen: Counter[str] = Counter()
    instances: list[Instance] = []
    for label in labels(folder):
        game = label.text("subtask")
        if game not in ACTIONS:
            raise BadInstance(f"{str(folder)!r} has the domain {game!r}; expected one of {', '.join(ACTIONS)}")
        problems = sorted((folder / game).glob("*.pddl"))
        if seen[game] >= len(problems) or not (folder / f"{game}.pddl").is_file():
            raise BadInstance(f"{str(folder / game)!r} holds {len(problems)} problems, too few; expected {_FILES}")
        problem = problems[seen[game]]
        seen[game] += 1
        data = {
            "game": game,
            "domain": str(folder / f"{game}.pddl"),
            "problem": str(problem),
            "goal": label.text("goal").strip(),
            "subgoals": label.texts("subgoals"),
        }
        instances.append(Instance(f"{game}-{problem.stem}", data, game))
    return instances


BENCHMARK = Benchmark(
    name="pddl",
    environment=f"{__name__}:Pddl",
    instances=_instances,
    extra="refinesynth[pddl]",
    process_variables={"MPLBACKEND": "Agg"},
)
