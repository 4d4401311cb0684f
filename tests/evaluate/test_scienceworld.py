"""ScienceWorld, where its package, Java and AgentBoard's labels are."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refinesynth.errors import InputError
from refinesynth.evaluate.benchmarks import find, read_instances
from refinesynth.evaluate.environment_pool import EnvironmentProcess
from refinesynth.evaluate.environments.environment import CHECK, Instance

pytestmark = pytest.mark.process

HARD = "40-change-the-state-of-matter-of-8"


@pytest.fixture(scope="module")
def instances(evaluation_data: Path) -> dict[str, Instance]:
    pytest.importorskip("scienceworld", reason="needs the extra scienceworld")
    if shutil.which("java") is None:
        pytest.skip("needs Java")
    return {one.id: one for one in read_instances("scienceworld", data=evaluation_data)}


@pytest.fixture(scope="module")
def world(instances: dict[str, Instance]) -> Iterator[EnvironmentProcess]:
    process = EnvironmentProcess(replace(find("scienceworld"), environment="solving_environments:SolvingScienceWorld"))
    yield process
    process.end()


def test_the_labels_are_read_as_they_are(instances: dict[str, Instance]):
    assert len(instances) == 90
    assert {one.level for one in instances.values()} == {"easy", "hard"}


@pytest.mark.parametrize("name", ["0-lifespan-longest-lived-5", "3-lifespan-longest-lived-then-shortest-lived-5"])
def test_the_way_that_the_simulator_knows_meets_all_subgoals(
    world: EnvironmentProcess, instances: dict[str, Instance], name: str
):
    start = world.reset(instances[name])
    assert start.goal == instances[name].data["goal"]
    assert start.observation.startswith("This room is called")
    assert "In your inventory" in start.observation
    steps = [world.step(action) for action in world.solution() or ()]
    assert steps[-1].success
    assert steps[-1].done
    assert [one.progress for one in steps] == sorted(one.progress for one in steps)


def test_forms_of_actions_can_be_asked_for_and_cost_nothing_else(
    world: EnvironmentProcess, instances: dict[str, Instance]
):
    world.reset(instances[HARD])
    listed = world.step(CHECK)
    assert "pick up OBJ" in listed.observation
    assert "reset" not in listed.observation
    assert not listed.refused
    assert "look around" in world.valid_actions()


@given(st.text(max_size=40) | st.sampled_from(("open", "go to go to", "x" * 9_999, "\ud800", "reset", "0")))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_an_action(world: EnvironmentProcess, instances: dict[str, Instance], text: str):
    if not world.episodes:
        world.reset(instances[HARD])
    assert 0.0 <= world.step(text).progress <= 1.0


def test_a_wrong_focus_does_not_end_the_experiment(world: EnvironmentProcess, instances: dict[str, Instance]):
    world.reset(instances["0-lifespan-longest-lived-5"])
    assert not world.step("focus on air").done


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "is no JSON"),
        ("[]", "is no JSON object"),
        ("{}", "has env_name None; expected a text"),
        (
            json.dumps({"goal": "x", "subgoals": ["("], "additional_info": {"env_name": "boil", "var": 1}}),
            "is no pattern",
        ),
    ],
)
def test_a_bad_file_of_labels_is_said(tmp_path: Path, line: str, message: str):
    (tmp_path / "scienceworld").mkdir()
    (tmp_path / "scienceworld" / "test.jsonl").write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_instances("scienceworld", data=tmp_path)
