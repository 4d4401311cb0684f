"""Settings of grounded play and of curation: what they take, and what is said of the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from refinesynth.errors import ConfigurationError
from refinesynth.settings import Curation
from refinesynth.settings.grounding import MAX_STEPS, Grounding, band


@given(st.integers(1, MAX_STEPS), st.integers(1, MAX_STEPS))
def test_a_band_reads_back_in_any_spelling(one: int, other: int) -> None:
    least, most = sorted((one, other))
    assert band(f"{least}..{most}") == band(f" {least} .. {most} ") == (least, most)
    assert band(f"{least}..") == (least, MAX_STEPS)
    assert band(f"..{most}") == (1, most)
    assert band(str(least)) == (least, least)
    assert Grounding.model_validate({"difficulty": f"{least}..{most}"}).difficulty == (least, most)


@pytest.mark.parametrize(
    "text", ["", "..", "a", "12..4", "0..4", "4..101", "4-12", "4..12..", "4 12", "..0", "-3", "9" * 9]
)
def test_what_is_no_band_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"write 4\.\.12"):
        band(text)


@pytest.mark.parametrize(
    "settings",
    [
        {"difficulty": (5, 4)},
        {"difficulty": (0, 4)},
        {"difficulty": (1, 1_000)},
        {"transient": 1.0},
        {"transient": float("nan")},
        {"transient": -0.1},
        {"tense": True},
    ],
)
def test_a_grounding_refuses_what_cannot_be(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Grounding.model_validate(settings)


@pytest.mark.parametrize("settings", [{"near_duplicates": 0.0}, {"near_duplicates": 1.1}, {"words": 2}, {"files": ()}])
def test_a_curation_refuses_what_cannot_be(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Curation.model_validate(settings)


def test_that_a_script_is_written_in_one_call_may_be_said_and_nothing_else() -> None:
    assert Grounding.model_validate({"terse": True, "two_steps": False}) == Grounding(terse=True)
    with pytest.raises(ValidationError, match="a script is written in one call; leave two_steps out"):
        Grounding.model_validate({"two_steps": True})


def test_a_curation_that_looks_for_nothing_is_idle() -> None:
    assert Curation().idle
    assert not Curation(near_duplicates=0.9).idle
    assert not Curation(contamination=("test.jsonl",)).idle
