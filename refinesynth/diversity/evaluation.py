"""The texts of an evaluation set: every text in a file, wherever it stands. Files are untrusted."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import orjson
from pydantic import JsonValue

from refinesynth.compressed import open_binary
from refinesynth.errors import InputError

MAX_BYTES = 1 << 30
"""Most bytes of a file that are read, unpacked."""

MAX_DOCUMENT = 1 << 26
"""Longest JSON document that is read as such, in bytes: a file that is no JSONL, or a line of one. Its values take some twenty
times as much memory while it is read. Of anything longer, each piece of so many bytes is a plain text."""

_COMPRESSIONS = (".gz", ".zst")
_LINES = (".jsonl", ".ndjson")
_SEPARATORS = b"\n\r\t ,"


class Text(NamedTuple):
    """A text of an evaluation set."""

    entry: int
    """Which line of the file it is in, from 1; of a JSON list, which item."""
    text: str


def texts_of(path: Path) -> Iterator[Text]:
    """Every text of a file, lazily: JSONL (`.jsonl`, `.ndjson`), one JSON document, or plain text; also `.gz` and `.zst`.

    Of JSON, all texts in it, keys left out. What is no JSON counts as plain text, line by line.

    Raises:
        InputError: There is no such file, it cannot be read, or it is longer than `MAX_BYTES`.
    """
    from zstandard import ZstdError

    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in _COMPRESSIONS else None
    by_line = bool(suffixes) and suffixes[-1] in _LINES
    try:
        with open_binary(path, compression) as file:
            bounded = _Bounded(file, path)
            yield from _of_lines(bounded) if by_line else _of_document(bounded)
    except (OSError, EOFError, zlib.error, ZstdError, ValueError) as error:
        raise InputError(f"the evaluation set {str(path)!r} cannot be read: {error}") from error


class _Bounded:
    """Reads a file up to `MAX_BYTES`; a small file may unpack to any size."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._left = MAX_BYTES

    def line(self) -> bytes:
        """The next line, or `MAX_DOCUMENT` bytes of it; empty at the end."""
        return self._counted(self._file.readline(MAX_DOCUMENT + 1))

    def piece(self) -> bytes:
        """The next `MAX_DOCUMENT` bytes, or what is left."""
        return self._counted(self._file.read(MAX_DOCUMENT + 1))

    def _counted(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise InputError(
                f"the evaluation set {str(self._path)!r} holds more than {MAX_BYTES:,} bytes; give it in several files"
            )
        return data


def _of_lines(file: _Bounded) -> Iterator[Text]:
    number = 0
    while line := file.line():
        number += 1
        for text in _texts_in(line):
            yield Text(number, text)


def _of_document(file: _Bounded) -> Iterator[Text]:
    first = file.piece()
    document = _parsed(first) if len(first) <= MAX_DOCUMENT else None
    if isinstance(document, list):
        for number, item in enumerate(document, start=1):
            for text in _texts(item):
                yield Text(number, text)
    elif document is not None:
        for text in _texts(document):
            yield Text(1, text)
    else:
        yield from _plain(file, first)


def _plain(file: _Bounded, piece: bytes) -> Iterator[Text]:
    """Lines of text, or of JSON objects in a file that does not say so by its name."""
    number, rest = 1, b""
    while piece:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            for text in _texts_in(line):
                yield Text(number, text)
            number += 1
        if len(rest) > MAX_DOCUMENT:
            yield Text(number, _decoded(rest))
            rest = b""
        piece = file.piece()
    for text in _texts_in(rest):
        yield Text(number, text)


def _texts_in(line: bytes) -> Iterator[str]:
    value = _parsed(line) if len(line) <= MAX_DOCUMENT else None
    if not line.strip():
        return
    if value is None:
        yield _decoded(line)
    else:
        yield from _texts(value)


def _parsed(data: bytes) -> JsonValue:
    """The JSON object or list that this is; None if it is none."""
    data = data.removeprefix(b"\xef\xbb\xbf").strip(_SEPARATORS)
    if data[:1] not in (b"{", b"["):
        return None
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def _texts(value: JsonValue) -> Iterator[str]:
    """All texts in a JSON value, in their order; of a list of texts, such as a walkthrough, also all of them in a row."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack.extend(reversed(item.values()))
        elif isinstance(item, list):
            stack.extend(reversed(item))
            if in_a_row := [text for text in item if isinstance(text, str)]:
                yield "\n".join(in_a_row)


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")
