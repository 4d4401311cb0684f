"""JSON out of model text: whatever the text is."""

import json
import math
from typing import Any, cast

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import JsonValue

from refinesynth.testing import texts
from refinesynth.text.json_reader import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_REPAIRED_CHARACTERS,
    Truncated,
    depth,
    read_json,
    scrub,
    write_json,
)

INTEGERS = st.integers(-(2**63), 2**64 - 1)
SCALARS = st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False)


def json_values(text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        SCALARS | text, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4)
    )


def containers(text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    inner = json_values(text)
    return st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4)


def broken_json() -> st.SearchStrategy[str]:
    """JSON with pieces cut out, doubled or put in."""
    pieces = st.sampled_from(
        (
            *["{", "}", "[", "]", '"', '"a"', ":", ",", "null", "1e999", "'", "\\", "```", "//", "“", "\\ud800"],
            *"\n",
            "```json\n",
        )
    )
    return st.lists(pieces, max_size=40).map("".join)


def nested(levels: int) -> JsonValue:
    value: JsonValue = 1
    for _ in range(levels):
        value = [value]
    return value


@given(texts() | broken_json())
@example("{“```json0```")
def test_any_text_is_an_object_an_array_or_a_value_error(text: str) -> None:
    try:
        value = read_json(text)
    except ValueError as error:
        # The message goes back to a model, over a wire that takes UTF-8.
        message = str(error)
        message.encode()
        return
    assert isinstance(value, dict | list)
    assert depth(value) <= MAX_DEPTH
    assert orjson.loads(orjson.dumps(value)) == value


@given(containers(texts(surrogates=False)))
def test_valid_json_is_read_as_it_is(value: JsonValue) -> None:
    assert read_json(json.dumps(value)) == value
    assert read_json(json.dumps(value, ensure_ascii=False, indent=2)) == value


@given(containers(st.text("abc é\n", max_size=8)), st.sampled_from(("Sure!\n", "Here you are: ", "")))
def test_fences_and_prose_around_json_do_not_matter(value: JsonValue, prose: str) -> None:
    assert read_json(f"{prose}```json\n{json.dumps(value)}\n```\nAnything else?") == value
    assert read_json(f"{prose}```\n{json.dumps(value)}\n```") == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1,}', {"a": 1}),
        ('{"a": "6" tall"}', {"a": '6" tall"'}),
        ('{"a": "he said "hi" there",}', {"a": 'he said "hi" there'}),
        ('```json\n{"a": "6" tall"}\n```', {"a": '6" tall"'}),
        ("{'a': true}", {"a": True}),
        ('The answer is {"a": [1, 2} as you asked.', {"a": [1, 2]}),
        ('[{"a": 1} {"a": 2}]', [{"a": 1}, {"a": 2}]),
    ],
)
def test_slightly_broken_json_is_mended(text: str, value: JsonValue) -> None:
    assert read_json(text) == value


CUT = (
    '{"a": "b', '{"a": 1', '{"a": "b",', '{"a": "smile :} and', '{"a": "he said "hi" and', '{"a": "say "so and',
    '{"turns": [{"a": 1}, {"b": 2}', '[{"a": 1}, {"a": "you stan', '{"a": 1} {"b": "you', 'Here: {"a": {"b": [1, 2]',
    '```json\n{"a": "A short walk later you stan', '{"a": "6" tall and', "{'a': 'b', 'c': [1,", '{"a": "x\\',
)  # fmt: skip


def test_json_whose_end_is_missing_is_not_closed() -> None:
    for text in CUT:
        with pytest.raises(Truncated, match="its end is missing"):
            read_json(text)


@given(containers(st.text(max_size=5)), st.data())
def test_no_beginning_of_json_is_taken_for_the_whole(value: JsonValue, data: st.DataObject) -> None:
    text = json.dumps(value)
    with pytest.raises(Truncated):
        read_json(text[: data.draw(st.integers(1, len(text) - 1))])


@pytest.mark.parametrize("text", ["", "null", "7", '"text"', "no JSON at all", "true", '```json\n"x"\n```'])
def test_anything_but_objects_and_arrays_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no JSON object or array"):
        read_json(text)


def test_deep_and_long_text_is_refused() -> None:
    assert read_json(json.dumps(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    for levels in (MAX_DEPTH + 1, 900):
        with pytest.raises(ValueError, match="nested deeper"):
            read_json(json.dumps(nested(levels)))
    for brackets in (1_900, 100_000):
        with pytest.raises(ValueError, match=r"no JSON object or array|end is missing"):
            read_json("[" * brackets)
    with pytest.raises(ValueError, match="at most 1,000,000"):
        read_json(" " * (MAX_CHARACTERS + 1))


@pytest.mark.parametrize("unit", ['a"', "{", '"', "1{'", "a{]", "true},{\\", ':"'])
def test_a_model_in_a_loop_is_refused_without_mending(unit: str) -> None:
    with pytest.raises(ValueError, match="no JSON object or array"):
        read_json('{"a": "b' + unit * (400_000 // len(unit)))


def test_broken_json_is_mended_up_to_a_length() -> None:
    def broken(characters: int) -> str:
        return json.dumps({str(n): n * n * 7_919 for n in range(characters // 18)})[:-1] + ",}"

    mended = cast("dict[str, int]", read_json(broken(MAX_REPAIRED_CHARACTERS - 5_000)))
    assert mended["77"] == 77 * 77 * 7_919
    with pytest.raises(ValueError, match="no JSON object or array"):
        read_json(broken(MAX_REPAIRED_CHARACTERS * 2))


@given(st.text(st.characters(), max_size=30))
def test_scrubbed_text_can_be_written_and_the_rest_is_untouched(text: str) -> None:
    scrubbed = scrub(text)
    scrubbed.encode()
    assert len(scrubbed) == len(text)
    assert all(new in {old, "\ufffd"} for old, new in zip(text, scrubbed, strict=True))
    assert scrub(scrubbed) == scrubbed


def test_an_escaped_lone_surrogate_is_read_as_the_replacement_character() -> None:
    assert read_json('{"a": "x\\ud800y"}') == {"a": "x\ufffdy"}
    assert read_json('{"a": "x\ud800y"}') == {"a": "x\ufffdy"}
    assert read_json('{"a": "x\\ud800y",}') == {"a": "x\ufffdy"}
    assert read_json('{"a": [NaN, "\\ud800\\udc00"]}') == {"a": [None, "\U00010000"]}


ENDS = st.text(st.characters() | st.sampled_from("\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\ud800"), max_size=10)


@given(json_values(ENDS))
def test_any_json_is_written_on_one_line_and_read_again(value: JsonValue) -> None:
    line = write_json(value)
    # By Python's reading, which knows the most ends of a line.
    assert len(line.decode().splitlines()) == 1
    assert orjson.loads(line) == json.loads(scrub(json.dumps(value, ensure_ascii=False)))


NUMBERS = st.integers() | st.floats() | st.sampled_from((2**63, -(2**63) - 1, 2**64, 10**308, 10**309, -(10**400)))


@given(
    st.recursive(NUMBERS | ENDS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ENDS, inner, max_size=4))
)
@example([2**64, "\ud800", math.nan])
def test_what_has_been_read_again_is_written_as_it_was(value: Any) -> None:
    line = write_json(value)
    assert write_json(orjson.loads(line)) == line


def test_integers_beyond_64_bits_are_the_floats_that_readers_take_them_for() -> None:
    line = write_json({"most": 2**64 - 1, "more": [2**64, -(2**63) - 1, 10**5_000], "and": ["\ud800", math.inf]})
    again = {"most": 2**64 - 1, "more": [float(2**64), -float(2**63), None], "and": ["\ufffd", None]}
    assert orjson.loads(line) == json.loads(line) == again


def test_what_is_not_json_cannot_be_written() -> None:
    for value in (object(), {"a": {1, 2}}, "\ud800" and [object(), "\ud800"]):
        with pytest.raises(TypeError):
            write_json(value)
    assert (
        write_json(["\ud800", {1}], default=lambda value: sorted(cast("set[int]", value))) == '["\ufffd",[1]]'.encode()
    )


@given(json_values(st.text(max_size=3)))
def test_depth_counts_levels(value: Any) -> None:
    def by_recursion(item: Any) -> int:
        if isinstance(item, dict):
            item = list(cast("dict[str, Any]", item).values())
        if not isinstance(item, list):
            return 0
        return 1 + max(map(by_recursion, cast("list[Any]", item)), default=0)

    assert depth(value) == by_recursion(value)
    assert depth(value, limit=1) == min(by_recursion(value), 1)
