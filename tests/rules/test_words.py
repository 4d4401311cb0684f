"""Words against rulings: what somebody wrote, right and wrong, and laws about what may be said of anything."""

from itertools import product

import pytest
import words_corpus as settled
import words_held_out as held_out
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import dm, player
from words_corpus import HOUSE, Case

from refinesynth import rules, testing
from refinesynth.episode.ruled_action import FAILURE_TEXTS
from refinesynth.rules import judge_words
from refinesynth.rules.name_search import MAX_TEXT, Names, words_of
from refinesynth.rules.observation_words import is_english, sentences
from refinesynth.trajectory import Draft, Script
from refinesynth.world import Ruling, ground_actions, replay, world_of

FEWER = settings(max_examples=max(10, settings().max_examples // 4))


def ruling_of(case: Case) -> tuple[Ruling, tuple[str, ...]]:
    """What the house says of an action, and what can be seen before it."""
    world = world_of(HOUSE)
    rulings = replay(world, case.before)
    state = rulings[-1].state if rulings else HOUSE.environment
    return world.step(state, case.action), world.visible(state)


def judged(case: Case) -> list[str]:
    ruling, before = ruling_of(case)
    world = world_of(HOUSE)
    return judge_words(world, ruling, before, case.observation, action=case.action, transient=case.transient)


SIGNS: dict[settled.Fault, tuple[str, ...]] = {
    "name": ("It names ",),
    "success": ("not carried out", "failed for a moment"),
    "failure": ("was carried out",),
    "goal": ("goal is reached", "goal is not reached"),
    "unsaid": ("does not say that the action failed",),
}


def test_right_words_pass() -> None:
    assert {case.observation: found for case in settled.GOOD if (found := judged(case))} == {}


def test_wrong_words_are_found_for_what_is_wrong_with_them() -> None:
    assert [
        (fault, case.observation)
        for fault, case in settled.BAD
        if not any(sign in problem for problem in judged(case) for sign in SIGNS[fault])
    ] == []


def test_on_words_that_the_lexicon_was_not_made_for_false_alarms_are_rare_and_most_lies_are_found() -> None:
    alarms = sum(bool(judged(case)) for case in held_out.GOOD)
    found = sum(bool(judged(case)) for _, case in held_out.BAD)
    assert alarms <= len(held_out.GOOD) // 10
    assert found >= 3 * len(held_out.BAD) // 4


def test_what_the_engine_says_of_a_transient_failure_passes_as_one_and_not_as_success() -> None:
    for excuse, action in product(FAILURE_TEXTS, ground_actions(world_of(HOUSE))):
        assert judged(Case(action, excuse, transient=True)) == [], (action, excuse)
        if ruling_of(Case(action, excuse))[0].kind is None:
            assert judged(Case(action, excuse)), (action, excuse)


GERMAN = HOUSE.model_copy(
    update={
        "introduction": "Du stehst in der Küche eines alten Hauses. Draußen hängt eine Laterne aus Messing.",
        "goal": "Der Apfel liegt im Keller, und die Lampe brennt dort unten wieder.",
    }
)


def test_in_another_language_only_names_and_the_words_of_success_are_refused() -> None:
    world = world_of(GERMAN)
    assert (is_english(HOUSE), is_english(GERMAN)) == (True, False)
    passing, before = world.step(GERMAN.environment, "open fridge"), world.visible(GERMAN.environment)
    for observation, refused in (
        ("Der Kühlschrank summt. Nothing happens.", False),
        ("Hinter der Tür: red key.", True),
        ("Task Succeed", True),
    ):
        found = judge_words(world, passing, before, observation, action="open fridge")
        assert bool(found) is refused
        turns = (player("open fridge"), dm(observation))
        verdict = rules.verify(Draft(script=GERMAN, turns=turns, finished=False), rules.WordsAgree())
        assert verdict.violations
        assert verdict.accepted is not refused
    slip = judge_words(world, passing, before, "Die Klinke klemmt.", action="open fridge", transient=True)
    assert slip == [], "nobody can say whether this announces a failure"


@FEWER
@given(testing.valid_grounded_scripts(), st.data())
def test_the_rulings_own_words_always_pass(script: Script, data: st.DataObject) -> None:
    world = world_of(script)
    actions = [*ground_actions(world), "juggle everything", "", "take it from there"]
    state = script.environment
    for _ in range(8):
        action = data.draw(st.sampled_from(actions))
        before = world.visible(state)
        ruling = world.step(state, action)
        more = data.draw(st.sampled_from(("", " Nothing else changes.", " All else is quiet.")))
        assert judge_words(world, ruling, before, f"{ruling.text}{more}", action=action) == []
        if ruling.kind is None:
            assert judge_words(world, ruling, before, ruling.text, action=action, transient=True), "it did not happen"
        state = ruling.state


def test_whatever_a_rulebook_says_of_success_the_engines_version_of_it_passes() -> None:
    boast = HOUSE.actions[-1].model_copy(update={"reveals": "The sign reads: Task Succeed if you can."})
    world = world_of(HOUSE.model_copy(update={"actions": (*HOUSE.actions[:-1], boast)}))
    ruling = world.step(HOUSE.environment, "look")
    before = world.visible(HOUSE.environment)

    assert judge_words(world, ruling, before, "The sign reads: success if you can.", action="look") == []
    assert judge_words(world, ruling, before, ruling.text, action="look"), "only the engine may say that"


@given(testing.texts(), testing.texts(), st.booleans())
def test_anything_may_be_said_of_anything_and_nothing_is_raised(action: str, observation: str, transient: bool) -> None:
    world = world_of(HOUSE)
    ruling = world.step(HOUSE.environment, action)
    for problem in judge_words(world, ruling, (), observation, action=action, transient=transient):
        assert problem.strip()


@pytest.mark.parametrize("piece", ["blue ", "a", "you ", "cannot ", '"', "now", ". ", "is in your hand ", "\n", "ly "])
def test_of_long_words_only_the_beginning_is_read(piece: str) -> None:
    long = piece * (1_000_000 // len(piece))
    for case in (Case("open fridge", long), Case("open drawer", long, transient=True)):
        assert judged(case) == judged(case._replace(observation=long[:MAX_TEXT]))


def test_a_ruling_that_says_very_much_is_right_in_its_own_words() -> None:
    told = "".join(f"Error {number} is invalid. " for number in range(3_000))
    loud = HOUSE.model_copy(update={"environment": {**HOUSE.environment, "board": told}})
    loud = loud.model_copy(
        update={
            "actions": (*HOUSE.actions[:-1], HOUSE.actions[-1].model_copy(update={"reveals": "{state:/board}" * 30}))
        }
    )
    world = world_of(loud)
    ruling = world.step(loud.environment, "look")
    before = world.visible(loud.environment)
    assert len(ruling.text) > MAX_TEXT
    assert judge_words(world, ruling, before, ruling.text, action="look") == []
    wrong = judge_words(world, ruling, before, "Error A is invalid. " * 500, action="look")
    assert len(wrong) == 1


def test_what_opens_a_quotation_anew_ends_the_one_that_was_never_closed() -> None:
    assert sentences("He says «it fails.") == ["he says «it fails."]
    assert sentences("« « «you fail» is written.") == ["« « is written."]
    assert sentences("\u201c \u201cyou fail\u201d is written.") == ["\u201c is written."]


class TestNames:
    def test_the_longest_counts(self) -> None:
        names = Names(("mug", "blue mug", "mug shelf"))
        assert [*names.mentioned("a Blue  Mug, and the MUG's handle").values()] == ["blue mug", "mug"]
        assert [*names.mentioned("a blue mug shelf").values()] == ["blue mug"]
        assert [*names.mentioned("a mug shelf").values()] == ["mug shelf"]

    @pytest.mark.parametrize("text", ["smuggler", "mugs", "mug-like", "mug.txt", "mugé"])
    def test_only_whole_words_count(self, text: str) -> None:
        assert not Names(("mug",)).mentioned(text)

    @pytest.mark.parametrize("name", ["notes.txt", "/home/ann", "box-7", "table 12", "試料", "Café"])
    def test_names_may_look_like_anything(self, name: str) -> None:
        names = Names((name, "table 1", "notes", "home"))
        assert [*names.mentioned(f"Here is {name}.").values()] == [name]

    @pytest.mark.parametrize("name", ["on", "7", "b", "open", "", "...", "a " * 40])
    def test_what_names_nothing_is_not_looked_for(self, name: str) -> None:
        assert not Names((name,)).mentioned(f"it is {name} a b 7 on open")

    @given(st.lists(testing.texts(), max_size=5), testing.texts())
    def test_a_name_that_is_found_stands_in_the_text_word_by_word(self, some: list[str], text: str) -> None:
        said = " ".join(words_of(text))
        for words, name in Names(some).mentioned(text).items():
            assert name in some
            assert words in said
            assert words == " ".join(words_of(name))
