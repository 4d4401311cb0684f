"""JSONL files: complete lines, read lazily; a half-written tail is cut before more is written."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from refinesynth.errors import RunFolderError, StorageError
from refinesynth.files.atomic_write import open_to_append

_BLOCK = 1 << 16
"""Bytes per read in the search for the end of the last line."""


class LineWriter:
    """Appends whole lines to a file; each is handed to the operating system before `write` returns.

    Not promised: that a line survives a power cut, or is whole if the process dies or the disk fills up during the
    write. The journal says how much of a file counts; `cut` removes the rest.
    """

    def __init__(self, path: Path) -> None:
        """Open or create `path` for appending. Raises StorageError: the file cannot be opened."""
        self.path = path
        self._failure: OSError | None = None
        try:
            self._file: BinaryIO = open_to_append(path)
        except OSError as error:
            raise cannot("open", path, error) from error
        self.end = self._file.tell()
        """Size of the file, in bytes."""

    def write(self, *lines: bytes) -> None:
        """Append lines, given without their newlines.

        Raises:
            StorageError: The file cannot be written; nothing is written after that.
        """
        if not lines:
            return
        data = b"".join(line + b"\n" for line in lines)
        try:
            if self._failure is not None:
                # Part of a line may be there, and the rest of it in the buffer: what came next would not begin where
                # `end` says.
                raise self._failure
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            self._failure = error
            raise cannot("write", self.path, error) from error
        self.end += len(data)

    def close(self) -> None:
        """Close the file, without another try to write what could not be written."""
        with suppress(OSError):
            self._file.close()


def read_lines(path: Path, *, end: int | None = None) -> Iterator[bytes]:
    """Yield the complete lines of a file, without newlines; none if the file is missing.

    A last line without a newline is half-written and left out. With `end`, only lines before that byte.

    Raises:
        RunFolderError: The complete lines do not reach `end`.
    """
    at = 0
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n") or (end is not None and at + len(line) > end):
                break
            at += len(line)
            yield line[:-1]
    if end is not None and at < end:
        raise lines_missing(path, end)


def lines_missing(path: Path, end: int) -> RunFolderError:
    """Return the error for a file whose complete lines do not reach `end`, which the journal counts."""
    return RunFolderError(
        f"{str(path)!r} has {size_of(path):,} bytes, and the run's journal counts {end:,} in whole lines. The command "
        f"that made the run, given once more, makes what is missing again from its journal for free"
    )


def size_of(path: Path) -> int:
    """Return the bytes up to the last that is not zero: a power cut may leave zeros in the place of the last lines."""
    for start, block in _backwards(path):
        if kept := block.rstrip(b"\0"):
            return start + len(kept)
    return 0


def ends_line(path: Path, end: int) -> bool:
    """Return True if a line ends before byte `end`, as at the beginning of a file."""
    return end == 0 or _behind_newline(path, end) == end


def last_line_end(path: Path) -> int:
    """Return where the last complete line of a file ends, in bytes."""
    return _behind_newline(path)


def last_line(path: Path) -> bytes | None:
    """Return the last complete line of a file, without its newline; None if there is none."""
    end = last_line_end(path)
    if not end:
        return None
    start = _behind_newline(path, end - 1)
    with path.open("rb") as file:
        file.seek(start)
        return file.read(end - 1 - start)


def _behind_newline(path: Path, end: int | None = None) -> int:
    """Return the byte behind the last newline before `end`; 0 if there is none."""
    for start, block in _backwards(path, end):
        if (newline := block.rfind(b"\n")) >= 0:
            return start + newline + 1
    return 0


def _backwards(path: Path, end: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield the blocks of a file before `end` from the last to the first, each with its place; none if it is missing."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        start = file.seek(0, 2) if end is None else end
        while start:
            before, start = start, max(0, start - _BLOCK)
            file.seek(start)
            yield start, file.read(before - start)


def cut(path: Path, *, end: int) -> int:
    """Cut a file at byte `end` if it is longer; return the number of bytes cut.

    Raises:
        StorageError: It cannot be written.
    """
    size = path.stat().st_size if path.exists() else 0
    if size <= end:
        return 0
    try:
        with open_to_append(path) as file:
            file.truncate(end)
    except OSError as error:
        raise cannot("write", path, error) from error
    return size - end


def cannot(do: str, path: Path, error: OSError) -> StorageError:
    """Return the error for a file or folder that the system refuses."""
    return StorageError(
        f"cannot {do} {str(path)!r}: {error.strerror or error}. Everything finished so far is kept; make room or give "
        f"permission, then repeat the command, which goes on where it ended"
    )
