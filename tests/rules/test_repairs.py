"""What answers a mistake: in an executed world, and where the world is imagined."""

import pytest
from rule_drafts import draft, right, wrong
from samples import accepted, dm, player, provenance
from words_corpus import HOUSE

from refinesynth import rules
from refinesynth.rules import RealRefinement
from refinesynth.rules.names import names_of
from refinesynth.rules.repairs import count_refinements, gives_reason, refinements, repairs
from refinesynth.trajectory import (
    Draft,
    DraftTurn,
    DungeonMasterTurn,
    PlayerTurn,
    Refinements,
    Trajectory,
)
from refinesynth.world import world_of

NAMES = names_of(world_of(HOUSE))


def played(*acts: str | tuple[str, str], finished: bool = False) -> Draft:
    """These actions, some with their thought, answered as the rulebook has it."""
    world, state = world_of(HOUSE), HOUSE.environment
    turns: list[DraftTurn] = []
    for act in acts:
        action, thought = (act, "Next.") if isinstance(act, str) else act
        ruling = world.step(state, action)
        state = ruling.state
        answer = dm(ruling.text, ruling.kind) if ruling.kind else dm(ruling.text)
        turns += [PlayerTurn(thought=thought, action=action), answer.model_copy(update={"progress": ruling.progress})]
    return Draft(script=HOUSE, turns=tuple(turns), finished=finished)


def became(subject: Draft, within: int = 3) -> list[tuple[int | None, int | None]]:
    """Of each mistake: which action answers it, and which unrelated one comes first; actions counted from 0."""
    return [
        tuple(None if at is None else at // 2 for at in (repair.answer, repair.unrelated))  # type: ignore[misc]
        for repair in repairs(subject, within)
    ]


TAKE = "take apple from fridge"


@pytest.mark.parametrize(
    ("acts", "expected"),
    [
        # What it lacked is there: the fridge is open.
        ((TAKE, "open fridge"), (1, None)),
        ((TAKE, "look", "open fridge"), (2, None)),
        ((TAKE, "look", "open fridge", TAKE), (2, None)),
        # Something else is done.
        ((TAKE, "look"), (None, 1)),
        ((TAKE, "go to hall", "turn lamp on", "look"), (None, 1)),
        ((TAKE, "go to hall", "turn lamp on", "look", "go to kitchen", "open fridge"), (None, 1)),
        # What only prepares it: in the hall the drawer is in reach, and that was what refused the action.
        (("take red key from drawer", "go to hall"), (1, None)),
        (("take red key from fridge", "go to hall"), (None, 1)),
        # It was the case already, which nothing undoes.
        (("go to kitchen", "look"), (None, 1)),
        (("go to kitchen", ("look", "I am in the kitchen already.")), (1, None)),
        # Given up, with a reason.
        ((TAKE, ("look", "The fridge is closed. I look round first.")), (1, None)),
        ((TAKE, ("look", "I do not need the apple; a look round will do instead.")), (1, None)),
        ((TAKE, ("look", "The fridge hums.")), (None, 1)),
        ((TAKE, ("look", "Instead I look round.")), (None, 1)),
        ((TAKE, "turn lamp on", ("look", "The fridge is closed, so I look round.")), (None, 1)),
        # No action of the world, and what was meant.
        (("open frigde", "open fridge"), (1, None)),
        (("grab the apple out of the fridge", "open fridge"), (1, None)),
        (("turn lamp bright", "turn lamp on"), (1, None)),
        (("look arround", "look"), (1, None)),
        (("juggle mugs", "look"), (None, 1)),
        (("juggle mugs", ("look", "Nobody can juggle with mugs here.")), (1, None)),
        # Called wrong too, or the same again.
        ((TAKE, "go to kitchen", "open drawer"), (None, None)),
        ((TAKE,), (None, None)),
    ],
)
def test_in_an_executed_world_an_action_answers_a_mistake_or_is_unrelated(
    acts: tuple[str | tuple[str, str], ...], expected: tuple[int | None, int | None]
) -> None:
    assert became(played(*acts))[0] == expected
    imagined = played(*acts).model_copy(update={"script": HOUSE.imagined()})
    [(answer, unrelated), *_] = became(imagined)
    accepted = [at for at in (*expected,) if at is not None]
    assert (answer is not None, unrelated) == (bool(accepted), None), (
        "where the world is imagined, any other one answers"
    )


def test_what_was_thought_in_a_second_try_that_failed_too_gives_the_plan_up() -> None:
    said = "The fridge is closed. The mug will do instead of the apple."
    tried = played(TAKE, ("open drawer", said), ("go to hall", "The drawer is in the hall."))
    assert became(tried)[0] == (2, None)
    silent = played(TAKE, "open drawer", ("go to hall", "The drawer is in the hall."))
    assert became(silent)[0] == (None, 2)


def test_longer_repairs_are_told_apart() -> None:
    def counted(*acts: str | tuple[str, str]) -> tuple[int, int, int]:
        found = count_refinements(repairs(played(*acts)))
        return found.again, found.late, found.given_up

    assert counted(TAKE, "open fridge") == (0, 0, 0)
    assert counted(TAKE, "take mug from fridge", "open fridge") == (1, 0, 0)
    assert counted(TAKE, "look", "open fridge") == (0, 1, 0)
    assert counted(TAKE, ("look", "The fridge is closed. I look round first.")) == (0, 0, 1)


def test_the_window_is_counted_in_player_turns() -> None:
    late = played(TAKE, "look", "open fridge")
    assert became(late, within=1) == [(None, 1)]
    assert became(late, within=2) == [(2, None)]


def test_one_action_may_answer_several_mistakes() -> None:
    assert became(played(TAKE, "take mug from fridge", "open fridge")) == [(2, None), (2, None)]


def test_what_failed_for_a_moment_answers_nothing_yet() -> None:
    stuck = dm("It sticks.").model_copy(update={"transient": True, "progress": 0.0})
    shut = played(TAKE)
    failed = shut.model_copy(update={"turns": (*shut.turns, player("open fridge"), stuck)})
    assert became(failed) == [(None, None)]
    again = failed.model_copy(update={"turns": (*failed.turns, player("open fridge"), dm("The fridge is open."))})
    assert became(again, within=1) == [(2, None)]


def test_a_mistake_that_the_rulebook_does_not_know_is_judged_as_if_imagined() -> None:
    flagged = draft(wrong("open fridge"), right("look"), script=HOUSE, finished=False)
    assert became(flagged) == [(1, None)]


def test_a_draft_that_nobody_can_replay_is_judged_as_if_imagined() -> None:
    stray = draft(dm("Here."), dm("And here."), wrong(TAKE), right("look"), script=HOUSE, finished=False)
    assert [repair.answer for repair in repairs(stray)] == [4]


class TestRealRefinement:
    def test_an_unrelated_action_refines_nothing(self) -> None:
        over = played(TAKE, "look", "turn lamp on", "go to hall")
        [found] = RealRefinement()(over)
        assert (found.code, found.turn) == ("not_refined", 6)
        assert "take apple from fridge" in found.message
        assert not {"DM", "mistake", "Turn 1"} & set(found.message.split()), "words that a player may repeat"
        assert list(RealRefinement()(over.prefix(6))) == [], "what is kept may be gone on with"
        assert list(RealRefinement()(over.model_copy(update={"script": HOUSE.imagined()}))) == []

    def test_while_the_window_is_open_the_answer_can_come(self) -> None:
        assert list(RealRefinement()(played(TAKE, "look", "turn lamp on"))) == []
        assert [found.turn for found in RealRefinement()(played(TAKE, "look", finished=True))] == [2]

    def test_a_play_that_answers_is_accepted(self) -> None:
        whole = played(TAKE, "open fridge", TAKE, "go to hall", "go to cellar")
        done = whole.turns[-1]
        assert isinstance(done, DungeonMasterTurn)
        ended = done.model_copy(update={"observation": f"{done.observation} Task Succeed"})
        finished = whole.model_copy(update={"turns": (*whole.turns[:-1], ended), "finished": True})
        assert rules.verify(finished, rules.grounded(min_refinements=1)).accepted


@pytest.mark.parametrize(
    ("thought", "refused", "refusal", "expected"),
    [
        ("The fridge is closed, then.", TAKE, "The fridge is closed.", True),
        ("The fridge is next.", TAKE, "The fridge is closed.", False),
        ("I take the apple from the fridge later.", TAKE, "There is no apple in the fridge.", True),
        ("So it needs a code, that safe.", "open safe", "The safe asks for a code.", True),
        ("I go on.", "open safe", "The safe asks for a code.", False),
        ("Locked.", "open door", "It is locked.", True),
        ("It was locked.", "open door", "It is unlocked.", False),
        ("Nothing happens here.", "open door", "Nothing happens.", False),
        ("No need for the letter.", "read letter", "Nothing happens.", True),
        ("Without light that is hard.", "read letter", "Nothing happens.", False),
        ("", TAKE, "The fridge is closed.", False),
        ("Anything.", "", "", False),
    ],
)
def test_a_reason_is_told_by_its_words(thought: str, refused: str, refusal: str, expected: bool) -> None:
    assert gives_reason(thought, refused=refused, refusal=refusal, names=NAMES) is expected


def test_what_was_counted_when_it_was_accepted_is_not_counted_again() -> None:
    turns = played(TAKE, "open fridge", "take mug from fridge", "look").turns
    found = accepted(Draft(script=HOUSE, turns=turns))
    assert found.provenance.refinements is None, "as an earlier version wrote it"
    assert refinements(found) == count_refinements(repairs(found.draft())) == Refinements(answered=1, unrelated=1)
    assert "refinements" not in found.provenance.model_dump(mode="json")
    kept = Refinements(answered=7, unrelated=0)
    stored = found.model_copy(update={"provenance": provenance(refinements=kept)})
    assert refinements(Trajectory.from_json(stored.to_json())) == kept


def test_many_mistakes_take_time_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last of them are waited for, however long the draft is."""
    from refinesynth.world.expression import Expression

    asked = 0
    answer = Expression.answer

    def counting(self: Expression, state: object, values: object) -> bool | str:
        nonlocal asked
        asked += 1
        return answer(self, state, values)  # type: ignore[arg-type]

    monkeypatch.setattr(Expression, "answer", counting)

    def work(rounds: int) -> int:
        nonlocal asked
        before = asked
        steps = [part for n in range(rounds) for part in ("take mug from drawer", f"turn lamp {('on', 'off')[n % 2]}")]
        assert len(repairs(played(*steps))) == rounds
        return asked - before

    assert work(400) < 2.5 * work(200)
