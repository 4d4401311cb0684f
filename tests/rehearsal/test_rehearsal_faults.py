"""Every fault at rate 1 shows what it is there to show, and strikes anew on a retry."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import JsonValue, ValidationError
from rehearsal_stage import PERFECT, SEEDS, STRANGE, always, codes, narrate, play, tell, text, user, write, write_json

from refinesynth import rules
from refinesynth.chat import parse_player, render_task
from refinesynth.prompts.data_blocks import block
from refinesynth.rehearsal import Faults
from refinesynth.rehearsal.scene import label_in
from refinesynth.text.json_reader import read_json
from refinesynth.trajectory import Draft, DungeonMasterTurn, MistakeKind, Script, read_turns


def requests(script: Script) -> dict[str, list[dict[str, str]]]:
    """One request of each role that answers in JSON."""
    return {
        "script": user(block("a baker", "persona")),
        "ruling": user(block(script, "script"), block([], "history"), block("look around", "action")),
        "turns": user(block(script, "script"), block([], "verified"), block(2, "minimum")),
        "judgement": user(block(script, "script"), block([], "trajectory")),
    }


def is_valid(kind: str, answer: JsonValue) -> bool:
    try:
        match kind:
            case "script":
                Script.from_llm(answer)
            case "ruling":
                assert isinstance(answer, dict)
                DungeonMasterTurn.model_validate({**answer, "role": "DM"})
            case "turns":
                draft = Draft(script=STRANGE, turns=read_turns(answer))
                return rules.verify(draft, rules.RequiredKeys()).accepted
            case _:
                assert isinstance(answer, dict)
                return answer.keys() == {"accepted", "reason"}
    except ValidationError:
        return False
    return True


@given(st.sampled_from(["script", "ruling", "judgement"]), SEEDS)
def test_invalid_json_cannot_be_repaired_into_a_valid_answer(kind: str, seed: int) -> None:
    broken = text(always("invalid_json"), requests(write(PERFECT, "a baker"))[kind], seed=seed)
    try:
        answer = read_json(broken)
    except ValueError:
        return
    assert not is_valid(kind, answer)


@given(SEEDS)
@example(40536)
def test_an_invalid_trajectory_is_prose_or_breaks_off(seed: int) -> None:
    script = write(PERFECT, "a baker")
    broken = text(always("invalid_json"), requests(script)["turns"], seed=seed)
    verdict = rules.verify(Draft.from_text(script, broken), rules.agentrefine())
    assert not verdict.accepted


@given(st.sampled_from(["script", "ruling", "turns", "judgement"]), SEEDS)
def test_missing_keys_are_required_ones(kind: str, seed: int) -> None:
    answer = read_json(text(always("missing_keys"), requests(write(PERFECT, "a baker"))[kind], seed=seed))
    assert not is_valid(kind, answer)


def test_invalid_json_of_the_player_holds_no_action() -> None:
    answer = text(always("invalid_json"), user(render_task(write(PERFECT, "a baker"))))
    assert answer.startswith("Thought: ")
    with pytest.raises(ValueError, match="no line that begins"):
        parse_player(answer)


@given(SEEDS)
def test_ambiguous_patterns_are_found_by_the_script_rules(seed: int) -> None:
    script = write(always("ambiguous_pattern"), "a baker", seed=seed)
    found = codes(rules.verify(Draft(script=script), rules.script()).violations)
    assert "ambiguous" in found


@given(SEEDS)
def test_wrong_parameters_in_narrated_play_are_an_unflagged_value_that_is_not_available(seed: int) -> None:
    spoilt = always("wrong_parameters")
    script = write(PERFECT, "a baker", seed=seed)
    verdict = rules.verify(Draft(script=script, turns=tell(spoilt, script, minimum=0, seed=seed)), rules.agentrefine())
    assert codes(verdict.violations) in (["value_not_allowed"], ["unknown_action"])


def test_wrong_parameters_in_live_play_are_waved_through_and_change_nothing() -> None:
    script = write(PERFECT, "a baker")
    played = play(always("wrong_parameters"), script, mistakes={1: MistakeKind.PARAMETER})
    assert played.asked == ((MistakeKind.PARAMETER, None),)
    draft = Draft(script=script, turns=played.turns)
    assert codes(rules.verify(draft, rules.ValidActions()).violations) in (["value_not_allowed"], ["unknown_action"])
    # The play ends with all conditions met all the same, because the executor knows better.
    assert rules.verify(draft, rules.TaskSucceed()).accepted


def test_no_success_ends_a_narrated_trajectory_without_the_words() -> None:
    script = write(PERFECT, "a baker")
    verdict = rules.verify(Draft(script=script, turns=tell(always("no_success"), script)), rules.strict())
    assert codes(verdict.violations) == ["no_success"]


@given(SEEDS, st.integers(1, 4))
def test_too_few_errors_are_fewer_than_asked_for(seed: int, minimum: int) -> None:
    script = write(PERFECT, "a baker", seed=seed)
    turns = tell(always("too_few_errors", "natural_mistake"), script, minimum=minimum, seed=seed)
    verdict = rules.verify(Draft(script=script, turns=turns), rules.strict(min_refinements=minimum))
    assert codes(verdict.violations) == ["too_few_errors"]


def test_a_false_alarm_flags_what_is_right_and_does_not_carry_it_out() -> None:
    script = write(PERFECT, "a baker")
    played = play(always("false_alarm"), script, most=6)
    draft = Draft(script=script, turns=played.turns, finished=False)
    assert codes(rules.verify(draft, rules.NoFalseAlarm()).violations) == ["false_alarm"] * 6
    kept = play(PERFECT, script).turns[:2]
    again = narrate(PERFECT, script, kept, "nonsense").observation
    assert again != kept[1]


@pytest.mark.parametrize("fault", sorted(Faults.model_fields.keys() - {"families"}))
def test_rates_are_between_nothing_and_always(fault: str) -> None:
    for wrong in (-0.1, 1.1, float("nan"), float("inf"), "often"):
        with pytest.raises(ValidationError, match=fault):
            Faults.model_validate({fault: wrong})
    if fault == "skill":  # no fault: a Player has its own, or errs by chance alone
        assert Faults().skill is Faults.none().skill is None
        return
    assert getattr(Faults.none(), fault) == 0
    assert 0 < getattr(Faults(), fault) <= 0.2


def test_a_script_that_was_refused_is_mended_or_replaced() -> None:
    before = write_json(always("ambiguous_pattern"), "a baker", seed=1)
    after = [
        write(always("ambiguous_pattern"), "a baker", seed=seed, previous=before, violations=["It is ambiguous."])
        for seed in range(20)
    ]
    same = [label_in(script.introduction) == label_in(str(before["introduction"])) for script in after]
    assert [rules.verify(Draft(script=script), rules.script()).accepted for script in after] == same
    assert 3 < sum(same) < 17
