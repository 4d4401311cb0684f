"""A game that `tw-make` makes here is played to its end; only the library's own commands reach it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.evaluate.environments.environment import CHECK, BadInstance, Instance, Source
from refinesynth.evaluate.environments.textworld import BENCHMARK, TextWorldGame


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One game: go south, take the teaspoon from the shelf, put it on the bowl."""
    pytest.importorskip("textworld", reason="pip install 'refinesynth[textworld]'")
    games = tmp_path_factory.mktemp("games")
    made = [str(Path(sys.executable).with_name("tw-make")), "custom", "--world-size", "2", "--nb-objects", "4"]
    made += ["--quest-length", "3", "--seed", "7", "--silent", "--output", str(games / "tiny.z8")]
    subprocess.run(made, check=True, timeout=60, capture_output=True)
    return games


@pytest.fixture
def game(folder: Path) -> Iterator[TextWorldGame]:
    environment = TextWorldGame(compat="agentboard")
    (instance,) = BENCHMARK.instances(Source(argument=str(folder)))
    assert instance.id == "tiny"
    environment.reset(instance)
    yield environment
    environment.close()


def test_the_walkthrough_wins_and_each_of_its_steps_is_progress(game: TextWorldGame):
    walkthrough = game.solution() or ()
    assert len(walkthrough) == 3
    steps = [game.step(action) for action in walkthrough]
    assert [round(step.progress, 2) for step in steps] == [0.33, 0.67, 1.0]
    assert [step.success for step in steps] == [step.done for step in steps] == [False, False, True]
    assert [step.measures["score"] for step in steps] == [0.0, 0.0, 1.0]
    assert not any(step.refused for step in steps)
    assert steps[1].observation == "You take the teaspoon from the shelf."
    assert "RESTART" not in steps[2].observation


def test_a_start_is_the_first_room_the_goal_and_readable_actions(folder: Path):
    environment = TextWorldGame(compat="agentboard")
    start = environment.reset(BENCHMARK.instances(Source(argument=str(folder)))[0])
    assert start.observation.startswith("-= Lounge =-\nYou've just shown up in a lounge.\n\nThere is an exit")
    assert ">" not in start.observation
    assert "retrieve the teaspoon from the shelf" in start.goal
    assert {"take {object} from {supporter}", "go south", CHECK} <= {action.name for action in start.actions}
    environment.close()


def test_progress_is_the_farthest_and_a_game_begins_anew(game: TextWorldGame, folder: Path):
    game.step("go south")
    game.step("take teaspoon from shelf")
    back = game.step("go north")
    assert round(back.progress, 2) == 0.67
    game.reset(BENCHMARK.instances(Source(argument=str(folder)))[0])
    assert game.step("look").progress == 0.0


def test_valid_actions_can_be_asked_for(game: TextWorldGame):
    step = game.step(CHECK)
    assert step.observation == f"Choose an action from these valid actions: go south, inventory, look, {CHECK}"
    assert not step.refused
    assert not any(game.step(action).refused for action in game.valid_actions())


@pytest.mark.parametrize("action", ["save", "script", "restart", "quit", "tw-trace-actions", "go south. take all", "s"])
def test_what_the_library_cannot_follow_is_refused(
    action: str, game: TextWorldGame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert game.step(action).refused
    assert not list(tmp_path.iterdir())
    assert [game.step(one).success for one in game.solution() or ()] == [False, False, True]


def test_no_action_raises_or_hangs(game: TextWorldGame):
    valid = game.valid_actions()

    @given(st.one_of(st.text(), st.sampled_from(["", "\ud800", "look\nlook", "go south then look", "x" * 1_000_000])))
    def refused(action: str) -> None:
        assert game.step(action).refused
        assert game.valid_actions() == valid

    refused()


def test_missing_and_old_games_are_said_to_be_so(tmp_path: Path):
    def found() -> object:
        return BENCHMARK.instances(Source(argument=str(tmp_path)))

    with pytest.raises(BadInstance, match="textworld:FOLDER"):
        BENCHMARK.instances(Source())
    with pytest.raises(BadInstance, match="there are no "):
        found()
    (tmp_path / "one.z8").touch()
    with pytest.raises(BadInstance, match="no file"):
        found()
    (tmp_path / "two.ulx").touch()
    with pytest.raises(BadInstance, match="plays no "):
        found()


@pytest.mark.parametrize("length", [0, 63, 64, 200_000])
def test_a_story_that_is_cut_off_is_said_to_be_so(length: int, folder: Path, tmp_path: Path):
    (tmp_path / "half.z8").write_bytes((folder / "tiny.z8").read_bytes()[:length])
    (tmp_path / "half.json").write_bytes((folder / "tiny.json").read_bytes())
    with pytest.raises(BadInstance, match="no whole story"):
        BENCHMARK.instances(Source(argument=str(tmp_path)))


@pytest.mark.parametrize("description", ["", "{}", "[" * 100_000, '{"version": 1}'])
def test_a_bad_game_is_said_to_be_bad(description: str, folder: Path, tmp_path: Path):
    game = tmp_path / "bad.z8"
    game.write_bytes((folder / "tiny.z8").read_bytes())
    game.with_suffix(".json").write_text(description, "utf-8")
    with pytest.raises(BadInstance, match="cannot be played"):
        TextWorldGame(compat="agentboard").reset(Instance("bad", {"game": str(game)}))
