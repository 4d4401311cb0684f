"""Personas written to files of every form."""

import csv
import gzip
import io
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import orjson

from refinesynth.personas import Personas, open_personas
from refinesynth.personas.source import PersonaSource


def as_jsonl(texts: Iterable[str]) -> bytes:
    return b"".join(orjson.dumps({"persona": text}) + b"\n" for text in texts)


def as_csv(texts: Iterable[str], delimiter: str = ",") -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerows([["id", "text"], *([number, text] for number, text in enumerate(texts))])
    return out.getvalue().encode()


def as_lines(texts: Iterable[str]) -> bytes:
    return b"".join(text.encode() + b"\n" for text in texts)


FORMATS: dict[str, Callable[[Iterable[str]], bytes]] = {
    ".jsonl": as_jsonl,
    ".ndjson": as_jsonl,
    ".csv": as_csv,
    ".tsv": partial(as_csv, delimiter="\t"),
    ".txt": as_lines,
}

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress}


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


async def read(source: PersonaSource | None) -> tuple[list[str], Personas]:
    """Every persona's text; the indices are checked to be without gaps."""
    async with open_personas(source) as personas:
        texts: list[str] = []
        async for index, persona in personas:
            assert index == len(texts)
            texts.append(persona.text)
        return texts, personas
