"""Whole rows: Persona Hub's files as they are, with extra columns, and JSON within JSON."""

import json
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from persona_files import as_jsonl, write
from persona_hub import GENERAL, elite

from refinesynth.errors import InputError
from refinesynth.personas import PersonaRecord, Records, write_records
from refinesynth.trajectory import Persona

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def the_records(path: Path) -> tuple[list[PersonaRecord], Records]:
    records = Records(path)
    return list(records), records


def test_elite_rows_keep_their_fields_in_their_order(tmp_path: Path) -> None:
    rows = [elite("A smith", "Engineering"), elite("A baker", None, "Gastronomy ")]
    path = write(tmp_path / "elite.jsonl", b"".join(orjson.dumps(row) + b"\n" for row in rows))
    found, records = the_records(path)
    assert [orjson.loads(record.as_json()) for record in found] == rows
    assert [list(orjson.loads(record.as_json())) for record in found] == [list(row) for row in rows]
    assert records.bad == 0


def test_a_csv_with_a_trailing_unnamed_column_and_rows_of_all_widths(tmp_path: Path) -> None:
    content = (
        f"id,persona,{GENERAL},\n"
        "1,A smith,Engineering,\n"
        '2,"A baker, of bread",None,stray\n'
        '3,"A judge",Law,stray,"and, more"\n'
        "4,A monk\n"
    ).encode()
    path = write(tmp_path / "elite.csv", content)
    found, records = the_records(path)
    assert [record.persona.text for record in found] == ["A smith", "A baker, of bread", "A judge", "A monk"]
    assert [set(record.fields) for record in found] == [{"id", GENERAL}] * 3 + [{"id"}]
    assert records.bad == 0


@pytest.mark.parametrize(
    "content",
    ["id,persona\n1,A smith, of Leeds, who hums\n2,A cook,\n", "persona,id\nA smith, of Leeds,1\nA cook,2, \n"],
)
def test_a_persona_that_a_comma_cuts_is_refused(tmp_path: Path, content: str) -> None:
    found, records = the_records(write(tmp_path / "people.csv", content.encode()))
    assert [record.persona.text for record in found] == ["A cook"]
    assert "for 2 columns; quote a persona with a comma" in records.problems[0]


def test_other_fields_stay_as_they_were(tmp_path: Path) -> None:
    row = {"Bio": "A smith", "text": "a letter", "json": "{}", "persona": "not this", "id": 2**70 + 1, "ids": [2**64]}
    path = write(tmp_path / "people.jsonl", json.dumps(row).encode())
    write_records(Records(path, column="bio"), tmp_path / "out.jsonl")
    expected = {"persona": "A smith", "text": "a letter", "json": "{}", "id": 2**70 + 1, "ids": [2**64]}
    assert json.loads((tmp_path / "out.jsonl").read_bytes()) == expected


@pytest.mark.parametrize("name", ["out.txt", "out.jsonl.gz"])
def test_an_output_is_read_again(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "people.txt", b'A smith\n{not JSON} but a smith\n"A" cook\n[retired] judge\n')
    texts = [record.persona.text for record in Records(path)]
    write_records(Records(path), tmp_path / name)
    assert [record.persona.text for record in Records(tmp_path / name)] == texts
    assert texts == ["A smith", "{not JSON} but a smith", '"A" cook', "[retired] judge"]


@pytest.mark.parametrize(
    ("rows", "line", "problem"),
    [
        (['1,"A smith', '2,"A ""good"" baker"', '3,"A cook"'], 2, "',' expected after '\"'"),
        (['1,"A smith"', '2,"A baker', "3,A cook"], 3, "unexpected end of data"),
        (['1,"A smith"', '2,"A "good" baker"', "3,A cook"], 3, "',' expected after '\"'"),
        (["1,A smith", "2,A\rbaker", "3,A cook"], 3, "new-line character seen in unquoted field"),
    ],
)
def test_broken_quotes_are_refused_with_the_line_and_what_to_do(
    tmp_path: Path, rows: list[str], line: int, problem: str
) -> None:
    path = write(tmp_path / "people.csv", "\n".join(["id,persona", *rows, ""]).encode())
    with pytest.raises(InputError, match=rf"begins in line {line} is no CSV: {problem}.*Close every quote"):
        the_records(path)


def test_text_with_other_line_ends_is_no_single_persona(tmp_path: Path) -> None:
    found, records = the_records(write(tmp_path / "mac.txt", b"A smith\rA judge\rA cook\r"))
    with pytest.raises(InputError, match=r"line 1: has a carriage return \(CR\) within"):
        records.check()
    assert not found
    found, records = the_records(write(tmp_path / "both.txt", b"A smith\r\nA judge\rA cook\nA baker\r"))
    assert [record.persona.text for record in found] == ["A smith", "A baker"]
    assert records.bad == 1


@given(lines=st.lists(st.text('",\nab ', max_size=20), max_size=12))
def test_any_quotes_are_read_counted_or_refused(lines: list[str]) -> None:
    with TemporaryDirectory() as home:
        content = "persona,id\n" + "\n".join(lines) + "\nA smith,1\n\n"
        path = write(Path(home, "people.csv"), content.encode())
        try:
            found, _ = the_records(path)
        except InputError as error:
            assert "is no CSV" in str(error)  # noqa: PT017 - not every content is one
            return
    # However broken the lines before it are, a line that stands for itself at the end is not lost without a trace.
    assert found[-1].persona.text.endswith("A smith") or '"' in content


def test_broken_json_is_counted_with_file_and_line(tmp_path: Path) -> None:
    lines = [
        orjson.dumps(elite("A smith")),
        b'{"persona": "A "broken" one"}',
        b'{"persona": null}',
        b'{"persona": "A baker"}',
    ]
    first = write(tmp_path / "one.jsonl", b"\n".join(lines))
    second = write(tmp_path / "two.jsonl", b"{}\n" + as_jsonl(["A judge"]))
    records = Records([first, second])
    assert [record.persona.text for record in records] == ["A smith", "A baker", "A judge"]
    assert (records.read, records.bad) == (3, 3)
    assert [problem.partition(": ")[0] for problem in records.problems] == [str(first), str(first), str(second)]
    assert records.problems[1] == f"{first}: line 3: a persona is text, this is NoneType"


@given(rows=st.lists(st.dictionaries(st.text(max_size=8) | st.just("persona"), JSON, max_size=4), max_size=5))
def test_any_row_is_read_or_counted_and_can_be_written(rows: list[dict[str, object]]) -> None:
    records = Records(rows)
    found = list(records)
    assert len(found) == records.read
    assert records.read + records.bad == len(rows)
    for record in found:
        again = orjson.loads(record.as_json())
        assert Persona(text=again["persona"]) == record.persona


def test_fields_that_are_no_json_do_not_stop_the_writing(tmp_path: Path) -> None:
    circle: list[object] = []
    circle.append(circle)
    deep = orjson.loads(b"[" * 900 + b"]" * 900)
    rows: list[dict[Any, Any]] = [
        {"persona": "A smith", "path": Path("x"), "raw": "\udcff"},
        {"persona": "A baker", "circle": circle},
        {"persona": "A judge", "deep": deep},
        {"persona": "A monk", 7: 2**70},
    ]
    assert write_records(Records(rows), tmp_path / "out.jsonl.gz") == 4
    again = list(Records(tmp_path / "out.jsonl.gz"))
    assert [record.persona.text for record in again] == ["A smith", "A baker", "A judge", "A monk"]
    assert again[0].fields == {"path": "x", "raw": "\ufffd"}


def test_what_is_no_source_is_refused(tmp_path: Path) -> None:
    for wrong in (5, b"A smith", {"persona": "A smith"}):
        with pytest.raises(InputError, match="cannot read personas from a"):
            Records(wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="there is no file"):
        Records([write(tmp_path / "people.txt", b"A smith"), tmp_path / "missing.jsonl"])
    empty = Records([])
    assert list(empty) == []
    with pytest.raises(InputError, match="no personas: there are no rows"):
        empty.check()


def test_each_row_is_read_once_in_however_many_parts() -> None:
    records = Records(["A smith", "A cook", "A nurse"])
    texts = [next(records).persona.text, *(record.persona.text for record in islice(records, 1))]
    texts += [record.persona.text for _ in range(2) for record in records]
    assert (texts, records.read) == (["A smith", "A cook", "A nurse"], 3)


def test_progress_is_told() -> None:
    told: list[int] = []
    assert len(list(Records((f"person {number}" for number in range(10_000)), on_progress=told.append))) == 10_000
    assert told == [0, 4096, 8192]
