"""BabyAI and PDDL where no benchmark's data is: levels that minigrid makes, and a problem written here, each played through
a process of its own and by a whole evaluation.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from inspect_marks import INSPECT

from refinesynth.errors import InputError
from refinesynth.evaluate.benchmarks import find
from refinesynth.evaluate.environment_pool import EnvironmentProcess
from refinesynth.evaluate.environments.environment import Instance

pytest.importorskip("inspect_ai", reason="needs the extra evaluate")

from inspect_ai.log import read_eval_log

from refinesynth.evaluate.evaluation_run import evaluate
from refinesynth.evaluate.settings import Evaluation

pytestmark = INSPECT

LEVELS = ("BabyAI-GoToRedBallGrey-v0", "BabyAI-PickupLoc-v0", "BabyAI-OpenDoor-v0")

DOMAIN = """
(define (domain gripper)
  (:predicates (room ?r) (ball ?b) (gripper ?g) (at-robby ?r) (at ?b ?r) (free ?g) (carry ?o ?g))
  (:action move :parameters (?from ?to)
    :precondition (and (room ?from) (room ?to) (at-robby ?from))
    :effect (and (at-robby ?to) (not (at-robby ?from))))
  (:action pick :parameters (?obj ?room ?gripper)
    :precondition (and (ball ?obj) (room ?room) (gripper ?gripper) (at ?obj ?room) (at-robby ?room) (free ?gripper))
    :effect (and (carry ?obj ?gripper) (not (at ?obj ?room)) (not (free ?gripper))))
  (:action drop :parameters (?obj ?room ?gripper)
    :precondition (and (ball ?obj) (room ?room) (gripper ?gripper) (carry ?obj ?gripper) (at-robby ?room))
    :effect (and (at ?obj ?room) (free ?gripper) (not (carry ?obj ?gripper)))))
"""
PROBLEM = """
(define (problem one-ball) (:domain gripper) (:objects rooma roomb ball1 left)
  (:init (room rooma) (room roomb) (ball ball1) (gripper left) (at-robby rooma) (free left) (at ball1 rooma))
  (:goal (and (at ball1 roomb))))
"""


@pytest.mark.parametrize("level", LEVELS)
def test_the_search_solves_levels_of_minigrid(level: str):
    """AgentBoard's success wants more than half of the subgoals, and here the level's own end as well."""
    pytest.importorskip("minigrid", reason="needs the extra babyai")
    benchmark = replace(find("babyai"), environment="solving_environments:SolvingBabyAI")
    process = EnvironmentProcess(benchmark)
    start = process.reset(
        Instance(level, {"level": level, "seed": 7, "subgoals": [["The room", "walls around", "never seen"]]})
    )
    assert start.goal
    assert "turn left" in process.valid_actions()
    assert process.step("fly").refused
    steps = [process.step(action) for action in process.solution() or ()]
    process.end()
    assert not any(step.refused for step in steps)
    assert steps[-1].success


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    """A folder of data with one problem of one ball."""
    pytest.importorskip("pddlgym", reason="needs the extra pddl")
    folder = tmp_path / "pddl"
    (folder / "gripper").mkdir(parents=True)
    (folder / "gripper.pddl").write_text(DOMAIN, encoding="utf-8")
    (folder / "gripper" / "p1.pddl").write_text(PROBLEM, encoding="utf-8")
    label = {
        "goal": "Bring the ball to roomb.",
        "subgoals": ["ball1 is at roomb."],
        "difficulty": "easy",
        "additional_info": {"subtask": "gripper"},
    }
    (folder / "test.jsonl").write_text(json.dumps(label), encoding="utf-8")
    return tmp_path


def test_a_planning_problem_is_evaluated(problem: Path, tmp_path: Path):
    (log,) = evaluate(Evaluation(model="first", tasks="pddl", data=problem, output=tmp_path / "out"))
    assert log.status == "success"
    (sample,) = read_eval_log(log.location).samples or []
    assert sample.scores is not None
    assert "ball1 is at rooma" in sample.messages[0].text.lower()


def test_the_oracle_plays_worlds_whose_solution_is_known_alone(problem: Path, tmp_path: Path):
    with pytest.raises(InputError, match="pddl has no solutions, which --model oracle needs; expected worlds"):
        evaluate(Evaluation(model="oracle", tasks="pddl", data=problem, output=tmp_path / "out"))
