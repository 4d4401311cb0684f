"""Any file is personas or an error in words; a bad row is counted and costs no other row."""

import csv
import gzip
import io
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import orjson
import pytest
from fuzzing import damaged, thoroughly
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.errors import InputError
from refinesynth.personas import open_personas
from refinesynth.testing import texts
from refinesynth.trajectory import Persona

sentences = st.lists(texts(surrogates=False) | st.just("A sailor who mends nets"), max_size=6)


def as_jsonl(given: list[str]) -> bytes:
    return b"".join(orjson.dumps({"persona": text, "id": number}) + b"\n" for number, text in enumerate(given))


def as_csv(given: list[str]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerows([["id", "persona"], *enumerate(given)])
    return out.getvalue().encode()


def as_lines(given: list[str]) -> bytes:
    return "\n".join(given).encode()


FORMS = {".jsonl": as_jsonl, ".csv": as_csv, ".txt": as_lines}
PACKED = {"": bytes, ".gz": gzip.compress}


def read(content: bytes, suffix: str) -> list[str]:
    """The personas in a file with this content, or none where it is refused."""
    found: list[str] = []

    async def reading() -> None:
        async with open_personas(path) as personas:
            async for index, persona in personas:
                assert index == len(found)
                assert isinstance(persona, Persona)
                found.append(persona.text)

    with TemporaryDirectory() as folder:
        path = Path(folder) / f"personas{suffix}"
        path.write_bytes(content)
        try:
            anyio.run(reading)
        except InputError as error:
            said = str(error)
            assert str(path) in said or said.strip()
    return found


@pytest.mark.parametrize("suffix", FORMS)
@thoroughly
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(suffix: str, data: st.DataObject) -> None:
    content = data.draw(damaged(sentences.map(FORMS[suffix])))
    for text in read(content, suffix):
        assert text.strip()


@thoroughly
@given(data=st.data())
def test_a_damaged_archive_is_read_or_refused(data: st.DataObject) -> None:
    read(data.draw(damaged(sentences.map(as_jsonl).map(gzip.compress))), ".jsonl.gz")


@thoroughly
@given(st.binary(max_size=300), st.sampled_from([form + packing for form in FORMS for packing in PACKED]))
def test_any_bytes_are_read_or_refused(content: bytes, suffix: str) -> None:
    read(content, suffix)
