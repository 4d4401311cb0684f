"""The Verifier: rules first, then a judge where one is asked for; and nothing passes that is no trajectory."""

from collections.abc import Iterator

from samples import SHED, dm, player
from scripted import PROMPTS, Scripted, as_json

from refinesynth import rules
from refinesynth.roles import Judge, Verifier
from refinesynth.rules import Violation
from refinesynth.trajectory import Draft, MalformedTurn

TURNS = (player("open window"), dm("There is no window.", "place"), player("open box"), dm("The box is open."))


def _never(draft: Draft) -> Iterator[Violation]:
    yield Violation(rule="Never", turn=len(draft.turns), code="never", message="No.")


async def test_without_a_judge_it_is_the_rules() -> None:
    draft = Draft(script=SHED, turns=TURNS)
    for rule in (rules.all_of(), _never):
        assert await Verifier(rule).verify(draft) == rules.verify(draft, rule)


async def test_no_rules_accept_a_draft_that_is_no_trajectory() -> None:
    malformed = MalformedTurn(raw="{}", problem="What is this?")
    anything = Verifier(rules.all_of())
    for draft, code, kept in (
        (Draft(script=SHED), "no_turns", 0),
        (Draft(script=SHED, turns=(*TURNS, malformed)), "wrong_keys", 4),
        (Draft(script=SHED, turns=TURNS, text_error="no JSON"), "not_json", 4),
    ):
        verdict = await anything.verify(draft)
        assert not verdict.accepted
        assert [violation.code for violation in verdict.violations] == [code]
        assert verdict.verified_turns == kept


async def test_the_judge_is_asked_about_finished_drafts_that_the_rules_accept() -> None:
    model = Scripted([as_json({"reason": "The window is real.", "accepted": False})])
    judge = Judge(model.model, PROMPTS)
    finished = Draft(script=SHED, turns=TURNS)
    assert not (await Verifier(_never, judge).verify(finished)).accepted
    assert (await Verifier(rules.all_of(), judge).verify(finished.prefix(2))).accepted
    assert model.asked == []
    verdict = await Verifier(rules.all_of(), judge).verify(finished)
    assert not verdict.accepted
    assert verdict.verified_turns == 0
    assert verdict.violations == (
        Violation(rule="Judge", turn=0, code="unsound", message="The window is real.", keeps_prefix=False),
    )
    assert set(model.asked[0].blocks) == {"script", "trajectory"}


async def test_a_judge_may_agree_and_may_fail() -> None:
    finished = Draft(script=SHED, turns=TURNS)
    agrees = Judge(Scripted([as_json({"reason": "Sound.", "accepted": True})]).model, PROMPTS)
    assert (await Verifier(rules.all_of(), agrees).verify(finished)).accepted
    mute = Judge(Scripted(['{"verdict": 1}']).model, PROMPTS, answers=0)
    verdict = await Verifier(rules.all_of(), mute).verify(finished)
    assert [violation.code for violation in verdict.violations] == ["no_judgement"]
