"""Live play: the DungeonMaster rules as the executor does, the Player errs as asked and repairs what it did."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rehearsal_stage import PERFECT, SEEDS, STRANGE, SUCCESS, act, always, codes, narrate, play, write
from samples import dm

from refinesynth import rules
from refinesynth.rehearsal import Faults
from refinesynth.rehearsal.injected_faults import Draws
from refinesynth.rehearsal.player import decide
from refinesynth.rehearsal.replayed_history import Exchange, History, initial_position
from refinesynth.rehearsal.scene import label_in
from refinesynth.settings.mistakes import MistakeRequest
from refinesynth.trajectory import Draft, DungeonMasterTurn, MistakeKind, PlayerTurn, flagged_turns

PERSONAS = st.text(min_size=1, max_size=60).filter(str.strip)
MISTAKES = st.dictionaries(st.integers(0, 9), st.sampled_from(MistakeKind), max_size=4).filter(
    lambda asked: all(turn + 1 not in asked for turn in asked)
)


@pytest.mark.long
@given(PERSONAS, SEEDS, MISTAKES)
def test_a_play_without_faults_is_accepted_and_holds_the_mistakes_that_were_asked_for(
    persona: str, seed: int, mistakes: dict[int, MistakeKind]
) -> None:
    script = write(PERFECT, persona, seed=seed)
    played = play(PERFECT, script, mistakes=mistakes, seed=seed)
    draft = Draft(script=script, turns=played.turns)
    assert codes(rules.verify(draft, rules.strict(min_refinements=len(played.asked))).violations) == []
    assert len(flagged_turns(played.turns)) == len(played.asked)
    assert all(asked is made for asked, made in played.asked if asked is MistakeKind.PARAMETER)


@pytest.mark.long
@given(SEEDS)
def test_mistakes_by_nature_are_of_all_kinds_and_each_is_repaired_at_once(seed: int) -> None:
    clumsy = always("natural_mistake")
    script = write(clumsy, "somebody", seed=seed)
    played = play(clumsy, script, seed=seed)
    flags = [turn.flagged for turn in played.turns[1::2] if isinstance(turn, DungeonMasterTurn)]
    assert flags == [True, False] * (len(flags) // 2)
    assert rules.verify(Draft(script=script, turns=played.turns), rules.strict()).accepted


def test_a_repair_says_what_was_wrong() -> None:
    script = write(PERFECT, "a baker")
    played = play(PERFECT, script, mistakes={2: MistakeKind.PLACE})
    wrong, answer, repair = played.turns[4], played.turns[5], played.turns[6]
    assert isinstance(answer, DungeonMasterTurn)
    assert isinstance(wrong, PlayerTurn)
    assert isinstance(repair, PlayerTurn)
    position = initial_position(label_in(script.introduction) or "")
    for turn in (played.turns[0], played.turns[2]):
        assert isinstance(turn, PlayerTurn)
        position = position.after(turn.action)
    hint = position.ruling(wrong.action).text
    assert answer.place_error
    assert hint in answer.observation
    assert hint in repair.thought
    assert repair.action != wrong.action


def test_a_right_action_that_was_refused_is_not_taken_again_at_once() -> None:
    script = write(PERFECT, "a baker")
    first = act(PERFECT, script)
    alarm = dm("Nothing happens.", "parameter")
    second = act(PERFECT, script, [first, alarm])
    assert second.action != first.action
    then = narrate(PERFECT, script, [first, alarm], second.action)
    assert not then.flagged
    assert act(PERFECT, script, [first, alarm, second, then]).action == first.action


def test_a_persona_cannot_name_another_scene() -> None:
    plain, sly = (write(PERFECT, persona) for persona in ("a clerk", "a clerk. Scene office-5. Goal: none"))
    assert label_in(sly.introduction) not in {None, "office-5"}
    assert "a clerk" in plain.introduction
    assert act(PERFECT, sly).action in initial_position(label_in(sly.introduction) or "").scene.useful


def test_in_a_strange_script_the_form_is_judged_and_the_goal_is_never_called_reached() -> None:
    turns = play(PERFECT, STRANGE, most=8).turns
    answers = [turn for turn in turns if isinstance(turn, DungeonMasterTurn)]
    assert len(answers) == 8
    assert not any(turn.flagged or SUCCESS in turn.observation for turn in answers)
    assert len({turn.observation for turn in answers}) == 8
    assert narrate(PERFECT, STRANGE, [], "set speed to 6").parameter_error
    assert not narrate(PERFECT, STRANGE, [], "set speed to 10").flagged


def _after_a_mistake(way: Literal["late", "give_up"], label: str = "household-1") -> tuple[History, PlayerTurn]:
    position = initial_position(label)
    draws = Draws(bytes(8), Faults.none())
    wrong = decide(draws, History.of(position, ()), MistakeRequest(MistakeKind.LOGIC)).action
    hint = position.ruling(wrong).text
    history = History.of(position, [Exchange(wrong, hint, refused=True)])
    return history, decide(draws, history, MistakeRequest(MistakeKind.LOGIC, way))


def test_a_mistake_that_is_understood_late_is_repaired_after_a_look_around() -> None:
    history, turn = _after_a_mistake("late")
    ruling = history.position.ruling(turn.action)
    assert ruling.kind is None
    assert ruling.state is history.position.state
    hint = history.exchanges[0].observation
    assert hint not in turn.thought
    later = decide(
        Draws(bytes(8), Faults.none()), history.with_exchange(Exchange(turn.action, "You look.", refused=False))
    )
    assert hint in later.thought
    assert later.action == history.position.plan[0]


def test_a_plan_is_left_for_the_reason_that_was_given() -> None:
    history, turn = _after_a_mistake("give_up")
    assert history.exchanges[0].observation in turn.thought
    assert turn.action == history.position.plan[0]
