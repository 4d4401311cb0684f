"""Personas come from anything, lazily, and a bad row is counted instead of being fatal."""

import gzip
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from persona_files import COMPRESSIONS, FORMATS, as_jsonl, read, write

from refinesynth import synthesize
from refinesynth.errors import InputError
from refinesynth.files.compressed import bounded_lines
from refinesynth.personas import Records, open_personas
from refinesynth.personas.persona_files import MAX_LINE_BYTES
from refinesynth.trajectory import Persona

PEOPLE = ["A smith, of Łódź", 'She said "no"', "Two\twords", "日本の大工", "Ends with a comma,"]

TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=60).filter(lambda text: bool(text.strip()))


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("suffix", FORMATS)
async def test_every_format_and_compression_is_read(tmp_path: Path, suffix: str, compression: str) -> None:
    path = write(tmp_path / f"people{suffix}{compression}".upper(), COMPRESSIONS[compression](FORMATS[suffix](PEOPLE)))
    texts, personas = await read(str(path))
    assert texts == PEOPLE
    assert personas.bad == 0
    assert str(path) in personas.description
    again, _ = await read(path)
    assert again == PEOPLE


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv"])
async def test_the_column_that_is_named_is_read_and_no_other(tmp_path: Path, suffix: str) -> None:
    content = FORMATS[suffix](PEOPLE).replace(b"persona", b"Bio").replace(b"text", b"Bio")
    path = write(tmp_path / f"people{suffix}", content)
    async with open_personas(path, column="bio") as personas:
        assert [one.text async for _, one in personas] == PEOPLE
    async with open_personas(path, column="nobody") as personas:
        with pytest.raises(InputError, match=r"'nobody'.*--column"):
            await personas.read_first()
    assert [one.persona.text for one in Records(path, column="bio")] == PEOPLE


async def test_a_column_is_that_of_any_rows(tmp_path: Path) -> None:
    rows = [{"text": "not this", "Bio": person} for person in PEOPLE]

    async def awaited() -> AsyncGenerator[dict[str, str]]:
        for row in rows:
            yield row

    for source in (rows, awaited(), iter(rows)):
        async with open_personas(source, column="bio") as personas:
            assert [one.text async for _, one in personas] == PEOPLE
    with pytest.raises(InputError, match="no rows of personas are given"):
        await synthesize(None, 1, column="bio", output=tmp_path / "run")


@example(texts=["0\r\n0"], suffix=".csv")
@given(texts=st.lists(TEXT, min_size=1, max_size=9), suffix=st.sampled_from([".jsonl", ".csv"]))
async def test_any_text_comes_back(texts: list[str], suffix: str) -> None:
    with TemporaryDirectory() as home:
        found, personas = await read(write(Path(home, f"people{suffix}"), FORMATS[suffix](texts)))
    assert found == [text.strip() for text in texts]
    assert personas.bad == 0


@given(
    content=st.binary(max_size=400), suffix=st.sampled_from(sorted(FORMATS)), compressed=st.sampled_from(["", ".gz"])
)
async def test_garbage_is_counted_or_refused_and_nothing_else(content: bytes, suffix: str, compressed: str) -> None:
    with TemporaryDirectory() as home:
        try:
            texts, personas = await read(write(Path(home, f"people{suffix}{compressed}"), content))
        except InputError:
            return
    assert len(texts) + personas.bad >= 1
    assert all(Persona(text=text).text == text for text in texts)


async def test_a_bad_row_is_counted_with_its_line_and_reason(tmp_path: Path) -> None:
    rows = [
        b'{"persona": "A smith"}',
        b'{"persona": ',
        b"",
        b'{"persona": "   "}',
        b'{"persona": 7}',
        b'{"name": "A smith"}',
        b'{"persona": "\xff"}',
        b'{"persona": "\\ud800"}',
        b'["A smith"]',
        b'{"persona": "' + b"x" * 10_001 + b'"}',
        b'{"text": "A baker"}',
        b'"A tailor"',
    ]
    texts, personas = await read(write(tmp_path / "people.jsonl", b"\n".join(rows)))
    assert texts == ["A smith", "A baker", "A tailor"]
    assert personas.bad == 9
    assert [row.line for row in personas.problems] == [2, 3, 4, 5, 6]
    reasons = [row.reason for row in personas.problems]
    assert reasons[0].startswith("is not JSON: ")
    assert reasons[1:] == [
        "is blank",
        "is blank",
        "a persona is text, this is int",
        (
            "has neither of the keys persona and text; it has 'name'. Name the column of the personas with --column "
            "(column= in Python)"
        ),
    ]
    assert str(personas.problems[1]) == "line 3: is blank"


async def test_bad_rows_of_a_csv_are_told_by_their_first_line(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbfid, Persona \n1,"A smith,\nin two lines"\n2\n\n3,\xff\n4,  \n6,A baker\n'
    texts, personas = await read(write(tmp_path / "people.csv", content))
    assert texts == ["A smith,\nin two lines", "A baker"]
    assert [row.line for row in personas.problems] == [4, 5, 6, 7]
    assert personas.problems[0].reason == "has 1 columns, the persona is in column 2"


def test_of_an_endless_line_only_a_piece_is_in_memory() -> None:
    asked: list[int] = []

    class Endless:
        def readline(self, size: int) -> bytes:
            asked.append(size)
            return b"x" * (size if len(asked) < 9 else 0)

    lines = list(bounded_lines(Endless(), 100))  # pyright: ignore[reportArgumentType]
    assert lines[0] == (1, b"x" * 101)
    assert max(asked) == 101


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The thread of each line that is read."""
    threads: list[int] = []

    def noting(*given: Any) -> Iterator[tuple[int, bytes]]:
        for found in bounded_lines(*given):
            threads.append(threading.get_ident())
            yield found

    monkeypatch.setattr("refinesynth.personas.persona_files.bounded_lines", noting)
    return threads


async def test_a_huge_file_is_read_only_as_far_as_it_is_needed(tmp_path: Path, noted: list[int]) -> None:
    path = write(tmp_path / "people.jsonl", as_jsonl(f"Somebody called {number}" for number in range(50_000)))
    async with open_personas(path) as personas:
        assert (await anext(personas))[1].text == "Somebody called 0"
    assert len(noted) <= 100


async def test_files_are_read_off_the_event_loop(tmp_path: Path, noted: list[int]) -> None:
    await read(write(tmp_path / "people.txt", b"A smith\n"))
    assert noted
    assert threading.get_ident() not in noted


async def test_a_cancelled_reader_leaves_its_thread_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, go_on, came_out = threading.Event(), threading.Event(), threading.Event()

    def slow(*_given: Any) -> list[tuple[int, bytes]]:
        reading.set()
        go_on.wait(10)
        came_out.set()
        return []

    monkeypatch.setattr("refinesynth.personas.persona_files.bounded_lines", slow)
    personas = open_personas(write(tmp_path / "people.txt", b"A smith\n"))
    async with anyio.create_task_group() as tasks:

        async def take() -> None:
            async with personas:
                await anext(personas)

        tasks.start_soon(take)
        await anyio.to_thread.run_sync(reading.wait)
        tasks.cancel_scope.cancel()
    assert not came_out.is_set()
    go_on.set()
    await anyio.to_thread.run_sync(came_out.wait)


@pytest.mark.train
async def test_a_dataset_is_read_by_its_column() -> None:
    # The types of datasets are partial.
    datasets: Any = import_module("datasets")
    dataset = datasets.Dataset.from_list([{"big": b"...", "Persona": text} for text in [*PEOPLE, None]])
    for source in (dataset, dataset.to_iterable_dataset()):
        texts, personas = await read(source)
        assert (texts, personas.bad) == (PEOPLE, 1)
        assert personas.description.startswith("a Hugging Face ")
    with pytest.raises(InputError, match=r"columns \['name'\]; expected one of them to be persona or text"):
        await read(datasets.Dataset.from_list([{"name": "A smith"}]))
    with pytest.raises(InputError, match=r"DatasetDict.*personas\['train'\]"):
        open_personas(datasets.DatasetDict(train=dataset))


async def test_iterables_hold_texts_personas_and_rows() -> None:
    rows: list[Any] = [
        "A smith",
        Persona(text="A baker"),
        {"persona": "A tailor"},
        {"text": Persona(text="A cook")},
        5,
        None,
    ]
    texts, personas = await read(rows)
    assert texts == ["A smith", "A baker", "A tailor", "A cook"]
    assert [row.line for row in personas.problems] == [5, 6]

    async def one_by_one() -> AsyncGenerator[str, None]:
        for text in PEOPLE:
            yield text

    assert (await read(one_by_one()))[0] == PEOPLE
    assert (await read(text for text in PEOPLE))[0] == PEOPLE
    assert (await read(Persona(text="A smith")))[0] == ["A smith"]
    assert (await read({"c", "a", "b"}))[0] == ["a", "b", "c"]


async def test_an_iterable_is_asked_for_no_more_than_is_taken() -> None:
    given = 0

    def endless() -> Iterator[str]:
        nonlocal given
        while True:
            given += 1
            yield f"Somebody called {given}"

    async with open_personas(endless()) as personas:
        async for index, _ in personas:
            if index == 200:
                break
    assert given == 201


async def test_a_long_iterable_lets_other_tasks_have_their_turn() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(others)
        await read(f"Somebody called {number}" for number in range(1_000))
        tasks.cancel_scope.cancel()
    assert turns >= 10


async def test_looking_takes_nothing() -> None:
    async with open_personas(["", "A smith", "A baker"]) as personas:
        await personas.read_first()
        await personas.read_first()
        assert personas.bad == 1
        assert [persona.text async for _, persona in personas] == ["A smith", "A baker"]
        await personas.read_first()


@pytest.mark.parametrize("rows", [[], [""], ["", " ", "\n"]])
async def test_a_source_without_a_persona_is_refused(rows: list[str]) -> None:
    with pytest.raises(InputError, match="no personas: "):
        await open_personas(rows).read_first()
    with pytest.raises(InputError, match="line 1: is blank" if rows else "is empty"):
        await read(rows)


LONG = b"persona\n" + b"x" * (2 * MAX_LINE_BYTES) + b'\n"A smith"\n'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        *(
            (f"people.{each}", LONG, r"line 2 of '.*' is longer than 1,048,576 bytes")
            for each in ("jsonl", "csv", "txt")
        ),
        ("people.txt", b"\0\0\0\0\0\0", "cannot be read: there are NUL bytes"),
        ("people.json", b'["A smith"]', "expected one that ends in .jsonl, .* convert others to JSONL"),
        ("people.parquet", b"PAR1", "unknown file format by the name of"),
        ("people.jsonl", None, "there is no file .* given as a list of one text"),
        ("people\0.txt", None, "there is no file"),
        ("people.csv", b"name,age\nA smith,7\n", r"has the columns \['name', 'age'\]; expected one of them"),
        ("people.csv", b'"' + b"x" * 200_000, "begins in line 1 is no CSV: field larger"),
        ("people.csv", b'persona\nA cook\n"' + b"x" * 200_000 + b'"\n', "begins in line 3 is no CSV: field larger"),
        ("people.jsonl.gz", b"A smith", "cannot be read: "),
        ("people.txt.gz", gzip.compress(b"A smith\n" * 9, mtime=0)[:-9], "cannot be read"),
        ("people.txt.zst", b"A smith", "unknown file format by the name of"),
        ("people.jsonl", b"{}\n", "none of the 1 rows of the file .* is one. line 1: has neither"),
    ],
)
async def test_an_unusable_file_is_refused_with_what_was_expected(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        write(tmp_path / name, content)
    with pytest.raises(InputError, match=message):
        await read(tmp_path / name)


async def test_a_folder_and_things_that_hold_no_personas_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        open_personas(tmp_path)

    class DataFrame:
        columns = ("persona",)

    for wrong, message in (
        (5, "from a int; expected a path"),
        (b"A smith", "from a bytes"),
        ({"train": ["A smith"]}, "from a dict"),
        (DataFrame(), "from a DataFrame; .*; choose a column"),
    ):
        with pytest.raises(InputError, match=message):
            open_personas(wrong)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("people.txt", "A nurse in Köln\nA cook\n"),
        ("people.csv", "id,persona\n1,Eine Ärztin\n"),
        ("people.jsonl", '{"persona": "A cook"}\n'),
    ],
)
async def test_another_encoding_is_refused_by_its_name(
    tmp_path: Path, name: str, text: str, encoding: str, mark: str
) -> None:
    path = write(tmp_path / name, (mark + text).encode(encoding))
    name_of_it = encoding[:6].upper()
    problem = f"it is {name_of_it}; expected UTF-8. `iconv -f {name_of_it} " if mark else "there are NUL bytes in its"
    with pytest.raises(InputError, match=f"{name}' cannot be read: {problem}"):
        await read(path)


@pytest.mark.process
def test_standard_input_is_jsonl_or_text(tmp_path: Path) -> None:
    given = '{"persona": "A smith", "id": 1}\nA cook who hums\n\n'
    command = [sys.executable, "-m", "refinesynth", "run", "-", "-n", "2", "-o", "run"]
    subprocess.run(command, input=given, cwd=tmp_path, check=True, capture_output=True, text=True)
    kept = [orjson.loads(line) for line in (tmp_path / "run" / "trajectories.jsonl").read_bytes().splitlines()]
    assert [one["persona"]["text"] for one in kept] == ["A smith", "A cook who hums"]
