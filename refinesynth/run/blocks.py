"""Blocks of a run that workers play: each has a journal in a folder of its own, which outlives a worker that is killed."""

import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from refinesynth.errors import RunFolderError, StorageError
from refinesynth.files.output_folder import FolderLock
from refinesynth.journal import JournalReader, Paid
from refinesynth.run.folder import JOURNAL

_ROWS = 500
"""Completions that are read at a time."""


def blocks_of(run: Path) -> Path:
    """Folder of the blocks' folders in a run's folder; there only while blocks are played, or were killed."""
    return run / "blocks"


async def collect(parent: Path, keep: Callable[[Sequence[Paid]], Awaitable[None]]) -> None:
    """Have the completions of all blocks below `parent` kept that died, and remove their folders.

    Raises:
        StorageError: They cannot be kept.
    """
    for folder in _folders(parent):
        # In use by a block that lives, or gone by now.
        with suppress(RunFolderError), ExitStack() as until:
            try:
                until.enter_context(FolderLock(folder))
                journal = until.enter_context(JournalReader.read(folder / JOURNAL))
            except StorageError:
                continue
            row = 0
            while found := journal.paid_after(row, most=_ROWS):
                row = found[-1][0]
                await keep([paid for _, paid in found])
            shutil.rmtree(folder, ignore_errors=True)


def _folders(parent: Path) -> list[Path]:
    return sorted(parent.glob("block-*"))
