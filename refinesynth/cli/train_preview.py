"""What the model will see of a conversation, its tokens coloured by what they are to the loss.

What a colour says, a sign says too: `+` before a line that is learned, `✗` before one of a mistake, which is kept out
of the loss, `|` before context; a line of several kinds is broken where the kind changes.
"""

from collections.abc import Iterator
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from refinesynth.cli.terminal import styled
from refinesynth.text.figures import counted
from refinesynth.text.printable import one_line, printable
from refinesynth.train.preview import Preview
from refinesynth.train.tokens import Label

_SIGNS: Final = {
    Label.CONTEXT: ("|", "dim"),
    Label.TRAINED: ("+", "green"),
    Label.MISTAKE: ("✗", "red"),
}
_CONTINUED: Final = "⏎"
"""A line feed that is itself a token of the piece before it."""

LEGEND: Final = "+ trained   | context   ✗ mistake: read, and kept out of the loss"


def laid_out(preview: Preview) -> RenderableType:
    """One example: its counts, then its text, piece by piece."""
    head = (
        f"{one_line(preview.id)}: {counted(preview.tokens, 'token')}, {preview.trained:,} trained ({preview.trained_share:.0%}), "
        f"{preview.mistakes:,} in mistakes"
    )
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, line in _lines(preview):
        sign, style = _SIGNS[label]
        table.add_row(Text(sign, style=style), styled(line, style))
    return Group(styled(head, "bold"), table)


def _lines(preview: Preview) -> Iterator[tuple[Label, str]]:
    """Each line of each piece; a line feed is shown where a piece ends with one, or begins with it."""
    for segment in preview.segments:
        pieces = printable(segment.text).split("\n")
        for at, piece in enumerate(pieces):
            last = at == len(pieces) - 1
            if piece or not last:
                yield segment.label, piece if last else f"{piece}{_CONTINUED}"
