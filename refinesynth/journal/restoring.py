"""Writes a journal anew from what was read of another one."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from refinesynth.journal.commits import Batch, Commits
from refinesynth.journal.connecting import connect_to_write
from refinesynth.journal.faults import in_plain_words
from refinesynth.journal.rows import committed_to_row, paid_to_row
from refinesynth.journal.values import Entry, Paid

Restore = Callable[[Sequence[Paid], Sequence[Entry], Mapping[str, bytes | None]], None]
"""Commits completions, episodes and notes, in one step. What is there already stays; episodes take the place of what
was there from the first of them on, so the same may come twice.
"""


@contextmanager
def restoring(path: Path) -> Generator[Restore]:
    """What writes to the journal at `path`, which is made if it is missing; for one process alone.

    Raises:
        StorageError: It cannot be made or written.
    """
    connection, _ = connect_to_write(path, lasting=False)
    commits = Commits(connection)

    def restore(paid: Sequence[Paid], entries: Sequence[Entry], notes: Mapping[str, bytes | None]) -> None:
        batch = Batch()
        batch.paid = [paid_to_row(one) for one in paid]
        batch.begun = [*dict.fromkeys((row[0], row[1]) for row in batch.paid)]
        batch.forget_from = entries[0].index if entries else None
        batch.committed = [committed_to_row(entry) for entry in entries]
        batch.notes = dict(notes)
        with in_plain_words(path):
            commits.commit(batch)

    try:
        yield restore
    finally:
        commits.close()
