"""Journal of a run: every paid completion and every ended episode, committed before it counts."""

from refinesynth.journal.commits import Journal
from refinesynth.journal.journal_values import Committed, Entry, EpisodeRecord, Outstanding, PaidCompletion, SpentRow
from refinesynth.journal.reader import BATCHES, JournalReader

__all__ = [
    "BATCHES",
    "Committed",
    "Entry",
    "EpisodeRecord",
    "Journal",
    "JournalReader",
    "Outstanding",
    "PaidCompletion",
    "SpentRow",
]
