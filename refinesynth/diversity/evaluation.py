"""The texts of an evaluation set: every text in a file, wherever it stands. Files are untrusted."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import orjson
from pydantic import JsonValue

from refinesynth.errors import InputError
from refinesynth.files.compressed import open_binary

MAX_BYTES = 1 << 30
"""Most bytes of a file that are read, unpacked."""

MAX_DOCUMENT = 1 << 26
"""Longest JSON document that is read as such, in bytes: a file that is no JSONL, or a line of one. Its values take some
twenty times as much memory while it is read. Of a longer line, each piece of so many bytes is a plain text."""

_COMPRESSIONS = (".gz", ".zst")
_LINES = (".jsonl", ".ndjson")
_SEPARATORS = b"\n\r\t ,"


class Text(NamedTuple):
    """A text of an evaluation set."""

    entry: int
    """Which line of the file it is in, from 1; of a JSON list, which item."""
    text: str


def texts_of(path: Path) -> Iterator[Text]:
    """Every text of a file, lazily: JSONL (`.jsonl`, `.ndjson`), one JSON document, or plain text; also `.gz` and
    `.zst`.

    Of JSON, all texts in it, keys left out. What is no JSON counts as plain text, line by line.

    Raises:
        InputError: There is no such file, it cannot be read, or it is longer than `MAX_BYTES`.
    """
    from zstandard import ZstdError

    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in _COMPRESSIONS else None
    document: JsonValue = None
    try:
        if not suffixes or suffixes[-1] not in _LINES:
            with open_binary(path, compression) as file:
                document = _parsed(file.read(MAX_DOCUMENT + 1))
        if document is not None:
            for number, item in enumerate(document if isinstance(document, list) else [document], start=1):
                for text in _texts(item):
                    yield Text(number, text)
            return
        with open_binary(path, compression) as file:
            yield from _of_lines(file, path)
    except (OSError, EOFError, zlib.error, ZstdError, ValueError) as error:
        raise InputError(f"the evaluation set {str(path)!r} cannot be read: {error}") from error


def _of_lines(file: BinaryIO, path: Path) -> Iterator[Text]:
    """A small file may unpack to any size, so what is read is counted."""
    read = number = 0
    while line := file.readline(MAX_DOCUMENT + 1):
        number += 1
        read += len(line)
        if read > MAX_BYTES:
            raise InputError(
                f"the evaluation set {str(path)!r} holds more than {MAX_BYTES:,} bytes; give it in several files"
            )
        if line.strip():
            value = _parsed(line)
            for text in _texts(line.decode("utf-8", "replace").rstrip("\r\n") if value is None else value):
                yield Text(number, text)


def _parsed(data: bytes) -> JsonValue:
    """The JSON object or list that this is; None if it is none, or longer than `MAX_DOCUMENT`."""
    data = data.removeprefix(b"\xef\xbb\xbf").strip(_SEPARATORS) if len(data) <= MAX_DOCUMENT else b""
    if data[:1] not in (b"{", b"["):
        return None
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def _texts(value: JsonValue) -> Iterator[str]:
    """All texts in a JSON value, in their order; of a list of texts, such as a walkthrough, also all of them in a
    row.
    """
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
