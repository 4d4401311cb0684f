"""Blocks of a run on Ray: each has a journal in a folder of its own, which outlives a killed worker."""

import logging
import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from refinesynth.errors import RunFolderError, StorageError
from refinesynth.files.output_folder import FolderLock
from refinesynth.journal import JournalReader, Paid
from refinesynth.run.run_folder import JOURNAL

_LOG = logging.getLogger("refinesynth.run")

_ROWS = 500
"""Completions that are read at a time."""


def blocks_of(run: Path) -> Path:
    """Return the parent of the blocks' folders; it exists while blocks play, and after blocks were killed."""
    return run / "blocks"


async def collect(parent: Path, keep: Callable[[Sequence[Paid]], Awaitable[None]], *, at_start: bool = False) -> None:
    """Keep the completions of all ended blocks below `parent`, and remove their folders.

    At the start of a run, also the folders of blocks that died before they began.
    """
    for folder in _folders(parent, at_start=at_start):
        with ExitStack() as until:
            try:
                until.enter_context(FolderLock(folder))
            except RunFolderError:  # in use by a live block
                continue
            except StorageError:
                if folder.exists():
                    raise
                continue  # collected meanwhile, after the death of another block
            if (folder / JOURNAL).exists():
                try:
                    journal = until.enter_context(JournalReader.read(folder / JOURNAL))
                except StorageError as error:
                    text = (
                        f"the completions of a block cannot be read, and are requested again: {error}. Put a copy of it back, "
                        f"or remove {str(folder)!r}"
                    )
                    _LOG.warning(
                        "%s", text, extra={"facts": {"event": "block_lost", "path": str(folder), "text": text}}
                    )
                    continue
                row = 0
                while found := journal.paid_after(row, most=_ROWS):
                    row = found[-1][0]
                    await keep([paid for _, paid in found])
            shutil.rmtree(folder, ignore_errors=True)


def _folders(parent: Path, *, at_start: bool) -> list[Path]:
    return sorted((*parent.glob("block-*"), *(parent.glob("new-*") if at_start else ())))
