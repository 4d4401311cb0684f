"""Jericho, with a game that TextWorld makes: AgentBoard's own are not free."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refinesynth.errors import InputError
from refinesynth.evaluate.benchmarks import find, read_instances
from refinesynth.evaluate.environment_pool import EnvironmentProcess
from refinesynth.evaluate.environments.environment import CHECK

pytestmark = pytest.mark.process

LABEL = {
    "goal": "Shut the coffer in the studio.",
    "subgoals": ["You are in a spare room!", "A standard kind of place", "You close the coffer."],
    "difficulty": "easy",
    "additional_info": {"game_name": "first"},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One game of three rooms, and its label."""
    pytest.importorskip("jericho", reason="needs the extra jericho")
    pytest.importorskip("textworld", reason="needs the extra alfworld, to make a game")
    folder = tmp_path_factory.mktemp("data") / "jericho"
    make = Path(sys.executable).with_name("tw-make")
    options = ("--world-size", "3", "--nb-objects", "6", "--quest-length", "3", "--seed", "1")
    subprocess.run(
        [make, "custom", *options, "--output", folder / "games" / "first.z8"], check=True, capture_output=True
    )
    (folder / "test.jsonl").write_text(json.dumps(LABEL), encoding="utf-8")
    return folder.parent


def begun(data: Path) -> EnvironmentProcess:
    process = EnvironmentProcess(find("jericho"))
    (instance,) = read_instances("jericho", data=data)
    start = process.reset(instance)
    assert start.goal == LABEL["goal"]
    return process


@pytest.fixture(scope="module")
def game(data: Path) -> Iterator[EnvironmentProcess]:
    process = begun(data)
    yield process
    process.end()


def test_a_turn_meets_one_subgoal_at_most(data: Path):
    process = begun(data)
    steps = [process.step(action) for action in ("go south", "go east", "close coffer")]
    assert [one.progress for one in steps] == pytest.approx([1 / 3, 1 / 3, 2 / 3])
    assert not steps[-1].success
    process.end()


def test_what_the_story_does_not_take_is_refused_and_what_would_leave_it_is_too(
    game: EnvironmentProcess, tmp_path: Path
):
    before = sorted(Path.cwd().iterdir())
    for action in (
        "",
        "\0",
        *["xyzzy", "open the moon", "quit", "save", "script", "restart now", "quit. look", "#record", "$verify"],
    ):
        assert game.step(action).refused, action
    theirs = "That is no command of this story."
    for action in ("Save!", "save the game", "restore game", "quit please", "script off", "recording on", "undo"):
        assert game.step(action).observation == theirs, action
    for action in ("save the bird", "restore statue", "record the noise", "quit smoking", "undo the knot", "q-tip"):
        assert game.step(action).observation != theirs, action
    assert not game.step("look, then jump").refused
    assert not game.step("look then quit").done
    assert not game.step(CHECK).refused
    assert sorted(Path.cwd().iterdir()) == before


@given(st.text(max_size=60) | st.sampled_from(("x" * 10_000, "\ud800", "look " * 3_000, "take all from all")))
@settings(max_examples=60, deadline=None)
def test_any_text_is_an_action(game: EnvironmentProcess, text: str):
    assert 0.0 <= game.step(text).progress <= 1.0


def test_bad_data_is_said(tmp_path: Path):
    (tmp_path / "jericho").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        read_instances("jericho", data=tmp_path)
    (tmp_path / "jericho" / "test.jsonl").write_text(json.dumps(LABEL), encoding="utf-8")
    with pytest.raises(InputError, match="there is no game 'first'"):
        read_instances("jericho", data=tmp_path)


def test_a_file_that_is_no_game_is_said(tmp_path: Path):
    pytest.importorskip("jericho", reason="needs the extra jericho")
    (tmp_path / "jericho").mkdir()
    (tmp_path / "jericho" / "test.jsonl").write_text(json.dumps(LABEL), encoding="utf-8")
    (tmp_path / "jericho" / "first.z5").write_bytes(b"no game at all")
    process = EnvironmentProcess(find("jericho"))
    with pytest.raises(InputError, match="no whole story file"):
        process.reset(read_instances("jericho", data=tmp_path)[0])
    process.end()
