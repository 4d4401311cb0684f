"""BabyAI's levels in AgentBoard's words, with its goals, subgoals and quirks."""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solving_environments import SolvingBabyAI as BabyAI

from refinesynth.evaluate.environments.babyai import BENCHMARK
from refinesynth.evaluate.environments.environment import CHECK, BadInstance, Instance, Source, Start, Step

pytest.importorskip("minigrid", reason="pip install 'refinesynth[babyai]'")

Levels = dict[str, Instance]
RED_DOOR, TWO_DOORS, BALL = "OpenRedDoor-1234", "OpenDoorsOrderN4Debug-1234", "GoToRedBallGrey-1237"
WORDS = [
    *("", "check", CHECK, "turn left", "turn right", "move forward", "toggle", "drop", "go to", "pick up", "pickup"),
    *("go through", "toggle and go through", "red", "grey", "ball", "box", "key", "closed door", "1", "2", "0", "-1"),
]


@pytest.fixture(scope="module")
def levels(evaluation_data: Path) -> Levels:
    return {one.id: one for one in BENCHMARK.instances(Source(evaluation_data))}


@pytest.fixture(scope="module")
def agentboard() -> BabyAI:
    return BabyAI()


def _play(environment: BabyAI, level: Instance, *actions: str) -> list[Step]:
    environment.reset(level)
    return [environment.step(action) for action in actions]


def test_112_levels_begin_exactly_as_their_labels_say(levels: Levels, agentboard: BabyAI, evaluation_data: Path):
    rows = [json.loads(line) for line in (evaluation_data / "babyai" / "test.jsonl").read_text("utf-8").splitlines()]
    starts: list[Start] = [agentboard.reset(level) for level in levels.values()]
    assert len(starts) == 112
    assert [start.observation for start in starts] == [row["additional_info"]["init_obs"] for row in rows]
    assert [_plain(start.goal) for start in starts] == [_plain(row["goal"]) for row in rows]
    assert {level.level for level in levels.values()} == {"easy", "hard"}


def _plain(goal: str) -> str:
    """Labels keep `then` and `after you` in some goals."""
    return goal.replace("then", "and").replace("after you", "and")


def test_a_level_reads_as_agentboards(levels: Levels, agentboard: BabyAI):
    steps = _play(agentboard, levels[RED_DOOR], CHECK, "toggle", "drop", "go to red closed door 1", "toggle")
    assert steps[0].observation == (
        "You can take the following actions: turn left, turn right, move forward, toggle and go through red closed door "
        "1, go to red closed door 1, check available actions"
    )
    assert steps[1].observation == "The action is not recognized. Please check valid actions."
    assert steps[2].observation == "You cannot drop the object, as you are not carrying anything."
    assert steps[3].observation == (
        "In front of you in this room, you can see several objects: There is a red closed door 1 right in front of you 1 "
        "steps away.  The room has walls around you. You are not carrying anything."
    )
    assert steps[4].observation.startswith(
        "In front of you in this room, you can see several objects: There is a red open door 1 right in front of you"
    )
    assert steps[4].observation.endswith("You are not carrying anything.\n The task is completed.")
    assert [step.progress for step in steps] == [0, 0, 0, 0.5, 1]
    assert [step.refused for step in steps] == [False, True, True, False, False]
    assert [step.success for step in steps] == [step.done for step in steps] == [False] * 4 + [True]


@pytest.mark.long
@pytest.mark.parametrize("name", [RED_DOOR, TWO_DOORS, "GoToObjS6-1235", "KeyCorridorS6R3-1236", "UnlockToUnlock-1234"])
def test_the_search_solves_levels_and_leaves_them_as_they_were(name: str, levels: Levels, agentboard: BabyAI):
    start = agentboard.reset(levels[name])
    found = agentboard.solution() or ()
    assert 0 < len(found) <= BENCHMARK.steps
    begins = agentboard.valid_actions()
    assert agentboard.reset(levels[name]) == start
    assert agentboard.valid_actions() == begins
    steps = [agentboard.step(action) for action in found]
    assert steps[-1].success
    assert not any(step.refused or step.done for step in steps[:-1])


def test_quirks_of_agentboard(levels: Levels, agentboard: BabyAI):
    box = levels["PickupLoc-1235"]
    assert "pick up {obj} {id}" in [action.name for action in agentboard.reset(box).actions]
    assert "pickup purple box 1" in agentboard.valid_actions()
    assert _play(agentboard, box, "PICKUP purple box 1 ")[0].success
    assert _play(agentboard, box, "pick up purple box 1")[0].refused
    assert not _play(agentboard, box, "go to green ball 1")[0].refused, "a path beyond the field of view"
    checked = _play(agentboard, levels[BALL], "I would like to check the door")[0]
    assert checked.observation.startswith("You can take the following actions: turn")
    assert not _play(agentboard, levels[RED_DOOR], "toggle and go through red closed door 1")[0].done
    assert agentboard.reset(levels[TWO_DOORS]).goal == "open the blue door and open the red door"
    wrong_first = ("go to blue closed door 1", "toggle")
    assert not _play(agentboard, levels[TWO_DOORS], *wrong_first)[-1].done, "its end is cancelled"
    agentboard.reset(levels[TWO_DOORS])
    assert _play(agentboard, levels[TWO_DOORS], *(agentboard.solution() or ()))[-1].success, "in either order"


def test_one_subgoal_counts_a_step(levels: Levels, agentboard: BabyAI):
    level = levels["UnlockToUnlock-1234"]
    shown = Instance("", {**level.data, "subgoals": [["The room", "walls around", "never shown"]]})
    steps = _play(agentboard, shown, "turn left", "turn right", "turn left")
    assert [step.progress for step in steps] == [1 / 3, 2 / 3, 2 / 3]


def test_ways_of_subgoals_are_alternatives_place_by_place(levels: Levels, agentboard: BabyAI):
    ways = [["The room", "never"], ["never", "walls"]]
    level = Instance("", {**levels[BALL].data, "subgoals": ways})
    assert [step.progress for step in _play(agentboard, level, "turn left", "turn left")] == [0.5, 1]
    assert ways == [["The room", "never"], ["never", "walls"]], "the instance is left as it is"


@pytest.mark.long
@settings(max_examples=40)
@given(seed=st.integers(0, 111), texts=st.lists(st.one_of(st.text(), st.lists(st.sampled_from(WORDS)).map(" ".join))))
def test_any_text_is_an_action_and_a_refused_one_changes_nothing(
    seed: int, texts: Sequence[str], levels: Levels, agentboard: BabyAI
):
    agentboard.reset(list(levels.values())[seed])
    random, progress = Random(seed), 0.0
    for text in texts:
        before = agentboard.valid_actions()
        step = agentboard.step(text)
        assert progress <= step.progress <= 1
        assert not step.refused or agentboard.valid_actions() == before
        progress = step.progress
        step = agentboard.step(random.choice(agentboard.valid_actions()))
        assert progress <= step.progress <= 1
        assert not step.refused
        progress = step.progress


@pytest.mark.parametrize("text", ["go to " * 50_000, "\ud800", "\0", "check" * 50_000, "pickup" + " " * 100_000])
def test_long_and_odd_texts_are_read_at_once(text: str, levels: Levels, agentboard: BabyAI):
    assert len(_play(agentboard, levels[BALL], text)[0].observation) < 2_000


def _row(**changes: object) -> dict[str, object]:
    about = {"init_obs": "", "subtask": "BabyAI-GoToRedBall-v0"}
    return {"subgoals": ["a"], "difficulty": "easy", "additional_info": about, **changes}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1 of .* is no JSON"),
        ("[]", "is no JSON object"),
        (json.dumps(_row(subgoals=[])), r"line 1 of .* has subgoals \[\]"),
        (json.dumps(_row(additional_info=[])), "has subtask None"),
        (json.dumps(_row(difficulty=3)), "has difficulty 3"),
    ],
)
def test_bad_labels_are_said_to_be_bad(text: str, said: str, tmp_path: Path):
    (tmp_path / "babyai").mkdir()
    (tmp_path / "babyai" / "test.jsonl").write_text(text, "utf-8")
    with pytest.raises(BadInstance, match=said):
        BENCHMARK.instances(Source(tmp_path))


@pytest.mark.parametrize(
    "change", [{"level": "os:system"}, {"seed": -1}, {"subgoals": [["a"], ["a", "b"]]}, {"observation": "Other."}]
)
def test_bad_instances_are_said_to_be_bad_and_the_next_is_playable(
    change: dict[str, object], levels: Levels, agentboard: BabyAI
):
    with pytest.raises(BadInstance, match="BabyAI level"):
        agentboard.reset(Instance("x", {**levels[BALL].data, **change}))
    assert _play(agentboard, levels[BALL], "move forward")[0].success
