"""Narrated play: Algorithm 1's loop from draft to draft, with answers from a list."""

from dataclasses import replace
from typing import Any

from samples import SHED, dm, player
from scripted import Answer, Scripted, as_json
from stage import EARLY, GOOD, OPEN, PUT, PUT_AT_LAST, TAKE, WRONG, SaidAtLast, narrated, only

from refinesynth import rules
from refinesynth.episode import EpisodeOutcome
from refinesynth.settings import Attempts
from refinesynth.settings.setting_presets import paper
from refinesynth.trajectory import DungeonMasterTurn, MalformedTurn, PlayerTurn


def turns(*given: PlayerTurn | DungeonMasterTurn | dict[str, Any]) -> str:
    return as_json({"turns": given})


async def tell_all(*answers: Answer, **settings: Any) -> tuple[EpisodeOutcome, Scripted]:
    stage = narrated(*answers)
    return await stage.play(index=0, **settings), stage.narrator


async def test_a_violation_continues_from_the_verified_prefix_and_says_why() -> None:
    unknown = (player("dance"), dm("You dance."))
    outcome, narrator = await tell_all(turns(*OPEN, *WRONG, *unknown, *PUT), turns(*TAKE, *EARLY, *PUT))
    assert only(outcome).turns == GOOD
    assert only(outcome).provenance.attempts == 2
    second = narrator.asked[1].blocks
    assert second["verified"] == [turn.model_dump(mode="json") for turn in (*OPEN, *WRONG)]
    assert second["violations"] == [violation.message for violation in outcome.refused[0].violations]
    assert outcome.refused[0].draft is not None
    assert len(outcome.refused[0].draft.turns) == 8


async def test_nothing_is_narrated_after_the_success() -> None:
    outcome, narrator = await tell_all(
        turns(*GOOD), turns(*PUT_AT_LAST[1:]), rules=rules.all_of(rules.agentrefine(), SaidAtLast())
    )
    assert only(outcome).turns == (*GOOD[:-1], PUT_AT_LAST[1])
    assert len(narrator.asked[1].blocks["verified"]) == len(GOOD) - 1


async def test_too_few_errors_starts_over_from_nothing() -> None:
    outcome, narrator = await tell_all(turns(*OPEN, *TAKE, *PUT), turns(*GOOD))
    assert outcome.accepted
    second = narrator.asked[1].blocks
    assert second["verified"] == []
    assert "at least 2" in second["violations"][0]


async def test_an_unreadable_answer_keeps_what_stands() -> None:
    outcome, narrator = await tell_all(
        turns(*OPEN, player("dance"), dm("You dance.")), "Once upon a time", turns(*GOOD[2:])
    )
    assert only(outcome).turns == GOOD
    assert [refused.violations[0].code for refused in outcome.refused] == ["unknown_action", "not_json"]
    assert len(narrator.asked[2].blocks["verified"]) == 2


async def test_a_malformed_turn_never_passes_into_a_prefix_or_a_trajectory() -> None:
    """Whatever the rules are: these ask for nothing but an ending."""
    broken = {"role": "Player", "thought": "?"}
    outcome, narrator = await tell_all(turns(*OPEN, broken), turns(*PUT), rules=rules.all_of(rules.TaskSucceed()))
    assert outcome.accepted
    assert len(narrator.asked[1].blocks["verified"]) == 2
    mended, _ = await tell_all(turns(*OPEN, broken), turns(*TAKE), rules=rules.all_of())
    assert mended.trajectory is not None
    assert not any(isinstance(turn, MalformedTurn) for turn in mended.trajectory.turns)


async def test_at_most_four_calls_the_scripts_included() -> None:
    outcome, narrator = await tell_all(turns(*OPEN))
    assert not outcome.accepted
    assert len(narrator.asked) == 3
    assert outcome.usage.requests == 4
    assert len(outcome.refused) == 3
    assert outcome.reason == "the 4 completions that an episode may ask for are used up"


async def test_the_judge_starts_the_narration_over() -> None:
    outcome, narrator = await tell_all(turns(*GOOD), rules=rules.strict(), attempts=Attempts(), judge=True)
    assert outcome.accepted
    assert narrator.asked[1].blocks["verified"] == []
    assert narrator.asked[1].blocks["violations"] == ["Unsound."]


async def test_a_pattern_that_does_not_fit_is_replaced_unless_it_is_taken_to_the_letter() -> None:
    bad = SHED.model_dump(mode="json")
    bad["actions"][1]["pattern"] = "[a-z]+"
    stage = replace(narrated(turns(*GOOD)), writer=Scripted([as_json(bad), SHED.model_dump_json()]))
    outcome = await stage.play(index=0)
    assert outcome.salvaged == {"pattern that did not fit": 1}
    assert len(stage.writer.asked) == 1
    literal = replace(stage, writer=Scripted([as_json(bad), SHED.model_dump_json()]))
    chain = paper()["rules"]
    outcome = await literal.play(index=0, rules=chain)
    assert outcome.accepted
    assert outcome.salvaged == {}
    assert [one.stage for one in outcome.refused] == ["script"]


async def test_a_condition_that_no_action_names_is_counted() -> None:
    odd = {**SHED.model_dump(mode="json"), "completion_conditions": ["you wear the crown"]}
    stage = replace(narrated(turns(*GOOD)), writer=Scripted([as_json(odd)]))
    outcome = await stage.play(index=0)
    assert outcome.salvaged == {"condition that no action names": 1}
