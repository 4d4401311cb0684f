"""HTML tables of untrusted text, for notebooks."""

from collections.abc import Iterable, Sequence
from html import escape

from refinesynth.text.printable import printable

# A notebook looks for formulas in HTML as well, but in no `pre`.
_CELL = "<td style='text-align:left'><pre style='margin:0;white-space:pre-wrap'>{}</pre></td>"
_HEAD = "<th style='text-align:left;vertical-align:top'>{}</th>"


def html_table(rows: Iterable[Sequence[str]]) -> str:
    """Return a table with a row for each of `rows`, whose first text is its head.

    For any texts, it has no other elements than its own, and no invisible character.
    """
    return f"<table>{''.join(map(_row, rows))}</table>"


def _row(texts: Sequence[str]) -> str:
    head, *cells = (escape(printable(text)) for text in texts)
    return f"<tr>{_HEAD.format(head)}{''.join(map(_CELL.format, cells))}</tr>"
