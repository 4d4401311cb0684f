"""Nothing that a terminal obeys gets through."""

import io

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text
from terminal_text import is_inert

from refinesynth.cli.terminal import SafeConsole, notes, output, styled
from refinesynth.text.formatting import one_line, printable

anything = st.text(st.characters(exclude_categories=()))
"""Any code points, lone surrogates included."""

nasty = st.text(
    st.sampled_from("\x1b[]31m\x07\x9b\x9d\u202e\u2066\u200b\ufeff\ud800\r\n\t\x00\x7f\u2028 aé漢:smile:🦊")
)
"""Dense in what a terminal would obey, and in what rich would interpret."""


@given(anything | nasty)
def test_nothing_is_left_that_a_terminal_obeys(text: str) -> None:
    assert is_inert(printable(text))
    assert is_inert(one_line(text))
    assert "\n" not in one_line(text)


@given(anything | nasty)
def test_inert_text_stays_as_it_is(text: str) -> None:
    if is_inert(text):
        assert printable(text) == text


@given(st.dictionaries(st.text(), st.text() | st.integers(-(2**53), 2**53) | st.none()))
def test_json_keeps_its_value(value: dict[str, str | int | None]) -> None:
    assert orjson.loads(printable(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())) == value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\u001b[2J"),
        ("evil\u202etxt.exe", "evil\\u202etxt.exe"),
        ("a\ud800b", "a\\ud800b"),
        ("\U000e0041", "\\udb40\\udc41"),
        ("line\r\nline", "line\nline"),
        ("over\rwritten", "over\\u000dwritten"),
        (
            "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 👩\u200d🌾",
            "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 👩\u200d🌾",
        ),
        ("a\u00a0b\u3000c", "a\u00a0b\u3000c"),
    ],
)
def test_what_is_shown_instead(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_long_line_is_cut_to_its_limit() -> None:
    assert one_line("abcdef", size=4) == "abc…"
    assert one_line("abcd", size=4) == "abcd"


@given(nasty)
def test_no_renderable_brings_a_control_character_to_the_terminal(text: str) -> None:
    written = io.StringIO()
    console = SafeConsole(file=written, force_terminal=True, color_system=None, markup=False, emoji=False, width=40)
    table = Table(title=text)
    table.add_column(text)
    table.add_row(Text(text))
    console.print(text)
    console.print(table)
    console.print(styled(text))
    assert is_inert(written.getvalue())


def test_markup_and_emoji_names_are_not_interpreted() -> None:
    written = io.StringIO()
    console = SafeConsole(file=written, force_terminal=True, markup=False, emoji=False, highlight=False)
    console.print("[red]:smile:[/red] [link=https://example.org]x[/link]")
    assert written.getvalue() == "[red]:smile:[/red] [link=https://example.org]x[/link]\n"


@pytest.mark.parametrize(("columns", "width"), [("0", 80), ("1", 20), ("20", 20), ("33", 33), ("-5", 80), ("wide", 80)])
def test_there_are_always_columns_to_show_something_on(
    columns: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert (output().width, notes().width) == (width, width)
