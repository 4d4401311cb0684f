"""pddlgym as a subprocess: problems and actions come in as JSON lines, states go out. Runs in pddlgym's own
environment.

Usage: pddl_job.py DOMAIN FOLDER
"""

import json
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any


def main() -> None:
    domain, folder = map(Path, sys.argv[1:3])
    # Both libraries chat on standard output, which belongs to the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    core: Any = import_module("pddlgym.core")
    env = core.PDDLEnv(
        str(domain),
        str(folder),
        operators_as_actions=True,
        dynamic_action_space=True,
        raise_error_on_invalid_action=True,
    )
    names = sorted(str(path) for path in folder.glob("*.pddl"))
    observation: Any = None
    for line in sys.stdin:
        asked = json.loads(line)
        if "problem" in asked:
            env.fix_problem_index(names.index(str(folder / asked["problem"])))
            observation, _ = env.reset()
            answer = {"objects": sorted(thing.name for thing in observation.objects), **_goal(observation)}
        else:
            observation, answer = _step(env, observation, asked["action"])
        answer["literals"] = _listed(observation.literals)
        answer["legal"] = _listed(env.action_space.all_ground_literals(observation, valid_only=True))
        print(json.dumps(answer), file=answers, flush=True)


def _step(env: Any, observation: Any, action: list[str]) -> tuple[Any, dict[str, Any]]:
    """What comes of an action: the state after it, whether it was legal, and whether the goal is reached."""
    core: Any = import_module("pddlgym.core")
    inference: Any = import_module("pddlgym.inference")
    name, *arguments = action
    things = {thing.name: thing for thing in observation.objects}
    literal = env.domain.predicates[name](*(things[argument] for argument in arguments))
    try:
        new, _, done, *_ = env.step(literal)
    except core.InvalidAction:
        return observation, {"accepted": False, "done": bool(inference.check_goal(observation, observation.goal))}
    return new, {"accepted": True, "done": bool(done)}


def _goal(observation: Any) -> dict[str, Any]:
    """The goal's literals; every problem of the two domains asks for some of them together."""
    goal = observation.goal
    return {"goal": _listed(getattr(goal, "literals", [goal]))}


def _listed(literals: Iterable[Any]) -> list[list[str]]:
    """Each literal as its predicate and its objects."""
    return sorted([each.predicate.name, *(thing.name for thing in each.variables)] for each in literals)


if __name__ == "__main__":
    main()
