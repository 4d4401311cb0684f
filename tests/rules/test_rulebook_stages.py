"""The stages of a grounded script, one by one: what each says, and to whom."""

import pytest
from samples import with_rulebook
from words_corpus import HOUSE

from refinesynth import rules
from refinesynth.errors import InputError
from refinesynth.trajectory import ActionSpec, Draft, Effect, EffectOp, Knowledge, Requirement, Rulebook, Script

LAMP = ActionSpec(
    name="turn {thing} {setting}",
    pattern="turn (.+) (.+)",
    parameters={"thing": ("lamp", "radio"), "setting": ("on", "off")},
    requires=(Requirement(condition="thing in state.things && state.things[thing] != setting"),),
    effects=(Effect(op=EffectOp.SET, path="/things/{thing}", value="{setting}"),),
)


def room(
    *actions: ActionSpec, goal: tuple[str, ...] = ("state.things.lamp == 'on'",), solution: tuple[str, ...] = ()
) -> Script:
    """A lamp that is off and whatever can be done to it."""
    return Script(
        environment={"things": {"lamp": "off"}, "seen": []},
        goal="Let there be light.",
        completion_conditions=("the lamp is on",) * len(goal),
        actions=actions,
        rulebook=Rulebook(goal=goal, solution=solution),
    )


def found(script: Script, rule: rules.Rule) -> list[tuple[str, str]]:
    return [(violation.code, violation.message) for violation in rule(Draft(script=script, finished=False))]


def test_faults_say_where_and_go_to_the_writer() -> None:
    broken = room(LAMP.model_copy(update={"requires": (Requirement(condition="state.things[item] == 'off'"),)}))
    [(code, message)] = found(broken, rules.RulebookCompiles())
    assert code == "does_not_compile"
    assert "requirement 1" in message
    assert "item" in message


def test_a_solution_may_be_left_out_but_not_be_wrong() -> None:
    assert found(room(LAMP), rules.SolutionWorks()) == []
    assert found(room(LAMP), rules.Solvable()) == []
    assert found(room(LAMP, solution=("turn lamp on",)), rules.SolutionWorks()) == []
    [(code, message)] = found(room(LAMP, solution=("turn lamp off",)), rules.SolutionWorks())
    assert code == "solution_fails"
    assert "turn lamp off" in message


def test_a_band_of_difficulty_is_kept_at_both_ends() -> None:
    one = room(LAMP, solution=("turn lamp on",))
    assert found(one, rules.DifficultyBand(least=1, most=1)) == []
    [(easy, message)] = found(one, rules.DifficultyBand(least=2, most=9))
    assert easy == "too_easy"
    assert "1 actions" not in message
    assert "turn lamp on" in message
    [(hard, _)] = found(HOUSE, rules.DifficultyBand(least=1, most=2))
    assert hard == "too_hard"


def test_a_band_that_is_none_is_refused_where_it_is_written() -> None:
    with pytest.raises(InputError, match="at least 9 and at most 3"):
        rules.grounded_script(difficulty=(9, 3))
    with pytest.raises(InputError):
        rules.parse("grounded_script(difficulty=(0, 3))")
    chain = rules.grounded_script(difficulty=(3, 9))
    assert rules.parse("grounded_script(difficulty=(3, 9))") == rules.parse(repr(chain)) == chain


def unknown(script: Script) -> list[str]:
    return [message for _, message in rules.ValuesExist().faults(script)]


class TestValuesExist:
    def test_some_values_may_be_distractors(self) -> None:
        assert unknown(room(LAMP)) == []

    def test_not_all_of_them(self) -> None:
        other = LAMP.model_copy(update={"parameters": {"thing": ("Lampe", "Radio"), "setting": ("on", "off")}})
        [message] = unknown(room(other))
        assert "no value of {thing} exists" in message

    def test_case_is_no_difference(self) -> None:
        other = LAMP.model_copy(update={"parameters": {"thing": ("LAMP ",), "setting": ("on",)}})
        assert unknown(room(other)) == []

    def test_what_the_rulebook_writes_out_exists(self) -> None:
        dial = LAMP.model_copy(update={"requires": (Requirement(condition="setting in ['dim', \"bright\"]"),)})
        other = dial.model_copy(update={"parameters": {"thing": ("lamp",), "setting": ("dim", "blinding")}})
        assert unknown(room(other)) == []

    def test_what_is_merely_written_down_need_not_exist(self) -> None:
        say = ActionSpec(
            name="say {words}",
            pattern="say (.+)",
            parameters={"words": ("hello", "goodbye")},
            requires=(Requirement(condition="state.things.lamp != 'words'"),),
            effects=(Effect(op=EffectOp.ADD, path="/seen", value="{words}"),),
            reveals="You say {words}.",
        )
        assert unknown(room(LAMP, say)) == []

    def test_numbers_dates_and_times_need_to_stand_nowhere(self) -> None:
        for known in ("7", "2031-05-01", "9:30"):
            assert unknown(self._typed(known)) == []
        assert len(unknown(self._typed("tomorrow"))) == 1

    def test_a_value_that_is_calculated_with_or_told_of_is_known(self) -> None:
        other = self._typed("tomorrow")
        assert unknown(with_rulebook(other, knows=Knowledge(path="/seen", texts=("tomorrow",)))) == []
        asks = Effect(op=EffectOp.SET, path="/seen", value={"cel": "thing == 'tomorrow' ? 1 : 2"})
        action = other.actions[0].model_copy(update={"effects": (*other.actions[0].effects, asks)})
        assert unknown(other.model_copy(update={"actions": (action,)})) == []

    def _typed(self, value: str) -> Script:
        return room(LAMP.model_copy(update={"parameters": {**LAMP.parameters, "thing": (value,)}}))

    def test_any_value_will_do_where_none_is_listed(self) -> None:
        other = LAMP.model_copy(update={"parameters": {"thing": (), "setting": ("on",)}})
        assert unknown(room(other)) == []
