"""The journal of a run: every completion that was paid for and every episode that has ended, committed before it
counts.
"""

from refinesynth.journal.entry import Entry
from refinesynth.journal.figures import Committed, Outstanding, SpentRow
from refinesynth.journal.journal import Journal
from refinesynth.journal.paid import Paid
from refinesynth.journal.reader import JournalReader
from refinesynth.journal.recorded import Recorded

__all__ = [
    "Committed",
    "Entry",
    "Journal",
    "JournalReader",
    "Outstanding",
    "Paid",
    "Recorded",
    "SpentRow",
]
