"""All texts in the files of an evaluation set. Files are untrusted."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import orjson
from pydantic import JsonValue

from refinesynth.errors import InputError
from refinesynth.files.atomic_write import COMPRESSED
from refinesynth.files.compressed import open_binary

MAX_BYTES = 1 << 30
"""Most bytes of an unpacked file."""

MAX_DOCUMENT = 1 << 26
"""Longest JSON document or line, in bytes (its values take some 20 times the memory). Longer lines are split into plain texts."""

_LINES = (".jsonl", ".ndjson")
_SEPARATORS = b"\n\r\t ,"


class Text(NamedTuple):
    entry: int
    """Line of the file, or item of a JSON list, from 1."""
    text: str


def texts_of(path: Path) -> Iterator[Text]:
    """Yield every text of a file: JSONL (`.jsonl`, `.ndjson`), one JSON document, or plain text; also `.gz` and `.zst`.

    Of JSON, all texts except keys. What is not JSON counts as plain text, line by line.

    Raises:
        InputError: The file cannot be read, or is longer than `MAX_BYTES`.
    """
    from zstandard import ZstdError

    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSED else None
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
    """The JSON object or list in `data`; None if there is none, or it is longer than `MAX_DOCUMENT`."""
    data = data.removeprefix(b"\xef\xbb\xbf").strip(_SEPARATORS) if len(data) <= MAX_DOCUMENT else b""
    if data[:1] not in (b"{", b"["):
        return None
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def _texts(value: JsonValue) -> Iterator[str]:
    """All texts in a JSON value in order, and each list of texts (such as a walkthrough) joined."""
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
