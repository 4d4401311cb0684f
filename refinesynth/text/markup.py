"""Untrusted text in Markdown, where it is never heading, link, image or HTML, and in HTML tables of notebooks."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from refinesynth.text.json_reader import scrub
from refinesynth.text.printable import printable

_BACKTICKS: Final = re.compile("`+")
_PUNCTUATION: Final = re.compile(r"([\\`*_{}\[\]<>#|~&!$@:^]|(?<=www)\.)", re.IGNORECASE)
"""Characters with a meaning inside a line, the beginning of a bare address included; the text never begins one."""


def plain_text(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return _PUNCTUATION.sub(r"\\\1", _one_line(text))


def code(text: str) -> str:
    """Return a code span; its fence is longer than any run of backticks inside."""
    line = _one_line(text)
    longest = max((len(run) for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def code_in_table(text: object) -> str:
    """Return a code span for a table's cell, which a `|` must not end."""
    return code(str(text).replace("|", "\\|"))


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in scrub(text)).split())


# A notebook looks for formulas in HTML as well, but in no `pre`.
_CELL = "<td style='text-align:left'><pre style='margin:0;white-space:pre-wrap'>{}</pre></td>"
_HEAD = "<th style='text-align:left;vertical-align:top'>{}</th>"


def html_table(rows: Iterable[Sequence[str]]) -> str:
    """Return a table with a row for each of `rows`, whose first text is its head.

    For any texts, it has no other elements than its own, and no invisible character.
    """
    written = ""
    for texts in rows:
        head, *cells = (escape(printable(text)) for text in texts)
        written += f"<tr>{_HEAD.format(head)}{''.join(map(_CELL.format, cells))}</tr>"
    return f"<table>{written}</table>"
