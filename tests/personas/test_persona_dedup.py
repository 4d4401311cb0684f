"""Files without near-duplicates: a subsequence, the first of each, the same every time, whole or not at all."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from persona_files import as_jsonl, write
from persona_hub import elite

from refinesynth.errors import InputError
from refinesynth.personas import Records, Similar, dedup

TOPICS = [f"topic{number}" for number in range(6)]
TEXTS = st.lists(
    st.builds(
        "{} {}".format, st.sampled_from(TOPICS), st.sampled_from(["of the north", "and bread", "in a small town"])
    ),
    min_size=1,
    max_size=14,
)


def texts_in(path: Path) -> list[str]:
    return [record.persona.text for record in Records(path)]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def is_subsequence(part: Sequence[str], whole: Sequence[str]) -> bool:
    rest = iter(whole)
    return all(text in rest for text in part)


@given(texts=TEXTS, threshold=st.sampled_from([0.4, 0.9, 1.0]))
def test_the_output_is_a_subsequence_and_again_changes_nothing(texts: list[str], threshold: float) -> None:
    similar = Similar(threshold)
    with TemporaryDirectory() as home:
        first, second = Path(home, "first.jsonl"), Path(home, "second.jsonl")
        report = dedup(texts, first, similar=similar)
        again = dedup(first, second, similar=similar)
        kept = texts_in(first)
        assert texts_in(second) == kept
    assert is_subsequence(kept, texts)
    assert kept[0] == texts[0]
    assert len(set(kept)) == len(kept) == report.kept
    assert report.read == len(texts) == report.kept + report.exact + report.near
    assert (again.kept, again.exact, again.near) == (report.kept, 0, 0)


def test_fields_stay_and_what_is_removed_is_listed(tmp_path: Path) -> None:
    rows = [elite("topic1 smith", "Law"), elite("TOPIC1 Smith!"), elite("topic2 baker"), elite("a smith (topic1)")]
    out, removed = tmp_path / "out.jsonl.zst", tmp_path / "removed.jsonl"
    report = dedup(rows, out, similar=Similar(0.6), removed=removed)
    assert [record.fields for record in Records(out)] == [record.fields for record in Records([rows[0], rows[2]])]
    assert [orjson.loads(line) for line in removed.read_bytes().splitlines()] == [
        {"persona": "TOPIC1 Smith!", "row": 2, "of": 1, "by": "exact", "similarity": 1.0},
        {"persona": "a smith (topic1)", "row": 4, "of": 1, "by": "near", "similarity": 0.6667},
    ]
    assert (report.kept, report.exact, report.near) == (2, 1, 1)


def test_bad_rows_are_counted_and_left_out(tmp_path: Path) -> None:
    lines = b'nonsense\n{"persona": "A smith"}\nnonsense\n{"persona": "A baker"}\n{"persona": "a SMITH"}\n'
    source, removed = write(tmp_path / "in.jsonl", lines), tmp_path / "removed.jsonl"
    report = dedup(source, tmp_path / "out.jsonl", removed=removed)
    assert texts_in(tmp_path / "out.jsonl") == ["A smith", "A baker"]
    assert (report.bad, len(report.problems)) == (2, 2)
    assert (orjson.loads(removed.read_bytes())["row"], orjson.loads(removed.read_bytes())["of"]) == (5, 2)


def test_outputs_in_the_way_are_said_before_anything_is_read(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", as_jsonl(["A smith"]))
    there = write(tmp_path / "there.jsonl", b"precious")

    def never() -> None:
        raise AssertionError("it was read")
        yield

    for settings, message in (
        ({"output": there}, "exists already"),
        ({"output": tmp_path / "out.jsonl", "removed": there}, "exists already"),
        ({"output": tmp_path / "out.jsonl", "removed": tmp_path / "out.jsonl"}, "name two files"),
        ({"output": tmp_path / "out.jsonl", "removed": tmp_path / "x" / ".." / "out.jsonl"}, "name two files"),
        ({"output": tmp_path}, "is a folder"),
    ):
        with pytest.raises(InputError, match=message):
            dedup(never(), **settings)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="is what is read"):
        dedup([source], source, overwrite=True)
    with pytest.raises(InputError, match="no personas"):
        dedup(["", " "], tmp_path / "out.jsonl")
    assert there.read_bytes() == b"precious"
    assert names_in(tmp_path) == ["in.jsonl", "there.jsonl"]


def test_a_file_that_breaks_in_the_middle_leaves_no_output(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl.gz", gzip.compress(as_jsonl(f"Somebody {n}" for n in range(3_000)))[:-20])
    with pytest.raises(InputError, match="cannot be read after line"):
        dedup(source, tmp_path / "out.jsonl")
    assert names_in(tmp_path) == ["in.jsonl.gz"]
