"""JSONL files: complete lines only, read lazily, and a half-written tail cut before more is written."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from refinesynth.errors import RunFolderError

_BLOCK = 1 << 16
"""Bytes read at a time when looking for the last line's end."""


class LineWriter:
    """Appends whole lines to a file; each is handed to the operating system before `write` returns.

    Not promised: that a line survives a power cut, or is written once if the process dies in the middle of it. Reading and
    `cut_tail` cope with what is left then.
    """

    def __init__(self, path: Path) -> None:
        """Open `path` for appending; it is created if it is missing.

        Raises:
            RunFolderError: The file cannot be opened.
        """
        self.path = path
        try:
            self._file: BinaryIO = path.open("ab")
        except OSError as error:
            raise RunFolderError(f"cannot open {str(path)!r} for writing: {error.strerror or error}") from error
        self.end = self._file.tell()
        """Size of the file, in bytes."""

    def write(self, *lines: bytes) -> None:
        """Append lines, given without their newlines.

        Raises:
            RunFolderError: The disk is full, or the file cannot be written for another reason.
        """
        if not lines:
            return
        data = b"".join(line + b"\n" for line in lines)
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise RunFolderError(
                f"cannot write {str(self.path)!r}: {error.strerror or error}; make room and resume the run"
            ) from error
        self.end += len(data)

    def close(self) -> None:
        """Close the file. What could not be written before is not written now either."""
        with suppress(OSError):
            self._file.close()


def read_lines(path: Path, *, end: int | None = None) -> Iterator[bytes]:
    """The complete lines of a file, without their newlines, lazily; none if the file is missing.

    A last line without a newline is half-written and left out. With `end`, only lines that lie before that byte.

    Raises:
        RunFolderError: The complete lines do not reach to `end`: something else has changed the file.
    """
    at = 0
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n") or (end is not None and at + len(line) > end):
                break
            at += len(line)
            yield line[:-1]
    if end is not None and at < end:
        raise _changed(path, end)


def cut_tail(path: Path, *, end: int | None = None) -> int:
    """Cut a file after its last complete line, or at byte `end`; returns how many bytes went.

    Raises:
        RunFolderError: The file is shorter than `end`, or no line ends there: something else has changed it.
    """
    size = path.stat().st_size if path.exists() else 0
    if end is None:
        end = _last_line_end(path, size)
    elif size < end or not _ends_line(path, end):
        raise _changed(path, end)
    if end < size:
        os.truncate(path, end)
    return size - end


def _changed(path: Path, end: int) -> RunFolderError:
    size = path.stat().st_size if path.exists() else 0
    return RunFolderError(
        f"{str(path)!r} has {size:,} bytes, and a line was expected to end at byte {end:,}; it was changed after the "
        f"run wrote it. Put the original back, or start in a new folder"
    )


def _ends_line(path: Path, end: int) -> bool:
    if end == 0:
        return True
    with path.open("rb") as file:
        file.seek(end - 1)
        return file.read(1) == b"\n"


def _last_line_end(path: Path, size: int) -> int:
    if not size:
        return 0
    with path.open("rb") as file:
        while size:
            start = max(0, size - _BLOCK)
            file.seek(start)
            newline = file.read(size - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            size = start
    return 0
