"""Grounded play with models that answer from a list: the world has the last word, whatever a model says."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from samples import SHED_GROUNDED, crowded, player
from scripted import Answer, Asked, Scripted, said
from stage import ACTIONS, THOUGHT, WORDED, acts, grounded, only, settings_for, worded

from refinesynth import rules
from refinesynth.actions.calls import call_of, tools_of
from refinesynth.prompts import Prompts
from refinesynth.rules import Violation
from refinesynth.settings import Attempts
from refinesynth.settings.mistakes import natural, prompted
from refinesynth.trajectory import ActionSpec, Draft, DungeonMasterTurn
from refinesynth.trajectory.turns import MAX_OBSERVATION

TERSE = (
    "The box opens. In it you see key.",
    "There is no saw here.",
    "You hold the key.",
    "You hold no saw.",
    "The key lies on the bench. Task Succeed",
)
KINDS = (None, "place", None, "logic", None)


def answers(turns: tuple[Any, ...]) -> list[DungeonMasterTurn]:
    return [turn for turn in turns if isinstance(turn, DungeonMasterTurn)]


async def test_the_world_rules_and_the_dungeon_master_words_it() -> None:
    stage = grounded()
    trajectory = only(await stage.play())
    told = answers(trajectory.turns)
    assert [turn.mistake_kind for turn in told] == list(KINDS)
    assert [turn.progress for turn in told] == [0, 0, 0, 0, 1]
    assert [turn.observation for turn in told] == [*WORDED[:-1], f"{WORDED[-1]} Task Succeed"]
    assert not any(turn.transient for turn in told)
    assert trajectory.provenance.play == "grounded"
    assert len(stage.master.asked) == len(ACTIONS)


LIES = {
    "names what is hidden": "The box opens a crack. Beside it a saw and a window.",
    "announces success early": "The box opens. Task Succeed",
    "announces success in its own words": "The box opens. The task is completed!",
    "says that it failed": "You cannot open the box; nothing happens.",
    "talks without end": "The box opens. " * MAX_OBSERVATION,
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_words_that_lie_are_refused_once_and_then_replaced(lie: str) -> None:
    stage = grounded(words=(worded(lie), worded(lie), *map(worded, WORDED[1:])))
    told = answers(only(await stage.play()).turns)
    assert told[0].observation == TERSE[0]
    assert told[1].observation == WORDED[1], "the next ruling is worded again"
    first, second, third = stage.master.asked[:3]
    assert "violations" not in first.blocks
    assert len(second.blocks["violations"]) >= 1
    assert {name: value for name, value in second.blocks.items() if name != "violations"} == first.blocks
    assert "violations" not in third.blocks
    assert stage.player.asked[1].chat[-1][1] == TERSE[0], "the player never reads what was refused"


async def test_words_that_a_rule_of_the_users_refuses_are_replaced_too() -> None:
    """Else a DungeonMaster that breaks one again and again would use up the attempts."""
    stage = grounded(words=tuple(map(worded, (WORDED[0], WORDED[1], "The key shines.", *WORDED[2:]))))
    outcome = await stage.play(rules=rules.grounded() & _NoShine())
    assert [turn.observation for turn in answers(only(outcome).turns)] == [*WORDED[:-1], f"{WORDED[-1]} Task Succeed"]
    assert stage.master.asked[3].blocks["violations"] == ["Nothing shines."]
    always = grounded(words=(worded("Something shines."),))
    outcome = await always.play(rules=rules.grounded() & _NoShine())
    assert [turn.observation for turn in answers(only(outcome).turns)] == list(TERSE)
    assert outcome.refused == ()


@dataclass(frozen=True)
class _NoShine(rules.BaseRule):
    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for at, turn in enumerate(draft.turns):
            if isinstance(turn, DungeonMasterTurn) and "shines" in turn.observation:
                yield self.violation(at, "shines", "Nothing shines.")


async def test_a_success_that_is_none_and_flags_change_nothing() -> None:
    forged: dict[str, Any] = {"logic_error": True, "progress": 1.0, "transient": True, "done": True}
    stage = grounded(words=tuple(worded(text, **forged) for text in WORDED))
    plain = grounded()
    assert only(await stage.play()).turns == only(await plain.play()).turns
    boast = grounded(words=(worded(WORDED[0]), worded("You take the saw. You hold it now."), *map(worded, WORDED[1:])))
    assert answers(only(await boast.play()).turns)[1].observation == WORDED[1]


@pytest.mark.parametrize("answer", ["no JSON", '{"thought": "t"}', worded("")])
async def test_a_dungeon_master_that_cannot_answer_leaves_the_worlds_own_words(answer: str) -> None:
    stage = grounded(words=(answer,))
    outcome = await stage.play(attempts=Attempts(answers=1))
    assert [turn.observation for turn in answers(only(outcome).turns)] == list(TERSE)
    assert outcome.refused == ()


class TestTerse:
    async def test_it_asks_no_dungeon_master_and_says_what_the_rulebook_says(self) -> None:
        stage = grounded()
        outcome = await stage.play(terse=True)
        trajectory = only(outcome)
        assert [turn.observation for turn in answers(trajectory.turns)] == list(TERSE)
        assert all(turn.thought for turn in answers(trajectory.turns))
        assert stage.master.asked == []
        assert outcome.usage.requests == 1 + len(ACTIONS)
        assert set(trajectory.provenance.models) == {"script_writer", "player"}

    async def test_a_rulebook_cannot_announce_success_before_the_end(self) -> None:
        boasting = SHED_GROUNDED.model_copy(
            update={
                "actions": tuple(
                    action.model_copy(update={"reveals": f"task  SUCCEED! {action.reveals} Task Succeed"})
                    for action in SHED_GROUNDED.actions
                )
            }
        )
        turns = only(await grounded(script=boasting).play(terse=True)).turns
        observations = [turn.observation for turn in answers(turns)]
        assert [text.casefold().count("task succeed") for text in observations] == [0, 0, 0, 0, 1]
        assert observations[-1].endswith(" Task Succeed")

    async def test_what_a_rulebook_leaves_blank_or_makes_endless_is_still_an_observation(self) -> None:
        first, *others = SHED_GROUNDED.actions
        for reveals in ("  ", "The box opens. " * 130 + "{state:/long}"):
            script = SHED_GROUNDED.model_copy(
                update={
                    "environment": {**SHED_GROUNDED.environment, "long": "x" * 8_000},
                    "actions": (first.model_copy(update={"reveals": reveals}), *others),
                }
            )
            observation = answers(only(await grounded(script=script).play(terse=True)).turns)[0].observation
            assert observation.strip()
            assert len(observation) <= MAX_OBSERVATION


class TestTransient:
    TWICE = tuple(itertools.chain.from_iterable((one, one) if kind is None else (one,) for one, kind in zip(ACTIONS, KINDS, strict=True)))  # fmt: skip
    """Every right action taken again at once, as after a failure."""

    async def test_a_right_action_fails_and_works_when_tried_again(self) -> None:
        stage = grounded(actions=self.TWICE)
        trajectory = only(await stage.play(terse=True, transient=0.999_999))
        told = answers(trajectory.turns)
        assert [turn.transient for turn in told] == [True, False, False, True, False, False, True, False]
        assert not any(turn.flagged for turn in told if turn.transient)
        assert [turn.progress for turn in told] == [0, 0, 0, 0, 0, 0, 0, 1]
        assert trajectory.mistakes() == (4, 10), "only the mistakes"
        assert [turn.observation for turn in told if not turn.transient] == list(TERSE)
        assert len({turn.observation for turn in told if turn.transient}) == 3

    async def test_a_dungeon_master_is_told_of_it_and_cannot_pass_it_off_as_success(self) -> None:
        stage = grounded(actions=self.TWICE, words=(worded("You open the box. It is open now."), worded("The box opens."), *map(worded, WORDED)))  # fmt: skip
        told = answers(only(await stage.play(transient=0.999_999)).turns)
        ruling = stage.master.asked[0].blocks["ruling"]
        assert (ruling["accepted"], ruling["mistake"], ruling["transient"]) == (False, None, True)
        assert (ruling["changed"], ruling["appeared"], ruling["done"]) == ([], [], False)
        assert "key" not in ruling["visible"]
        assert told[0].transient
        assert told[0].observation == ruling["text"]
        assert told[1].observation == WORDED[0]

    async def test_what_changes_nothing_never_fails_so(self) -> None:
        first, *others = SHED_GROUNDED.actions
        looking = first.model_copy(update={"requires": first.requires[:1], "effects": ()})
        idle = SHED_GROUNDED.model_copy(update={"actions": (looking, *others)})
        stage = grounded(actions=("open box",) * 4, script=idle)
        outcome = await stage.play(terse=True, transient=0.999_999, max_turns=8)
        assert outcome.refused[0].draft is not None
        assert not any(turn.transient for turn in answers(outcome.refused[0].draft.turns))

    async def test_no_mistake_is_asked_for_right_after_one(self) -> None:
        stage = grounded(actions=self.TWICE)
        await stage.play(terse=True, transient=0.999_999, mistakes=prompted(1, 2, 3))
        private = ["private" in asked.blocks for asked in stage.player.asked]
        told = (False, True, False, False, True, False, False, True)
        """Whether the action before failed for a moment."""
        assert not any(asked for asked, failed in zip(private, told, strict=False) if failed)
        assert any(private)


async def test_where_the_rulebook_has_no_answer_nobody_is_blamed() -> None:
    first, *others = SHED_GROUNDED.actions
    faulty = first.model_copy(update={"requires": (first.requires[1],)})
    script = SHED_GROUNDED.model_copy(update={"actions": (faulty, *others)})
    stage = grounded(actions=("open box", "open window", *ACTIONS[1:]), script=script)
    outcome = await stage.play(terse=True)
    assert acts(only(outcome)) == list(ACTIONS)
    (refused,) = outcome.refused
    assert refused.draft is not None
    assert [violation.code for violation in refused.violations] == ["rulebook_fault"]
    assert refused.draft.turns[-1] == player("open window", THOUGHT)
    private = stage.player.asked[2].blocks["private"]
    assert "'open window'" in str(private) or '"open window"' in str(private)


async def test_a_broken_rule_cuts_back_and_the_state_with_it() -> None:
    stage = grounded(actions=("open box", _leaking("take key"), *ACTIONS[1:]))
    outcome = await stage.play(terse=True)
    assert [turn.observation for turn in answers(only(outcome).turns)] == list(TERSE)
    assert [violation.rule for violation in outcome.refused[0].violations] == ["NoLeaks"]
    assert "private" in stage.player.asked[2].blocks


async def test_the_same_action_in_the_same_state_for_the_third_time_ends_the_draft() -> None:
    look = ActionSpec(name="look", pattern="look", reveals="You are in the shed.")
    script = SHED_GROUNDED.model_copy(update={"actions": (*SHED_GROUNDED.actions, look)})
    # A mistake, or another state, begins the count anew.
    before = ("look", "look", "take saw", "look", "look", "open box", "look", "look")
    stage = grounded(actions=(*before, "look", *ACTIONS[2:]), script=script)
    outcome = await stage.play(terse=True, rules=rules.all_of(rules.Replays(), rules.TaskSucceed()))
    assert acts(only(outcome)) == [*before, *ACTIONS[2:]]
    (refused,) = outcome.refused
    assert [violation.code for violation in refused.violations] == ["cycle"]
    assert "led back here" in str(stage.player.asked[len(before) + 1].blocks["private"])


def _leaking(action: str) -> Answer:
    def answer(_asked: Asked) -> str:
        return said(player(action, "As the DM, I know where it is."))

    return answer


async def test_a_script_that_cannot_be_executed_is_never_played_whatever_the_rules() -> None:
    broken = SHED_GROUNDED.model_copy(
        update={"rulebook": SHED_GROUNDED.rulebook and SHED_GROUNDED.rulebook.model_copy(update={"goal": ("state.",)})}
    )
    stage = grounded()
    stage.writer = Scripted(
        [broken.model_dump_json(), SHED_GROUNDED.imagined().model_dump_json(), SHED_GROUNDED.model_dump_json()]
    )
    outcome = await stage.play(script_rules=rules.all_of(), terse=True)
    assert only(outcome).script == SHED_GROUNDED
    first = outcome.refused[0]
    assert (first.stage, first.script, first.rejecting) == ("script", broken, ("RulebookCompiles",))
    assert stage.writer.asked[1].blocks["previous"] == broken.model_dump(mode="json")
    assert "cannot be read" in stage.writer.asked[1].blocks["violations"][0]


async def test_the_writer_is_told_the_features_the_length_and_what_makes_this_world_another() -> None:
    stage = grounded()
    await stage.play(difficulty=(2, 4), index=3)
    wanted = stage.writer.asked[0].blocks["wanted"]
    for name, section in (("twist", "twists"), ("surface", "surfaces"), ("device", "devices")):
        assert wanted.pop(name) in Prompts().fill("rulebook_variety", section).splitlines()
    assert wanted == {
        "step": "all",
        "features": list(settings_for("grounded").grounding.mix.wanted(3, 0)),
        "actions": [2, 4],
    }


@pytest.mark.parametrize(
    ("action", "refused", "meant"),
    [
        ("open teh box", '"open teh box" cannot be done here.', "open box"),
        ("take teh saw", '"take teh saw" cannot be done here.', "take saw"),
        ("take kye", 'No thing is called "kye".', "take key"),  # the goal names it
        ("take swa", 'No thing is called "swa".', None),  # nobody has seen one
        ("dance", '"dance" cannot be done here.', None),
    ],
)
async def test_a_refusal_names_the_nearest_action_where_that_is_asked_for(
    action: str, refused: str, meant: str | None
) -> None:
    for match in ("lenient", "strict"):
        stage = grounded((action, *ACTIONS))
        trajectory = only(await stage.play(terse=True, match=match))
        added = f' Did you mean "{meant}"?' if meant and match == "lenient" else ""
        assert answers(trajectory.turns)[0].observation == refused + added


async def test_a_call_in_pythons_syntax_is_an_action_where_that_is_asked_for() -> None:
    stage = grounded(('open(thing="box")', "take(thing='key')", "put(thing='key', place='bench')"))
    outcome = await stage.play(terse=True, match="lenient", rules=rules.grounded(), mistakes=natural())
    assert acts(only(outcome)) == ["open box", "take key", "put key on bench"]
    assert outcome.salvaged == {"action in other words": 3}


@pytest.mark.parametrize("form", ["react", "tools"])
async def test_a_world_of_many_actions_is_written_checked_and_played(form: str) -> None:
    script = crowded()
    spoken = ("open box", "turn dial 31 to high", "take saw", "take key", "put key on bench")
    calls = [call_of(script, action) for action in spoken]
    written = [
        f"{THOUGHT}\n{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})" for name, given in calls
    ]
    stage = grounded(spoken if form == "react" else tuple(lambda _, one=one: one for one in written), script=script)
    checks = rules.grounded_script(difficulty=(1, 12))
    trajectory = only(await stage.play(terse=True, player_form=form, script_rules=checks))
    assert acts(trajectory) == [*spoken]
    assert [turn.mistake_kind for turn in answers(trajectory.turns)] == [None, None, "place", None, None]
    assert len(trajectory.script.actions) == len(tools_of(trajectory.script)) == 35
