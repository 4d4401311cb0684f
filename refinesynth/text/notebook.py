"""Values as notebooks show them: tables of text that others wrote, and that stays text."""

from collections.abc import Iterable, Sequence
from html import escape

from refinesynth.text.printable import printable

# A notebook looks for formulas in HTML as well, but in no `pre`.
_CELL = "<td style='text-align:left'><pre style='margin:0;white-space:pre-wrap'>{}</pre></td>"
_HEAD = "<th style='text-align:left;vertical-align:top'>{}</th>"


def html_table(rows: Iterable[Sequence[str]]) -> str:
    """A row for each of `rows`, the first of its texts being its head.

    For any texts, the table has no other elements than its own, and no character that a reader cannot see.
    """
    return f"<table>{''.join(map(_row, rows))}</table>"


def _row(texts: Sequence[str]) -> str:
    head, *cells = (escape(printable(text)) for text in texts)
    return f"<tr>{_HEAD.format(head)}{''.join(map(_CELL.format, cells))}</tr>"
