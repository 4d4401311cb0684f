"""Exit codes of the process, and the message for an error."""

import errno
import shutil
import tempfile
from enum import IntEnum
from pathlib import Path
from traceback import format_exception

from refinesynth.errors import BackendError, RefinesynthError, RuleFailed, StorageError, TrainingError
from refinesynth.text.formatting import printable


class ExitCode(IntEnum):
    """Exit codes of `refinesynth`; also in docs/running.md."""

    OK = 0
    """The command succeeded."""
    INCOMPLETE = 1
    """The result is incomplete or a check failed: fewer trajectories than `n`, unreadable records, failed evaluation
    instances, a backend that failed permanently, a user's rule that raised, a training that could not continue."""
    WRONG_INPUT = 2
    """An option, a file, a rule or a backend name cannot be used; nothing was done."""
    STORAGE = 3
    """Reading or writing a file failed (disk full, no permission, a damaged or newer journal), or a process of Ray
    died; nothing finished is lost."""
    INTERNAL = 70
    """A fault of refinesynth itself (EX_SOFTWARE)."""
    HANGUP = 129
    """The terminal was closed (128 + SIGHUP)."""
    INTERRUPTED = 130
    """Ctrl-C (128 + SIGINT)."""
    BROKEN_PIPE = 141
    """The reader of standard output closed the pipe (128 + SIGPIPE)."""
    TERMINATED = 143
    """128 + SIGTERM."""


_MIN_FREE_BYTES = 1024 * 1024
"""Free bytes below which a disk counts as full."""
_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG})
"""Error numbers of disk problems, as opposed to unusable input."""


def describe(error: Exception, *, debug_hint: str) -> tuple[str, ExitCode]:
    """The message for the user, printable, and the exit code; `debug_hint` is added for internal errors."""
    if isinstance(error, RefinesynthError):
        # Notes describe further problems, such as a full disk.
        text = "\n".join([str(error), *getattr(error, "__notes__", ())])
        return printable(text), code_of(error)
    if isinstance(error, OSError) and error.errno is not None:
        prefix = f"{error.filename}: " if error.filename is not None else _full_disk_prefix(error)
        number = errno.errorcode.get(error.errno, str(error.errno))
        return printable(f"{prefix}{error.strerror} ({number})"), ExitCode.STORAGE
    summary = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return _redacted(f"this should not have happened: {summary}\n{debug_hint}".rstrip()), ExitCode.INTERNAL


def _full_disk_prefix(error: OSError) -> str:
    """Full folders among the working and the temporary one, as a prefix: a failed write does not name its file."""
    full_folders = [
        folder
        for folder in dict.fromkeys((str(Path.cwd()), tempfile.gettempdir()))
        if error.errno in _DISK_ERRORS and shutil.disk_usage(folder).free < _MIN_FREE_BYTES
    ]
    return f"{', '.join(full_folders)}: " if full_folders else ""


def traceback_text(error: Exception) -> str:
    """The traceback of an error, printable and without keys."""
    return _redacted("".join(format_exception(error)).rstrip())


def _redacted(text: str) -> str:
    from refinesynth.text.formatting import redact

    return printable(redact(text))


def code_of(error: RefinesynthError) -> ExitCode:
    if isinstance(error, BackendError | RuleFailed):
        return ExitCode.INCOMPLETE
    if isinstance(error, StorageError):
        return ExitCode.STORAGE
    cause = error.__cause__
    if isinstance(cause, OSError) and cause.errno in _DISK_ERRORS:
        return ExitCode.STORAGE
    return ExitCode.INCOMPLETE if isinstance(error, TrainingError) else ExitCode.WRONG_INPUT
