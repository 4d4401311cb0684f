"""What a player is told of a text that is no action."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rule_drafts import HOUSE

from refinesynth.actions.matching import MAX_ACTION_CHARACTERS, match_action, refusal


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("take spoon from hall", 'No item is called "spoon".'),
        ("take mug from the  moon", 'No place is called "the  moon".'),
        ("take mug from HALL", 'No place is spelled "HALL".'),
        ("dance\nwildly", '"dance\\nwildly" cannot be done here.'),
        ("  ", "Nothing is done, so nothing happens."),
        ("go to " * MAX_ACTION_CHARACTERS, "That is far too much to do at once."),
    ],
)
def test_it_says_what_there_is_not(text: str, said: str) -> None:
    assert refusal(HOUSE.actions, text) == said


@given(st.text() | st.from_regex(r"take \w{0,200} from \w+", fullmatch=True))
def test_it_never_lists_what_there_is(text: str) -> None:
    told = refusal(HOUSE.actions, text)
    assert told
    assert "\n" not in told
    assert len(told) < 600
    if match_action(HOUSE.actions, text) is None:
        own = text.casefold()
        assert not [name for name in ("mug", "key", "kitchen", "cellar") if name in told and name not in own]


def test_without_any_actions_nothing_can_be_done() -> None:
    assert refusal((), "look") == '"look" cannot be done here.'
