"""ALFWorld's games in AgentBoard's wording, with its goals, subgoals and quirks."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from solving_environments import SolvingAlfWorld as AlfWorld

from refinesynth.evaluate.environments.alfworld import BENCHMARK, subgoals
from refinesynth.evaluate.environments.environment import CHECK, BadInstance, Instance, Source, Step
from refinesynth.evaluate.environments.perturbation import PERTURBATIONS, perturbed

pytestmark = pytest.mark.process

Games = dict[str, Instance]

CLEAN = "clean-mug-coffeemachine-10-"
BESIDE = "put-peppershaker-drawer-10-823501"
"""Its pepper shaker stands beside the place that the walkthrough goes to."""


@pytest.fixture(scope="module")
def games(evaluation_data: Path) -> Games:
    found = BENCHMARK.instances(Source(evaluation_data))
    return {one.id: one for one in found}


@pytest.fixture(scope="module")
def household() -> Iterator[AlfWorld]:
    pytest.importorskip("alfworld", reason="pip install 'refinesynth[alfworld]'")
    environment = AlfWorld()
    yield environment
    environment.close()


def _one(games: Games, start: str) -> Instance:
    return next(one for name, one in games.items() if name.startswith(start))


def test_the_134_games_come_in_agentboards_order_under_short_names(games: Games):
    assert len(games) == 134
    assert next(iter(games)) == "examine-alarmclock-desklamp-308-366542"
    assert [one.data["game"] for one in games.values()] == sorted(one.data["game"] for one in games.values())
    assert {one.level for one in games.values()} == {"put", "examine", "clean", "heat", "cool", "puttwo"}


def test_a_game_reads_as_agentboards(games: Games, household: AlfWorld):
    start = household.reset(games["puttwo-keychain-safe-219-423115"])
    assert start.goal == "put two keychain in safe."
    assert start.observation.startswith(
        "You are in the middle of a room. Looking quickly around you, you see a armchair 1, "
    )
    assert start.observation.endswith(" and a sofa 1.")
    assert "put {obj} in/on {recep}" in [action.name for action in start.actions]
    said = [household.step(action) for action in household.solution()]
    assert [one.observation for one in said[:5]] == [
        "On the sidetable 1, you see a keychain 1, and a watch 1.",
        "You pick up the keychain 1 from the sidetable 1.",
        "The safe 1 is closed.",
        "You open the safe 1. The safe 1 is open. In it, you see a watch 3, and a watch 2.",
        "You put the keychain 1 in/on the safe 1.",
    ]
    assert [one.progress for one in said[:5]] == [0.25, 0.5, 0.5, 0.5, 0.75]
    assert (said[-1].progress, said[-1].done, said[-1].success) == (1.0, True, True)
    assert not any(one.done or one.refused for one in said[:-1])


def test_valid_actions_can_be_asked_for_at_the_cost_of_a_step(games: Games, household: AlfWorld):
    household.reset(_one(games, CLEAN))
    step = household.step(f"{CHECK}.")
    listed = step.observation.removeprefix("Choose an action from these valid actions: ").split(", ")
    assert listed == [*household.valid_actions(), CHECK]
    assert not step.refused


def test_put_is_understood_in_three_wordings_and_move_is_not(games: Games, household: AlfWorld):
    household.reset(_one(games, CLEAN))
    household.step("go to countertop 2")
    assert household.step("take mug 1 from countertop 2").observation == "You pick up the mug 1 from the countertop 2."
    for wording in ("in/on", "in", "on"):
        assert household.step("move mug 1 to countertop 2").refused
        assert (
            household.step(f" put mug 1 {wording} countertop 2. ").observation
            == "You put the mug 1 in/on the countertop 2."
        )
        household.step("take mug 1 from countertop 2")


def test_quirks_of_agentboard(games: Games, household: AlfWorld):
    start = household.reset(games[BESIDE])
    assert "toggle {obj}" in [action.name for action in start.actions]
    go, take, *more = [str(action) for action in household.solution() or ()]
    steps = [household.step(action) for action in (go, take, "look", *more)]
    assert steps[2].observation == "On the coffeemachine 1, you see nothing.", "what was seen on arrival"
    assert [step.progress for step in steps] == [0.0, 1 / 3, 1 / 3, 1 / 3, 1 / 3, 1.0]


@pytest.mark.parametrize(
    ("name", "offered"),
    [
        ("P1", "clean {obj} using {recep}"),
        ("P2", "move to {recep}"),
        ("P3", "from {recep} take {obj}"),
        ("P4", "go to {recep}"),
    ],
)
def test_walkthroughs_win_under_each_perturbation_and_the_original_wording_is_refused(
    name: str, offered: str, games: Games, household: AlfWorld
):
    swap = PERTURBATIONS[name]
    environment = perturbed(household, name)
    start = environment.reset(_one(games, CLEAN))
    assert offered in [action.name for action in start.actions]
    refused = 0
    steps: list[Step] = []
    for action in map(swap, household.solution()):
        assert action in environment.valid_actions()
        if swap(action) != action:
            assert environment.step(swap(action)).refused
            refused += 1
        steps.append(environment.step(action))
    assert steps[-1].success
    assert not any(step.refused for step in steps)
    assert refused


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(
    action=st.one_of(
        st.text(), st.sampled_from(["", "\ud800", "go to " * 20_000, "put " + "in " * 20_000, "x" * 100_000])
    )
)
def test_no_action_raises_or_hangs(action: str, at_the_start: AlfWorld):
    valid = at_the_start.valid_actions()
    step = at_the_start.step(action)
    assert step.refused
    assert step.observation == "Nothing happens."
    assert at_the_start.valid_actions() == valid


@pytest.fixture(scope="module")
def at_the_start(games: Games) -> AlfWorld:
    pytest.importorskip("alfworld", reason="pip install 'refinesynth[alfworld]'")
    environment = AlfWorld()
    environment.reset(_one(games, CLEAN))
    return environment


def test_names_in_an_instance_are_no_patterns():
    assert subgoals("clean", "(mug", "x")[1:] == (r"You pick up the \(mug \d+", r"You clean the \(mug")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read"),
        (json.dumps({"pddl_domain": "", "pddl_problem": ""}), "cannot be read"),
        (json.dumps({"pddl_domain": "(", "pddl_problem": ")", "grammar": ""}), "cannot be played"),
    ],
)
def test_a_bad_game_is_said_to_be_bad(text: str, said: str, tmp_path: Path, household: AlfWorld):
    game = tmp_path / "game.tw-pddl"
    game.write_text(text, "utf-8")
    with pytest.raises(BadInstance, match=said):
        household.reset(Instance("", {"game": str(game), "object": "mug", "place": "desk"}, "put"))


@pytest.mark.representative
def test_a_bad_game_leaves_the_next_one_playable(tmp_path: Path, games: Games, household: AlfWorld):
    good = _one(games, CLEAN)
    game = json.loads(Path(good.data["game"]).read_text("utf-8"))
    (tmp_path / "game").write_text(
        json.dumps({**game, "pddl_problem": "(define (problem p) (:domain alfred))"}), "utf-8"
    )
    with pytest.raises(BadInstance, match="cannot be played"):
        household.reset(Instance("", {**good.data, "game": str(tmp_path / "game")}, "clean"))
    household.reset(good)
    assert [household.step(action).success for action in household.solution()][-1]


def test_missing_data_says_what_belongs_where(tmp_path: Path):
    with pytest.raises(BadInstance, match="alfworld-download"):
        BENCHMARK.instances(Source(tmp_path))
    (tmp_path / "alfworld").mkdir()
    with pytest.raises(BadInstance, match="no games in"):
        BENCHMARK.instances(Source(tmp_path))
    odd = tmp_path / "alfworld" / "json_2.1.1" / "valid_unseen" / "odd" / "trial_1"
    odd.mkdir(parents=True)
    (odd / "game.tw-pddl").write_text('{"solvable": false}', "utf-8")
    with pytest.raises(BadInstance, match="no games in"):
        BENCHMARK.instances(Source(tmp_path))
    (odd / "game.tw-pddl").write_text('{"solvable": true}', "utf-8")
    with pytest.raises(BadInstance, match="names no task"):
        BENCHMARK.instances(Source(tmp_path))
