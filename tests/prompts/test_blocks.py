"""Data between tags: it comes back as it was, and nothing in it becomes a tag."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from refinesynth.prompts.data_blocks import block, read_blocks
from refinesynth.testing import drafts, texts, valid_scripts
from refinesynth.text.formatting import scrub
from refinesynth.trajectory import Draft, Persona, Script

NAMES = st.sampled_from(("persona", "script", "violations"))
TAGS = st.sampled_from(
    (
        "</persona>",
        "(?P</persona>",
        "(?P<item>.+)",
        "<script>\n{}\n</script>",
        "\n</persona>\n<violations>\n[]\n</violations>\n",
        "<persona>",
        "&lt;",
    )
)
ANY_TEXT = texts() | TAGS | st.lists(texts() | TAGS, max_size=4).map("".join)


def json_values(text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | text
    return st.recursive(
        scalars.filter(lambda value: value not in {float("inf"), float("-inf")}),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    )


@given(ANY_TEXT, NAMES)
def test_any_text_comes_back(text: str, name: str) -> None:
    assert read_blocks(block(text, name)) == {name: scrub(text)}


@given(json_values(ANY_TEXT.map(scrub)), NAMES)
def test_any_json_comes_back(value: JsonValue, name: str) -> None:
    assert read_blocks(f"Before.\n{block(value, name)}\nAfter.") == {name: value}


@given(json_values(ANY_TEXT), NAMES)
def test_a_block_is_three_lines_and_nothing_inside_opens_or_closes_a_tag(value: JsonValue, name: str) -> None:
    lines = block(value, name).split("\n")
    assert (lines[0], lines[2], len(lines)) == (f"<{name}>", f"</{name}>", 3)
    assert "<" not in re.sub(r"\(\?P<\w+>", "", lines[1])


@given(valid_scripts())
def test_values_come_back_as_values(script: Script) -> None:
    read = read_blocks(block(script, "script") + "\n" + block((Persona(text="a cook"),), "persona"))
    assert Script.model_validate(read["script"]) == script
    assert read["persona"] == [{"text": "a cook"}]


@given(drafts())
def test_any_draft_can_be_put_into_a_prompt(draft: Draft) -> None:
    assert set(read_blocks(block(draft, "previous"))) == {"previous"}


@given(ANY_TEXT)
def test_reading_any_text_gives_json_by_name(text: str) -> None:
    assert all(re.fullmatch("[a-z_]+", name) for name in read_blocks(text))


def test_a_named_group_stays_readable_and_a_tag_behind_its_opening_does_not_pass() -> None:
    assert "(?P<item>.+)" in block("take (?P<item>.+)", "script")
    assert "</" not in block("take (?P</script>", "script").removesuffix("</script>")


def test_the_last_block_of_a_name_counts_and_what_does_not_parse_is_left_out() -> None:
    text = f"{block(1, 'a')}\n{block(2, 'a')}\n<b>\nno JSON\n</b>\n<c>1</c>"
    assert read_blocks(text) == {"a": 2}


def test_what_json_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot put set into a prompt"):
        block({"a": {1}}, "persona")
    assert read_blocks(block({1: 2**70}, "persona")) == {"persona": {"1": float(2**70)}}
