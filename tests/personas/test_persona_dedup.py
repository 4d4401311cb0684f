"""Files without near-duplicates: a subsequence, the first of each, the same every time, whole or not at all."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from persona_files import as_jsonl, write
from persona_hub import elite

from refinesynth.errors import InputError
from refinesynth.personas import Records, dedup

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
    with TemporaryDirectory() as home:
        first, second = Path(home, "first.jsonl"), Path(home, "second.jsonl")
        report = dedup(texts, first, threshold=threshold)
        again = dedup(first, second, threshold=threshold)
        kept = texts_in(first)
        assert texts_in(second) == kept
    assert is_subsequence(kept, texts)
    assert kept[0] == texts[0]
    assert len(set(kept)) == len(kept) == report.kept
    assert report.read == len(texts) == report.kept + report.exact + report.near
    assert (again.kept, again.exact, again.near) == (report.kept, 0, 0)


def test_fields_stay(tmp_path: Path) -> None:
    rows = [elite("topic1 smith", "Law"), elite("TOPIC1 Smith!"), elite("topic2 baker"), elite("a smith (topic1)")]
    out = tmp_path / "out.jsonl.gz"
    report = dedup(rows, out, threshold=0.6)
    assert [record.fields for record in Records(out)] == [record.fields for record in Records([rows[0], rows[2]])]
    assert (report.kept, report.exact, report.near) == (2, 1, 1)


def test_bad_rows_are_counted_and_left_out(tmp_path: Path) -> None:
    lines = b'nonsense\n{"persona": "A smith"}\nnonsense\n{"persona": "A baker"}\n{"persona": "a SMITH"}\n'
    source = write(tmp_path / "in.jsonl", lines)
    report = dedup(source, tmp_path / "out.jsonl")
    assert texts_in(tmp_path / "out.jsonl") == ["A smith", "A baker"]
    assert (report.bad, len(report.problems)) == (2, 2)


def test_outputs_in_the_way_are_said_before_anything_is_read(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", as_jsonl(["A smith"]))
    there = write(tmp_path / "there.jsonl", b"precious")

    def never() -> None:
        raise AssertionError("it was read")
        yield

    for settings, message in (({"output": there}, "exists already"), ({"output": tmp_path}, "is a folder")):
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
