"""Environments drawn by a seed: the same each time, all of them proved, and refused where they cannot be made."""

from collections import Counter
from collections.abc import Sequence

import pytest
from pydantic import JsonValue, ValidationError
from samples import with_rulebook
from world_scripts import action_of, script_of, setting

from refinesynth import rules
from refinesynth.environments import GroundedEnvironment
from refinesynth.trajectory import Draft, Draw, DungeonMasterTurn, Invariant, PlayerTurn, Requirement, Script
from refinesynth.world import RulebookError, World, check_solvability, replay
from refinesynth.world.random_starts import draw_start, outcomes, without_draws

ROOMS = ("hall", "attic", "cellar")
GO = action_of("go to {room}", setting("/at", "{room}"), needs=("state.at != room",), room=ROOMS)
TAKE = action_of("take lamp", setting("/held", value=True), needs=("state.at == state.lamp", "!state.held"))
LAMP = Draw(path="/lamp", values=ROOMS)


def _script(*draws: Draw, solution: Sequence[str] = ("go to attic", "take lamp"), **more: JsonValue) -> Script:
    environment = {"at": "hall", "lamp": "attic", "held": False, "wind": [1, 2], **more}
    made = script_of(GO, TAKE, goal=("state.held",), solution=solution, environment=environment)
    return with_rulebook(made, draws=draws)


def _unsolvable(script: Script) -> list[str]:
    return [found.message for found in rules.Solvable()(Draft(script=script)) if found.code == "unsolvable"]


def test_a_seed_draws_the_same_environment_each_time_and_seeds_differ() -> None:
    script = _script(LAMP, Draw(path="/wind/1", values=(2, 7), shares=(0.9, 0.1)))
    found = [draw_start(script, seed).environment for seed in range(300)]
    assert found == [draw_start(script, seed).environment for seed in range(300)]
    rooms = Counter(one["lamp"] for one in found)
    assert set(rooms) == set(ROOMS)
    assert min(rooms.values()) > 60
    assert 10 <= sum(one["wind"] == [1, 7] for one in found) <= 60
    assert script.environment["wind"] == [1, 2]


def test_what_is_drawn_is_a_script_without_chance_whose_solution_is_kept_only_as_written() -> None:
    script = _script(LAMP)
    for seed in range(12):
        one = draw_start(script, seed)
        assert one.rulebook is not None
        assert one.rulebook.draws == ()
        assert one.rulebook.solution == (("go to attic", "take lamp") if one.environment["lamp"] == "attic" else ())
        assert check_solvability(one).shortest is not None
        assert draw_start(one, seed) is one
    assert without_draws(script) == _script()
    assert without_draws(_script()) == _script()


def test_an_environment_is_played_as_it_was_drawn_and_its_record_replays() -> None:
    environment = GroundedEnvironment(_script(LAMP))
    lengths: set[int] = set()
    for seed in range(12):
        environment.reset(seed)
        for action in check_solvability(environment.script).shortest or ():
            environment.act(action)
        assert environment.success
        lengths.add(environment.taken)
        actions = [turn.action for turn in environment.turns if isinstance(turn, PlayerTurn)]
        answers = [turn for turn in environment.turns if isinstance(turn, DungeonMasterTurn)]
        rulings = replay(World(environment.script), actions)
        assert [(ruling.progress, ruling.text) for ruling in rulings[:-1]] == [
            (answer.progress, answer.observation) for answer in answers[:-1]
        ]
        assert rulings[-1].done
    assert lengths == {1, 2}  # in the hall the lamp is taken at once


def test_all_that_can_be_drawn_is_proved() -> None:
    script = _script(LAMP)
    found = check_solvability(script)
    assert (found.shortest, found.unproved_draws, found.faults) == (("go to attic", "take lamp"), (), ())
    assert [words for words, _ in outcomes(script)] == ["/lamp = 'hall'", "/lamp = 'cellar'"]
    assert _unsolvable(script) == []
    lost = _script(Draw(path="/lamp", values=("attic", "cellar", "sea")))
    assert check_solvability(lost).unproved_draws == ("/lamp = 'sea'",)
    assert [("/lamp = 'sea'" in message, "draws" in message) for message in _unsolvable(lost)] == [(True, True)]


def test_an_outcome_that_has_reached_the_goal_already_is_found() -> None:
    script = _script(Draw(path="/held", values=(False, True)))
    assert check_solvability(script).met_at_start
    assert [found.code for found in rules.NotYetDone()(Draft(script=script))] == ["already_done"]


def test_what_only_a_drawn_environment_makes_possible_is_no_fault() -> None:
    fly = action_of("fly home", setting("/at", "hall"), needs=("state.wind[0] == 3",))
    gust = Requirement(condition="state.wind[0] != 3", hint="Too windy.")
    calm = TAKE.model_copy(update={"requires": (*TAKE.requires, gust)})
    made = _script(Draw(path="/wind/0", values=(1, 3)))
    script = made.model_copy(update={"actions": (GO, calm, fly)})
    found = check_solvability(script)
    assert (found.unusable, found.exhausted) == ((), False)
    assert found.unproved_draws == ("/wind/0 = 3",)
    assert check_solvability(without_draws(script)).unusable == ("fly home",)


def test_an_invariant_and_a_sight_hold_in_all_that_can_be_drawn() -> None:
    invariants = (Invariant(condition="size(state.wind) > 0"),)
    script = with_rulebook(_script(Draw(path="/wind", values=([1, 2], []))), invariants=invariants)
    assert [fault for fault in check_solvability(script).faults if "invariant 1" in fault]


@pytest.mark.parametrize(
    ("draws", "words"),
    [
        ((Draw(path="/nowhere", values=(1, 2)),), "draw 1, of '/nowhere': there is nothing at /nowhere"),
        ((Draw(path="/lamp", values=("hall", "cellar")),), "'attic' is none of its values"),
        ((Draw(path="/held", values=(0, 1)),), "False is none of its values"),  # 0 is not false
        ((Draw(path="/lamp", values=ROOMS, shares=(1, 2)),), "2 shares for 3 values"),
        ((Draw(path="/lamp", values=ROOMS, shares=(0, 0, 0)),), "the shares sum to 0.0"),
        ((Draw(path="/lamp", values=ROOMS, shares=(1e308, 1e308, 1)),), "the shares sum to inf"),
        ((Draw(path="/lamp", values=("attic", "x" * 300_000)),), "too deep or larger"),
        ((LAMP, LAMP), "another draw changes the same value"),
        ((Draw(path="/wind", values=([1, 2], [3])), Draw(path="/wind/1", values=(2, 3))), "a part of it"),
        ((Draw(path="/{state:/at}", values=(1, 2)),), "draw 1"),
        ((Draw(path="lamp", values=ROOMS),), "'lamp'"),
        (tuple(Draw(path=f"/n{at}", values=(0, *range(1, 16))) for at in range(2)), "256 outcomes"),
    ],
)
def test_draws_that_cannot_be_made_are_refused(draws: tuple[Draw, ...], words: str) -> None:
    script = _script(*draws, **dict.fromkeys(("n0", "n1"), 0))
    with pytest.raises(RulebookError) as caught:
        World(script)
    assert words in str(caught.value)
    assert words in (check_solvability(script).problem or "")


@pytest.mark.parametrize("given", [{"values": [1]}, {"values": [1] * 17}, {"values": [1, 2], "shares": [-1, 2]}])
def test_draws_of_a_wrong_form_are_refused(given: dict[str, JsonValue]) -> None:
    with pytest.raises(ValidationError):
        Draw.model_validate({"path": "/lamp", **given})


def test_a_rulebook_without_draws_is_written_as_before() -> None:
    assert b"draws" not in _script().to_json()
    assert Script.from_json(_script(LAMP).to_json()) == _script(LAMP)
