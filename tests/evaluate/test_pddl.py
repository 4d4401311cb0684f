"""AgentBoard's planning problems in its words, and planned."""

import json
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solving_environments import SolvingPddl as Pddl

from refinesynth.evaluate.environments.environment import CHECK, BadInstance, Instance, Source, Step
from refinesynth.evaluate.environments.pddl import BENCHMARK

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Of gym, which is not maintained.
    pytest.importorskip("pddlgym", reason="pip install 'refinesynth[pddl]', before Python 3.13")
pytest.importorskip("pyperplan", reason="pip install 'refinesynth[pddl]'")

# pddlgym leaves the files that it writes and reads to be closed by the collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <_io:pytest.PytestUnraisableExceptionWarning"),
]

Problems = dict[str, Instance]
GRIPPER, BARMAN, TYRES, BLOCKS = "gripper-prob01", "barman-p02", "tyreworld-p01", "blockworld-problem1"
WORDS = [
    *("", CHECK, "look around"),
    *("check", "pick", "drop", "move", "stack", "unstack", "pickup", "putdown", "open", "fetch", "grasp", "leave"),
    "clean-shaker",
    *["ball1", "rooma", "roomb", "left", "right", "b1", "b2", "boot", "wrench", "shot1"],
]


@pytest.fixture(scope="module")
def problems(evaluation_data: Path) -> Problems:
    return {one.id: one for one in BENCHMARK.instances(Source(evaluation_data))}


@pytest.fixture(scope="module")
def agentboard() -> Iterator[Pddl]:
    environment = Pddl()
    yield environment
    environment.close()


def _play(environment: Pddl, problem: Instance, *actions: str) -> list[Step]:
    environment.reset(problem)
    return [environment.step(action) for action in actions]


def test_the_60_problems_have_the_goals_of_their_labels(problems: Problems, agentboard: Pddl, evaluation_data: Path):
    rows = [json.loads(line) for line in (evaluation_data / "pddl" / "test.jsonl").read_text("utf-8").splitlines()]
    assert len(problems) == len(rows) == 60
    for problem, row in zip(problems.values(), rows, strict=True):
        assert problem.data["subgoals"] == row["subgoals"]
        assert agentboard.reset(problem).goal == row["goal"].strip(), "its facts are compared with the subgoals as well"
    assert {one.level for one in problems.values()} == {"gripper", "blockworld", "barman", "tyreworld"}


def test_gripper_reads_as_agentboards(problems: Problems, agentboard: Pddl):
    start = agentboard.reset(problems[GRIPPER])
    assert "Ball1 is at rooma. " in start.observation
    assert start.observation.endswith("Robby is at rooma.  Room rooma Room roomb")
    steps = _play(
        agentboard,
        problems[GRIPPER],
        "Pick up ball1 at rooma with arm left.",
        "pick ball2 rooma left",
        "drop ball3 rooma right",
        "Move from rooma to roomb.",
        "drop ball1 roomb left",
        CHECK,
    )
    assert "Ball1 is carrying left. " in steps[0].observation
    assert steps[1].observation == (
        "The action is not valid and therefore takes no effect. Please remember to satisfy the restriction of actions. You "
        "can also check valid actions."
    )
    assert steps[5].observation.startswith(
        "Valid actions are: Move from roomb to rooma. , Pick up ball1 at roomb with arm"
    )
    assert steps[5].observation.endswith(f", {CHECK}")
    assert [step.progress for step in steps] == [0, 0, 0, 0, 0.25, 0.25]
    assert [step.refused for step in steps] == [False, True, True, False, False, False]
    loose = _play(agentboard, problems[GRIPPER], "let me check")[0].observation
    assert loose.startswith("Valid actions are"), "any text with the word asks for them"


def test_barman_and_tyreworld_tell_what_is_new_and_look_around_tells_all(problems: Problems, agentboard: Pddl):
    start = agentboard.reset(problems[TYRES])
    assert agentboard.step("Open boot.").observation == "Boot is open."
    looked = agentboard.step("look around").observation
    assert len(looked) == len(start.observation.replace("Boot is closed.", "Boot is open."))
    assert "Boot is open." in looked
    assert agentboard.step(CHECK).observation.endswith(f", {CHECK}, look around")


@pytest.mark.parametrize("name", [GRIPPER, BLOCKS, BARMAN, TYRES])
def test_plans_win(name: str, problems: Problems, agentboard: Pddl):
    agentboard.reset(problems[name])
    steps: list[Step] = []
    for action in agentboard.solution() or ():
        assert action in agentboard.valid_actions()
        steps.append(agentboard.step(action))
    assert (steps[-1].success, steps[-1].done, steps[-1].progress) == (True, True, 1)
    assert steps[-1].observation.endswith(" The goal is satisfied.")
    assert not any(step.done or step.refused for step in steps[:-1])


def test_what_holds_from_the_start_counts_from_the_first_action_on(problems: Problems, agentboard: Pddl):
    for name, holding in (("blockworld-problem10", 1 / 6), ("blockworld-problem5", 1 / 2)):
        agentboard.reset(problems[name])
        assert [agentboard.step(action).progress for action in (CHECK, "look around", "fly away")] == [0, 0, 0]
        moved = agentboard.step(agentboard.valid_actions()[0]).progress
        assert 0 <= moved <= holding


@settings(max_examples=25, deadline=None)
@given(at=st.integers(0, 59), texts=st.lists(st.one_of(st.text(), st.lists(st.sampled_from(WORDS)).map(" ".join))))
def test_any_text_is_an_action_and_a_refused_one_changes_nothing(
    at: int, texts: Sequence[str], problems: Problems, agentboard: Pddl
):
    agentboard.reset(list(problems.values())[at])
    random, progress = Random(at), 0.0
    for text in texts:
        before = agentboard.valid_actions()
        step = agentboard.step(text)
        assert not step.refused or agentboard.valid_actions() == before
        moved = agentboard.step(random.choice(agentboard.valid_actions()))
        assert progress <= step.progress <= moved.progress <= 1
        progress = moved.progress


@pytest.mark.parametrize("text", ["pick ball1 " * 20_000, "\ud800", "\0", "-" * 200_000, "((((" * 10_000])
def test_long_and_odd_texts_are_read_at_once(text: str, problems: Problems, agentboard: Pddl):
    assert _play(agentboard, problems[GRIPPER], text)[0].refused


def test_files_of_a_problem_go_with_it(problems: Problems, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = Pddl()
    for name in (GRIPPER, BLOCKS):
        environment.reset(problems[name])
        assert len(list(tmp_path.glob("refinesynth-pddl-*"))) == 1
    environment.close()
    assert not list(tmp_path.glob("refinesynth-pddl-*"))


@pytest.mark.parametrize(
    "change",
    [
        {"game": "chess"},
        {"subgoals": ["b1 is on b2."]},
        {"problem": "/nowhere.pddl"},
        {"problem": "("},
        {"domain": "(define"},
        {"domain": "(" * 100_000},
        {"problem": " " * 2_000_000},
    ],
)
def test_bad_instances_are_said_to_be_bad_and_the_next_is_playable(
    change: dict[str, object], problems: Problems, agentboard: Pddl, tmp_path: Path
):
    data = {**problems[GRIPPER].data, **change}
    for name in ("domain", "problem"):
        if not str(data[name]).startswith("/"):
            (tmp_path / name).write_text(str(data[name]), "utf-8")
            data[name] = str(tmp_path / name)
    with pytest.raises(BadInstance, match="the problem 'x' cannot be played"):
        agentboard.reset(Instance("x", data))
    assert not _play(agentboard, problems[GRIPPER], "pick ball1 rooma left")[0].refused


def test_bad_data_is_said_to_be_bad(tmp_path: Path):
    row = {"goal": "", "subgoals": ["a"], "additional_info": {"subtask": "gripper"}}
    for changed, said in (
        (row, "0 problems, too few"),
        ({**row, "additional_info": {"subtask": "../x"}}, "domain '../x'"),
    ):
        (tmp_path / "pddl").mkdir(exist_ok=True)
        (tmp_path / "pddl" / "test.jsonl").write_text(json.dumps(changed), "utf-8")
        with pytest.raises(BadInstance, match=said):
            BENCHMARK.instances(Source(tmp_path))
    with pytest.raises(BadInstance, match="--data"):
        BENCHMARK.instances(Source())
