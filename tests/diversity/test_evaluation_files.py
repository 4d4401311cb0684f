"""Evaluation sets as files: every text in them is read, whatever they are, and nothing that they hold breaks
anything."""

import gzip
from contextlib import suppress
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from refinesynth.diversity import Contamination, contamination
from refinesynth.diversity.contamination import texts_of
from refinesynth.errors import InputError

FEW = settings(max_examples=max(5, settings().max_examples // 2))
TEXTS = st.text(max_size=8)
JSON = (
    TEXTS
    | st.none()
    | st.integers(-5, 5)
    | st.lists(TEXTS, max_size=3)
    | st.dictionaries(st.text(max_size=2), st.lists(TEXTS | st.booleans(), max_size=2), max_size=2)
)


def strings(value: JsonValue) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in strings(item)]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return []


@FEW
@given(
    st.lists(st.dictionaries(st.text(max_size=4), JSON, max_size=4), max_size=5),
    st.sampled_from(["jsonl", "json", "", "tw-pddl"]),
)
def test_every_text_of_json_is_read_with_its_entry(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, JsonValue]], suffix: str
) -> None:
    path = tmp_path_factory.mktemp("eval") / f"set.{suffix}"
    by_line = suffix != "json"
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)) if by_line else orjson.dumps(rows))
    found = list(texts_of(path))
    for number, row in enumerate(rows, start=1):
        expected = strings(row)
        # Of one row in a file of no known kind, the document is the row; what was read counts from 1 all the same.
        mine = [text for entry, text in found if entry == number]
        assert all(text in mine for text in expected)
    assert {entry for entry, _ in found} <= set(range(1, len(rows) + 1))


def test_plain_text_comes_line_by_line_and_a_list_of_texts_also_in_a_row(tmp_path: Path) -> None:
    plain = tmp_path / "notes.txt"
    plain.write_text("first line\nsecond [line\n{broken\n", encoding="utf-8")
    assert list(texts_of(plain)) == [(1, "first line"), (2, "second [line"), (3, "{broken")]
    walk = tmp_path / "walk.json"
    walk.write_bytes(orjson.dumps({"walkthrough": ["go to sink 1", "wash mug"], "n": [1]}))
    assert [text for _, text in texts_of(walk)] == ["go to sink 1\nwash mug", "go to sink 1", "wash mug"]


def test_packed_files_read_like_plain_ones_and_folders_like_their_files(tmp_path: Path) -> None:
    data = b'{"a": "one two three"}\n{"a": "four"}\n'
    (tmp_path / "a.jsonl").write_bytes(data)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data))
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_bytes(b"DIRC\0")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "b.jsonl").write_bytes(data)
    read = [list(texts_of(path)) for path in sorted(tmp_path.rglob("*.*")) if path.is_file()]
    assert len(read) == 3
    assert all(texts == [(1, "one two three"), (2, "four")] for texts in read)
    everything = Contamination([tmp_path], words=2)
    assert [path.name for path in everything.files] == ["a.jsonl", "a.jsonl.gz", "b.jsonl"]
    assert len(everything) == 2


@FEW
@given(st.binary(max_size=400), st.sampled_from(["jsonl", "json", "txt", "jsonl.gz", "csv"]))
def test_any_bytes_are_read_or_refused_with_a_message(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, suffix: str
) -> None:
    path = tmp_path_factory.mktemp("eval") / f"set.{suffix}"
    path.write_bytes(data)
    # Whatever else is raised fails the test.
    with suppress(InputError):
        assert len(Contamination([path])) >= 0


HOSTILE = {
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "deep in a line": b'{"a": ' * 50_000 + b"1" + b"}" * 50_000,
    "surrogates": b'{"a": "\\ud800 x"}\n\xff\xfe\x00',
    "one long line": b"word " * 200_000,
    "numbers": b"[1e999, 123456789012345678901234567890, NaN]",
    "zeros": b"\0" * 100_000,
}


@pytest.mark.parametrize("suffix", ["jsonl", "json", "txt"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_are_read_or_refused(tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / f"set.{suffix}"
    path.write_bytes(HOSTILE[kind])
    with suppress(InputError):
        assert len(Contamination([path])) >= 0


def test_a_small_file_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contamination, "MAX_BYTES", 1_000)
    path = tmp_path / "bomb.txt.gz"
    path.write_bytes(gzip.compress(b"word\n" * 100_000))
    with pytest.raises(InputError, match="more than 1,000 bytes"):
        Contamination([path])


FORMATS = {
    "set.parquet": b"PAR1\x15\0",
    "set.zip": b"PK\x03\x04\x14\0",
    "set.jsonl.bz2": b"BZh91AY&SY\xd8r",
    "set.jsonl.xz": b"\xfd7zXZ\0",
    "set.txt": b"\xff\xfea\0",
}


@pytest.mark.parametrize("name", ["missing.jsonl", "cut.jsonl.gz", "no.jsonl.gz", "empty", "short.jsonl", *FORMATS])
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"a": "x"}\n' * 1_000)[:-20])
    (tmp_path / "no.jsonl.gz").write_bytes(b"plain")
    (tmp_path / "short.jsonl").write_bytes(b'{"a": "too short"}')
    for file, start in FORMATS.items():
        (tmp_path / file).write_bytes(start + b"noise " * 20)
    with pytest.raises(InputError, match=name):
        Contamination([tmp_path / name])
