"""Records in files, as they stand there: lines of bounded length, compressed or not, and documents of JSON."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from zstandard import ZstdError

from refinesynth.errors import InputError
from refinesynth.files.compressed import open_binary
from refinesynth.files.lines import bounded_lines, read_document
from refinesynth.files.regular import irregular
from refinesynth.text.jsontext import load_json, write_json
from refinesynth.train.data.files import COMPRESSIONS, MOST_BYTES


class Raw(NamedTuple):
    """A record that has not been looked into."""

    where: str
    """File and line, for messages."""
    line: bytes
    """Empty where it is too long."""

    def parsed(self) -> object:
        """The record.

        Raises:
            InputError: It is no JSON, or too long.
        """
        if not self.line:
            raise InputError(f"{self.where}: it is longer than {MOST_BYTES:,} bytes")
        try:
            return load_json(self.line)
        except ValueError as error:
            raise InputError(f"{self.where}: this is no JSON: {error}") from error


def records(source: Path) -> Iterator[Raw]:
    """Those of a file, lazily: one a line, or of a `.json` file the document, or each of the list that it is. Of a
    folder those of its `.json` files, by name.

    Raises:
        InputError: It is not there, or cannot be read on.
    """
    files = [source]
    if source.is_dir():
        files = sorted(found for found in source.glob("*.json") if found.is_file())
        if not files or (source / "config.json").exists():
            raise InputError(f"{str(source)!r} is no folder of documents (*.json); give a file, or such a folder")
    elif not source.exists():
        raise InputError(f"there is no file {str(source)!r}")
    elif kind := irregular(source, follow=True):
        raise InputError(f"{str(source)!r} is {kind}; it is read twice, so give a file")
    for path in files:
        try:
            with open_binary(path, COMPRESSIONS.get(path.suffix)) as file:
                whole = path.suffixes[-2:-1] if path.suffix in COMPRESSIONS else path.suffixes[-1:]
                yield from _document(file, path) if whole == [".json"] else _lines(file, path)
        except (OSError, EOFError, UnicodeError, zlib.error, ZstdError) as error:
            raise InputError(f"{str(path)!r} cannot be read: {error}") from error


def _lines(file: BinaryIO, path: Path) -> Iterator[Raw]:
    for number, line in bounded_lines(file, MOST_BYTES):
        if line.strip():
            yield Raw(f"{path}:{number}", line if len(line) <= MOST_BYTES else b"")


def _document(file: BinaryIO, path: Path) -> Iterator[Raw]:
    whole = read_document(file, path)
    try:
        found: object = load_json(whole)
    except ValueError:
        yield Raw(str(path), whole[:MOST_BYTES])
        return
    if not isinstance(found, list):
        yield Raw(str(path), write_json(found, exact=True))
        return
    for number, item in enumerate(cast("list[object]", found), start=1):
        yield Raw(f"{path}: item {number}", write_json(item, exact=True))
