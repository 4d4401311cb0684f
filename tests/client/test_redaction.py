"""Keys never leave the backends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.text.formatting import redact

CANARY = "canary.0123456789/abcdef"


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "MY_KEY", "HF_TOKEN", "AWS_SECRET", "DB_PASSWORD"])
def test_the_value_of_a_variable_that_holds_a_key_is_hidden(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, CANARY)
    assert redact(f"before {CANARY} after {CANARY}") == "before *** after ***"


def test_a_key_that_begins_with_another_is_hidden_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", CANARY)
    monkeypatch.setenv("B_KEY", f"{CANARY}-more")
    assert redact(f"{CANARY}-more") == "***"


@pytest.mark.parametrize(
    "text", ["sk-proj-0123456789abcdef", "Bearer abcdef0123456789", "AIza-abcdefghijklmnop", "gsk_0123456789abcd"]
)
def test_what_looks_like_a_key_is_hidden_though_no_variable_holds_it(text: str) -> None:
    assert redact(f"got {text}!").count("***") == 1
    assert "0123456789" not in redact(text)


@pytest.mark.parametrize(
    "spelling", [r"a+b\/c d'e\"f", "a%2Bb%2Fc%20d%27e%22f", "a%2Bb/c%20d%27e%22f", r"a+b/c d'e\"f"]
)
def test_a_key_is_hidden_as_others_spell_it(spelling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "a+b/c d'e\"f")
    assert redact(f"before {spelling} after") == "before *** after"


def test_short_values_and_other_variables_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHORT_KEY", "error")
    monkeypatch.setenv("CITY", CANARY)
    assert redact(f"an error in {CANARY}") == f"an error in {CANARY}"


@given(st.text(), st.text())
def test_no_text_around_it_saves_a_key(before: str, after: str) -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CANARY_API_KEY", CANARY)
        assert CANARY not in redact(f"{before}{CANARY}{after}")
