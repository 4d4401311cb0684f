"""Keeps two trainings off one output folder."""

import errno
import os
import weakref
from pathlib import Path
from typing import Final

from refinesynth.errors import InputError, StorageError

_TAKEN: Final = frozenset({errno.EWOULDBLOCK, errno.EACCES})


class FolderLock:
    """A folder for one training alone, until `release`, or until its process is dead, however it died.

    The folder itself is locked, so there is no file of it, and a folder that is renamed stays locked. Not promised where
    the operating system or a network file system has no such locks: there, nothing is locked and nothing is refused.
    """

    def __init__(self, folder: Path) -> None:
        """Lock `folder`, and make it where it is missing.

        Raises:
            InputError: Another training has it.
            StorageError: It cannot be made.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{str(folder)!r} cannot be written: {error.strerror}") from error
        descriptor = _locked(folder)
        # Also when whoever holds it forgets to give it back.
        self._give_back = None if descriptor is None else weakref.finalize(self, os.close, descriptor)

    def release(self) -> None:
        """Let others have the folder; a second time does nothing."""
        if self._give_back is not None:
            self._give_back()


def _locked(folder: Path) -> int | None:
    """The descriptor that holds the lock; None where there are no such locks."""
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in _TAKEN:
            raise InputError(
                f"the output {str(folder)!r} is in use by another training. Wait until it ends, end it, or give another folder with -o"
            ) from None
        return None
    return descriptor
