"""Live play with models that answer from a list: the loop, the cut back to the verified prefix, and every way out."""

import re

import anyio
import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from samples import SHED, dm, player
from scripted import Scripted, said
from stage import (
    EARLY,
    GOOD,
    OPEN,
    PERSONA,
    PUT,
    PUT_AT_LAST,
    TAKE,
    WRONG,
    SaidAtLast,
    live,
    only,
    settings_for,
)

from refinesynth import rules
from refinesynth.backends.backend import Role
from refinesynth.episode import play_episode
from refinesynth.errors import ConfigurationError, EpisodeAbandoned, EpisodeDoubtful, EpisodeLost, RunStopped
from refinesynth.settings import Attempts
from refinesynth.settings.mistakes import at_least, prompted
from refinesynth.trajectory import Draft


async def test_a_play_without_fault_is_accepted_as_it_was() -> None:
    stage = live(*GOOD)
    outcome = await stage.play()
    trajectory = only(outcome)
    assert outcome.reason is None
    assert outcome.refused == ()
    assert trajectory.turns == GOOD
    assert trajectory.script == SHED
    assert trajectory.id == outcome.id
    assert outcome.id.startswith("000003-")
    assert outcome.index == 3
    assert trajectory.provenance.attempts == trajectory.provenance.script_attempts == 1
    assert trajectory.provenance.rules == repr(rules.strict(2))
    assert trajectory.provenance.models == dict.fromkeys(("script_writer", "player", "dungeon_master"), "scripted")
    assert trajectory.provenance.usage == outcome.usage
    assert outcome.usage.requests == 1 + len(GOOD)
    assert outcome.usage.output_tokens > 0


async def test_asked_mistakes_are_told_to_the_player_alone_and_are_not_recorded() -> None:
    stage = live(*GOOD)
    outcome = await stage.play(mistakes=prompted(1, 3))
    told = [asked.blocks.get("private") for asked in stage.player.asked]
    assert [bool(private) for private in told] == [False, True, False, True, False]
    assert b"private" not in outcome.to_json()
    assert only(outcome).turns == GOOD
    for asked in stage.master.asked:
        assert "private" not in asked.chat[-1][1]


async def test_a_broken_rule_cuts_back_and_the_roles_are_told() -> None:
    alarm = (player("take key", "Take it."), dm("No.", "parameter"))
    stage = live(*OPEN, *alarm, *WRONG, *TAKE, *EARLY, *PUT)
    outcome = await stage.play()
    assert only(outcome).turns == GOOD
    assert only(outcome).provenance.attempts == 2
    (refused,) = outcome.refused
    assert refused.stage == "draft"
    assert refused.attempt == 1
    assert refused.draft == Draft(script=SHED, turns=(*OPEN, *alarm), finished=False)
    assert refused.evidence() == refused.draft
    assert [violation.code for violation in refused.violations] == ["false_alarm"]
    message = refused.violations[0].message
    assert stage.master.asked[2].blocks["violations"] == [message]
    assert "violations" not in stage.master.asked[3].blocks
    # The fault was the DungeonMaster's: the Player hears nothing and sees the chat as if the scene had not been.
    assert stage.player.asked[2].chat == stage.player.asked[1].chat


async def test_the_players_own_faults_are_told_to_the_player_once() -> None:
    leak = (player("open box", "As the DM, I know that the box is near."), dm("It opens."))
    stage = live(*leak, *GOOD)
    outcome = await stage.play()
    assert outcome.accepted
    told = [asked.blocks.get("private") for asked in stage.player.asked]
    assert told[1] == {"violations": ["Think only of the place, the goal and what you were told there."]}
    assert told[0] is None
    assert told[2:] == [None] * 4
    assert all("violations" not in asked.blocks for asked in stage.master.asked), (
        "thoughts are not for the DungeonMaster"
    )


async def test_what_fails_alike_twice_goes_back_before_the_mistake() -> None:
    leak = (player("take key", "As the DM, I know where it is."), TAKE[1])
    stage = live(*OPEN, *WRONG, *leak, *leak, *WRONG, *TAKE, *EARLY, *PUT)
    outcome = await stage.play()
    assert only(outcome).turns == GOOD
    assert only(outcome).provenance.attempts == 3
    told = [asked.blocks.get("private") for asked in stage.player.asked]
    assert [given is not None for given in told] == [False, False, False, True, False, False, False, False]
    assert stage.player.asked[4].chat == stage.player.asked[1].chat


async def test_too_few_mistakes_starts_over_and_nobody_is_told() -> None:
    stage = live(*OPEN, *TAKE, *PUT, *GOOD)
    outcome = await stage.play(mistakes=at_least(2))
    assert outcome.accepted
    assert [violation.code for violation in outcome.refused[0].violations] == ["too_few_errors"]
    assert outcome.refused[0].draft is not None
    assert outcome.refused[0].draft.finished
    assert all("violations" not in asked.blocks for asked in stage.master.asked)
    assert stage.player.asked[3].chat == stage.player.asked[0].chat
    asked_first = ["private" in asked.blocks for asked in stage.player.asked[3:]]
    assert asked_first[:2] == [False, True], "a second attempt asks for a mistake at the first chance"


async def test_nothing_is_played_after_the_success() -> None:
    stage = live(*GOOD, *PUT_AT_LAST)
    outcome = await stage.play(rules=rules.all_of(rules.strict(2), SaidAtLast()))
    assert only(outcome).turns == (*GOOD[:-2], *PUT_AT_LAST)
    assert [[one.code for one in refused.violations] for refused in outcome.refused] == [["hasty"]]
    assert stage.player.asked[5].chat == stage.player.asked[4].chat


async def test_task_succeed_beside_a_flag_ends_no_play_and_is_cut_back() -> None:
    shout = (player("take saw"), dm("You shout Task Succeed but there is no saw here.", "place"))
    stage = live(*OPEN, *shout, *WRONG, *TAKE, *EARLY, *PUT)
    outcome = await stage.play()
    assert only(outcome).turns == GOOD
    (refused,) = outcome.refused
    assert refused.draft == Draft(script=SHED, turns=(*OPEN, *shout), finished=False)
    (violation,) = refused.violations
    assert (violation.rule, violation.code, violation.turn) == ("SucceedsOnce", "success_too_early", 3)
    assert stage.master.asked[2].blocks["violations"] == [violation.message], "who said it is told"
    assert stage.player.asked[2].chat == stage.player.asked[1].chat


LOOKS = tuple(turn for number in range(9) for turn in (player("open box"), dm(f"Still open, {number}.")))
"""A play that does not come to its end."""


async def test_a_play_out_of_turns_is_refused_and_tried_again_from_the_beginning() -> None:
    stage = live(*LOOKS[:12], *GOOD)
    outcome = await stage.play(max_turns=12)
    assert only(outcome).turns == GOOD
    assert only(outcome).provenance.attempts == 2
    (refused,) = outcome.refused
    assert refused.draft == Draft(script=SHED, turns=LOOKS[:12], finished=False)
    assert refused.violations[-1].code == "out_of_turns"
    assert stage.player.asked[6].chat == stage.player.asked[0].chat, "nothing of it is kept, and nobody is told"
    assert all("violations" not in asked.blocks for asked in stage.master.asked)


async def test_when_a_play_grows_long_its_dungeon_master_is_reminded_of_the_end() -> None:
    stage = live(*LOOKS[:12], *GOOD)
    await stage.play(max_turns=12)
    told = [asked.chat[-1][1] for asked in stage.master.asked]
    # The limit and what is left of it, from half of it on; in an attempt after one that ran out, from the first turn
    # on.
    left = [None, None, None, "4", "2", "0", "10", "8", "6", "4", "2"]
    found = [re.search(r"may have 12 turns of both voices in all; (\d+) are left", text) for text in told]
    assert [one and one[1] for one in found] == left
    for asked, text, some in zip(stage.master.asked, told, left, strict=True):
        assert asked.blocks.get("conditions") == (None if some is None else list(SHED.completion_conditions))
        assert ("end `observation` with the exact words `Task Succeed`" in text) is (some is not None)
        assert asked.instructions == stage.master.asked[0].instructions, "what changes comes last"
        assert text.startswith(told[0].split("<history>", maxsplit=1)[0]), "what changes comes last"
    for asked in stage.player.asked:
        assert not re.search(r"both voices|Task Succeed|completion conditions", asked.chat[-1][1])


async def test_an_answer_that_stays_invalid_refuses_the_attempt_and_keeps_the_turns() -> None:
    stage = live(*OPEN, "I give up.", WRONG[1], *WRONG[:1], *WRONG[1:], *TAKE, *EARLY, *PUT)
    stage.master = Scripted([said(turn) for turn in GOOD[1::2]])
    outcome = await stage.play(attempts=Attempts(answers=0))
    assert only(outcome).turns == GOOD
    (refused,) = outcome.refused
    assert refused.draft == Draft(script=SHED, turns=OPEN, finished=False)
    assert refused.violations[0].rule == "Answer"
    assert refused.violations[0].turn == 2


async def test_refused_scripts_go_back_with_what_is_wrong() -> None:
    ambiguous = SHED.model_copy(update={"actions": (SHED.actions[0], *SHED.actions)})
    stage = live(*GOOD, scripts=("no JSON", ambiguous.model_dump_json(), SHED.model_dump_json()))
    outcome = await stage.play(attempts=Attempts(answers=0))
    assert only(outcome).provenance.script_attempts == 3
    unreadable, refused = outcome.refused
    assert (unreadable.stage, unreadable.script, unreadable.evidence()) == ("script", None, None)
    assert unreadable.text is not None
    assert refused.script == ambiguous
    assert refused.evidence() == Draft(script=ambiguous, finished=False)
    assert refused.violations
    second, third = stage.writer.asked[1:]
    assert "previous" not in second.blocks
    assert second.blocks["violations"] == [unreadable.violations[0].message]
    assert third.blocks["previous"] == ambiguous.model_dump(mode="json")
    assert third.blocks["violations"] == [violation.message for violation in refused.violations]


async def test_no_script_in_time_gives_up_before_any_play() -> None:
    stage = live(*GOOD, scripts=(SHED.model_copy(update={"actions": ()}).model_dump_json(),))
    outcome = await stage.play(attempts=Attempts(scripts=2))
    assert not outcome.accepted
    assert len(outcome.refused) == 2
    assert stage.player.asked == []
    assert outcome.reason is not None
    assert outcome.reason.startswith("no script was accepted in 2 attempts; the last: ")


async def test_the_judge_may_refuse_what_the_rules_accept() -> None:
    stage = live(*GOOD, *GOOD)
    outcome = await stage.play(judge=True)
    assert outcome.accepted
    assert outcome.refused[0].violations[-1].rule == "Judge"
    assert only(outcome).provenance.models["judge"] == "scripted"
    assert len(stage.judge.asked) == 2


async def test_an_episode_that_cannot_go_on_is_abandoned_with_what_was_paid_for() -> None:
    stage = live(*OPEN, *TAKE)
    stage.master = Scripted([said(OPEN[1]), EpisodeAbandoned("the context is too long")])
    outcome = await stage.play()
    assert outcome.reason == "the context is too long"
    (refused,) = outcome.refused
    assert refused.draft == Draft(script=SHED, turns=OPEN, finished=False)
    assert refused.text == "the context is too long"
    assert outcome.usage.requests == 4
    at_once = live(EpisodeAbandoned("filtered"), OPEN[1])
    assert (await at_once.play()).refused == ()


@pytest.mark.parametrize("lost", [True, False])
async def test_only_what_its_backend_ended_tells_nothing_of_the_data(lost: bool) -> None:
    failure = (EpisodeLost if lost else EpisodeAbandoned)("gave no answer")
    assert (await live(failure, OPEN[1]).play()).lost is lost
    assert (await live(scripts=(failure,)).play()).lost is lost
    # What another play of the script has given, or was refused for, does tell.
    assert not (await live(*GOOD, failure, OPEN[1]).play(episodes_per_script=2)).lost
    assert not (
        await live(*OPEN, failure, OPEN[1]).play(episodes_per_script=2, attempts=Attempts(drafts=1), max_turns=2)
    ).lost


async def test_the_deadline_says_nothing_about_the_settings_of_a_backend() -> None:
    stage, failures = live(), [EpisodeDoubtful("no usable answer")]

    async def answer(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        while not failures:
            await anyio.sleep_forever()
        raise failures.pop()

    stage.player.model = FunctionModel(answer)
    outcome = await stage.play(episodes_per_script=2, deadline=0.2)
    assert (outcome.lost, outcome.doubtful, failures) == (True, False, [])
    assert str(outcome.reason).startswith("not done within its deadline")


async def test_what_stops_the_run_passes_through() -> None:
    with pytest.raises(RunStopped, match="no key"):
        await live(RunStopped("no key"), OPEN[1]).play()


async def test_a_role_without_a_model_is_named() -> None:
    models = live().models(Role.SCRIPT_WRITER, Role.DUNGEON_MASTER)
    with pytest.raises(ConfigurationError, match="no model is given for the role 'player'"):
        await play_episode(PERSONA, index=0, settings=settings_for(), models=models)
