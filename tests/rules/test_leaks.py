"""Thoughts that give the play away, and thoughts that only sound like it."""

import pytest
from rule_drafts import GARBAGE, draft
from samples import dm, player

from refinesynth.errors import ConfigurationError
from refinesynth.rules import NoLeaks

LEAKING = (
    "As the DM, I will answer that the door is locked.",
    "As a Dungeon Master I know where it is.",
    "I'm the DM here.",
    "I am playing the dungeon-master.",
    "The DM told me the drawer is empty.",
    "the game master wants me to look",
    "This is the dungeon master\u2019s world.",
    "As an AI language model, I cannot walk.",
    "I am an AI, so let me choose.",
    "I\u2019m simulating the player here.",
    "As the player, I should look first.",
    "I was told to make a mistake.",
    "I was told to make at least two plausible parameter mistakes here.",
    "I have been asked to deliberately make an error.",
    "We are supposed to commit one logic error now.",
    "I should first make a plausible mistake.",
    "Let me make a parameter error here.",
    "Now I'll make a mistake and then correct it.",
    "The story must include two mistakes, so here is one.",
    "This is a deliberate mistake.",
    "I make this mistake on purpose.",
    "I will deliberately make a wrong turn.",
    "I'll intentionally use a wrong name.",
    "I fail on purpose so that I can refine.",
    "This sets parameter_error to true.",
    "By the completion conditions, the mug must be washed.",
    "My system prompt forbids it.",
    "According to my private instructions I go left.",
    "The prompt says two errors.",
    "I send it, as DM, to the player.",
    "As a DM I know the drawer.",
    # The words of our own private notes to the Player, as it may repeat them.
    "The private note asks me to make a mistake.",
    "The private note tells me to try the wrong drawer.",
    "I should take an action that does not work.",
    "I was told to choose something that won't work.",
    "That note wants an answer with a mistake about the place.",
    "I was asked for a place mistake, so I try the hall.",
    "I've been asked to answer with a mistake.",
    "I must respond with a mistake here.",
    "I will make a mistake here by leaving out a word.",
    "I want to make an error now.",
    "A plausible mistake would be the wrong drawer.",
    "The instruction asks for a logic mistake.",
)

SOUND = (
    "I must not make a mistake.",
    "I made a mistake: the mug is in the kitchen.",
    "I want to avoid making an error here.",
    "That was an error; I try the other one.",
    "The command prompt shows a path.",
    "I should send Ann a DM about the meeting.",
    "I open the media player and press play.",
    "As a narrator of audio books I check the microphone.",
    "I need to include an error message in the report.",
    "I was asked to report errors in the log.",
    "I was told to make tea and fix the error log.",
    "I should make an error report.",
    "Let me make an error bar for the plot.",
    "The test data has some intentional gaps.",
    "Let me find the mistakes in this text.",
    "As an AI researcher I train the model.",
    "I was told to correct mistakes in the ledger.",
    "The parameter error rate is low.",
    "I must log in as the admin.",
    "The master key opens the dungeon.",
    "I am looking for conditions that complete the form.",
    "I could send it to Ann as a DM.",
    "The prompt says login, so I give my name.",
    "The prompt tells me to enter a path, or an error follows.",
    "The system prompt shows a dollar sign, so the shell is ready.",
    "I deliberately choose the smaller pot.",
    "I was told to make a copy with no mistakes.",
    "If I guess now, I will make a mistake.",
    "The private note says that the key is under the mat.",
    "The note says the wrong valve was opened.",
    "The note warns about an error in the ledger.",
    "The private note says to wait.",
    "I should take the lamp that does not work to the bench.",
    "I must find something that works.",
    "",
)


@pytest.mark.parametrize("thought", LEAKING)
def test_leaks_are_found(thought: str) -> None:
    for spelled in (thought, thought.upper(), f"Well.\n{thought}\nSo."):
        [violation] = NoLeaks()(draft(dm("Hello."), player("look", spelled)))
        assert (violation.code, violation.turn, violation.keeps_prefix) == ("leak", 1, True)


@pytest.mark.parametrize("thought", SOUND)
def test_a_scenes_own_words_are_not_leaks(thought: str) -> None:
    assert list(NoLeaks()(draft(player("look", thought), dm()))) == []


def test_actions_and_observations_are_not_read() -> None:
    assert list(NoLeaks()(draft(player("say As the DM, I win"), dm("As the DM, I say hello."), GARBAGE))) == []


def test_whose_thoughts_are_read_is_a_setting() -> None:
    leak = dm().model_copy(update={"thought": "As the DM, I know."})
    assert list(NoLeaks()(draft(leak))) == []
    assert [found.turn for found in NoLeaks(voices=("DM",))(draft(leak))] == [0]


def test_ones_own_patterns_add_to_the_built_in_or_replace_them() -> None:
    own, built_in = draft(player("look", "ZOUNDS 7")), draft(player("look", "As the DM, I know."))
    assert [bool(list(NoLeaks(also=(r"zounds \d",))(each))) for each in (own, built_in)] == [True, True]
    assert [bool(list(NoLeaks(also=(r"zounds \d",), builtin=False)(each))) for each in (own, built_in)] == [True, False]
    assert [bool(list(NoLeaks(builtin=False)(each))) for each in (own, built_in)] == [False, False]


def test_a_pattern_that_re2_refuses_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError, match="perl operator"):
        NoLeaks(also=("(?=x)",))


def test_a_very_long_thought_is_read_in_full() -> None:
    long = "I go on and make sure that all is well. " * 5_000
    assert list(NoLeaks()(draft(player("look", long)))) == []
    assert list(NoLeaks()(draft(player("look", long + "As the DM, I know."))))
