"""Files without near-duplicates: a subsequence, the first of each, the same every time, whole or not at all, paid for once."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import numpy as np
import orjson
import pytest
from embedding_double import Topics, vector
from hypothesis import given
from hypothesis import strategies as st
from persona_files import as_jsonl, write
from persona_hub import elite

from refinesynth.errors import BackendError, InputError, RunStopped, StorageError
from refinesynth.personas import Embedded, Records, Similar, dedup
from refinesynth.personas.cosine import CosineIndex, unit
from refinesynth.personas.embedding import EmbeddingCache

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


@given(texts=TEXTS, embedded=st.booleans(), batch=st.integers(1, 5), concurrency=st.integers(1, 4))
async def test_the_output_is_a_subsequence_and_again_changes_nothing(
    texts: list[str], embedded: bool, batch: int, concurrency: int
) -> None:
    with TemporaryDirectory() as home:
        first, second = Path(home, "first.jsonl"), Path(home, "second.jsonl")
        embedder = Topics() if embedded else None
        report = await dedup(texts, first, embedder=embedder, batch=batch, concurrency=concurrency)
        again = await dedup(first, second, embedder=embedder)
        kept = texts_in(first)
        assert texts_in(second) == kept
    assert is_subsequence(kept, texts)
    assert kept[0] == texts[0]
    assert len(set(kept)) == len(kept) == report.kept
    assert report.read == len(texts) == report.kept + report.exact + report.near + report.alike
    assert (again.kept, again.exact, again.near, again.alike) == (report.kept, 0, 0, 0)


@given(texts=TEXTS, batch=st.integers(1, 5), concurrency=st.integers(1, 4))
async def test_by_embeddings_the_first_of_each_topic_stays_whatever_the_batches(
    texts: list[str], batch: int, concurrency: int
) -> None:
    expected: list[str] = []
    for text in dict.fromkeys(texts):
        mine = unit([vector(text)])[0].astype(float)
        if all(mine @ unit([vector(other)])[0].astype(float) < 0.9 for other in expected):
            expected.append(text)
    embedder = Topics()
    with TemporaryDirectory() as home:
        out = Path(home, "out.jsonl")
        await dedup(texts, out, similar=Similar(1.0), embedder=embedder, batch=batch, concurrency=concurrency)
        assert texts_in(out) == expected
    assert embedder.most_at_once <= concurrency
    assert max(map(len, embedder.asked)) <= batch
    assert sorted(text for batch in embedder.asked for text in batch) == sorted(set(texts))


async def test_fields_stay_and_what_is_removed_is_listed(tmp_path: Path) -> None:
    rows = [elite("topic1 smith", "Law"), elite("TOPIC1 Smith!"), elite("topic2 baker"), elite("topic1 who paints")]
    out, removed = tmp_path / "out.jsonl.zst", tmp_path / "removed.jsonl"
    report = await dedup(rows, out, embedder=Topics(), removed=removed)
    assert [record.fields for record in Records(out)] == [record.fields for record in Records([rows[0], rows[2]])]
    assert [orjson.loads(line) for line in removed.read_bytes().splitlines()] == [
        {"persona": "TOPIC1 Smith!", "row": 2, "of": 1, "by": "exact", "similarity": 1.0},
        {
            "persona": "topic1 who paints",
            "row": 4,
            "of": 1,
            "by": "embedding",
            "similarity": pytest.approx(1, abs=0.01),
        },
    ]
    assert (report.kept, report.exact, report.near, report.alike) == (2, 1, 0, 1)


async def test_bad_rows_are_counted_and_left_out(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", b'{"persona": "A smith"}\nnonsense\n{"persona": "A baker"}\n')
    report = await dedup(source, tmp_path / "out.jsonl")
    assert texts_in(tmp_path / "out.jsonl") == ["A smith", "A baker"]
    assert (report.bad, len(report.problems)) == (1, 1)


async def test_nothing_is_paid_for_twice(tmp_path: Path) -> None:
    texts = [f"topic{number} smith" for number in range(40)]
    first = Topics()
    report = await dedup(texts, tmp_path / "a.jsonl", embedder=first, batch=8, cache=tmp_path / "cache")
    assert (report.asked, report.cached, report.tokens, report.cost_usd) == (40, 0, 40, pytest.approx(0.005))
    second = Topics()
    report = await dedup(texts, tmp_path / "b.jsonl", embedder=second, batch=7, cache=tmp_path / "cache")
    assert (report.asked, report.cached, report.tokens, report.cost_usd, second.asked) == (0, 40, 0, 0.0, [])
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    other = Topics(name="another model")
    assert (await dedup(texts, tmp_path / "c.jsonl", embedder=other, cache=tmp_path / "cache")).asked == 40


async def test_an_interrupted_run_keeps_what_it_paid_for_and_leaves_no_output(tmp_path: Path) -> None:
    texts = [f"topic{number} smith" for number in range(60)]
    scope = anyio.CancelScope()

    async def interrupted(number: int) -> None:
        if number == 4:
            scope.cancel()
            await anyio.sleep_forever()

    embedder = Topics(interrupted)
    with scope:
        await dedup(texts, tmp_path / "out.jsonl", embedder=embedder, batch=5, concurrency=1)
    assert scope.cancelled_caught
    assert [name for name in names_in(tmp_path) if Path(name).suffix in {".jsonl", ".part"}] == []
    again = Topics()
    report = await dedup(texts, tmp_path / "out.jsonl", embedder=again, batch=5)
    assert (report.cached, report.asked) == (20, 40)
    paid = {text for batch in embedder.asked[:4] for text in batch}
    assert paid.isdisjoint(text for batch in again.asked for text in batch)


async def test_when_one_batch_fails_the_others_are_kept(tmp_path: Path) -> None:
    async def fails(number: int) -> None:
        while len(embedder.asked) < 4:
            await anyio.lowlevel.checkpoint()
        if number == 1:
            raise RunStopped("no credit left")

    embedder = Topics(fails)
    texts = [f"topic{number} smith" for number in range(40)]
    with pytest.raises(RunStopped, match="no credit left"):
        await dedup(texts, tmp_path / "out.jsonl", embedder=embedder, batch=5, concurrency=4)
    assert not (tmp_path / "out.jsonl").exists()
    paid = len(embedder.asked) - 1
    assert 3 <= paid < 7
    report = await dedup(texts, tmp_path / "out.jsonl", embedder=Topics(), batch=5)
    assert (report.cached, report.asked) == (5 * paid, 40 - 5 * paid)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[1.0, 0.0]], "gave 1 embeddings for 2 texts"),
        ([[1.0, 0.0], [1.0]], "not lists of numbers of one length"),
        ([[1.0, float("nan")], [1.0, 0.0]], "no finite number"),
        ([[0.0][1:], [0.0][1:]], "not lists of numbers"),
        ([["a"], ["b"]], "not lists of numbers"),
    ],
)
async def test_embeddings_that_are_none_are_refused(tmp_path: Path, vectors: Any, message: str) -> None:
    class Wrong:
        name = "wrong"

        async def __call__(self, texts: Sequence[str], /) -> Embedded:
            return Embedded(vectors)

    with pytest.raises(BackendError, match=message):
        await dedup(["a smith", "the baker"], tmp_path / "out.jsonl", embedder=Wrong())


async def test_a_model_that_changes_its_length_is_refused(tmp_path: Path) -> None:
    class Changing(Topics):
        async def __call__(self, texts: Sequence[str], /) -> Embedded:
            answer = await super().__call__(texts)
            return Embedded([each[: 7 + int(texts[0][5]) // 2] for each in answer.vectors])

    texts = [f"topic{number} x" for number in (0, 1, 2, 3)]
    with pytest.raises(InputError, match="embeddings of 8 numbers came after ones of 7"):
        await dedup(texts, tmp_path / "out.jsonl", embedder=Changing(), batch=2)
    with pytest.raises(BackendError, match="different lengths"):
        await dedup(texts, tmp_path / "out.jsonl", embedder=Changing(), batch=4)


async def test_a_cache_that_is_none_is_refused_and_a_damaged_one_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[sqlite3.Connection] = []

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened.append(sqlite3.Connection(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr("refinesynth.personas.embedding.sqlite3.connect", connect)
    wrong = write(tmp_path / "notes.txt", b"my notes, all of them precious, and longer than a header of SQLite is" * 9)
    with pytest.raises(InputError, match="cannot be used as a cache of embeddings"):
        await dedup(["a smith"], tmp_path / "out.jsonl", embedder=Topics(), cache=wrong)
    assert wrong.read_bytes().startswith(b"my notes")
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as file:
        file.execute("CREATE TABLE embeddings (something TEXT)")
    file.close()
    with pytest.raises(StorageError, match="cannot be used: no such column"):
        await dedup(["a smith"], tmp_path / "out.jsonl", embedder=Topics(), cache=other)
    assert len(opened) == 3  # one is the test's own
    for each in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            each.total_changes  # noqa: B018


def test_the_cache_gives_back_what_was_put(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path / "sub" / "cache", "model")
    vectors = unit([[3.0, 4.0], [1e300, 1e300], [0.0, 0.0]])
    cache.put(["a", "b\udcff", "c"], list(vectors))
    cache.close()
    again = EmbeddingCache(tmp_path / "sub" / "cache", "model")
    found = again.get(["c", "a", "x", "b\udcff"])
    again.close()
    assert found[2] is None
    assert [None if each is None else each.tolist() for each in found] == [
        [0.0, 0.0],
        vectors[0].tolist(),
        None,
        vectors[1].tolist(),
    ]
    assert vectors[1].tolist() == pytest.approx([0.7071, 0.7071], abs=1e-3)


@given(st.lists(st.integers(1, 7), max_size=6), st.integers(0, 99))
def test_the_cosine_index_is_brute_force(sizes: list[int], seed: int) -> None:
    dice = np.random.default_rng(seed)
    vectors = unit(dice.normal(size=(max(1, sum(sizes)), 3)).tolist())
    exact = vectors.astype(np.float32)
    expected: list[int] = []
    for number in range(sum(sizes)):
        if all(float(exact[number] @ exact[other]) < 0.8 for other in expected):
            expected.append(number)
    index = CosineIndex(0.8)
    verdicts: list[tuple[int, float] | None] = []
    at = 0
    for size in sizes:
        verdicts += index.admit(vectors[at : at + size])
        at += size
    assert [number for number, verdict in enumerate(verdicts) if verdict is None] == expected
    assert len(index) == len(expected)
    for number, verdict in enumerate(verdicts):
        if verdict is not None:
            assert verdict[1] == pytest.approx(float(exact[number] @ exact[expected[verdict[0]]]), abs=1e-4)


def test_the_cosine_index_goes_on_over_its_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refinesynth.personas.cosine._CHUNK", 4)
    index = CosineIndex(0.999)
    vectors = unit(np.random.default_rng(0).normal(size=(11, 16)).tolist())
    assert index.admit(vectors[:6]) == [None] * 6
    assert index.admit(vectors[6:]) == [None] * 5
    assert [verdict and verdict[0] for verdict in index.admit(vectors)] == list(range(11))


async def test_outputs_in_the_way_are_said_before_anything_is_read(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", as_jsonl(["A smith"]))
    there = write(tmp_path / "there.jsonl", b"precious")

    def never() -> None:
        raise AssertionError("it was read")
        yield

    for settings, message in (
        ({"output": there}, "exists already"),
        ({"output": tmp_path / "out.jsonl", "removed": there}, "exists already"),
        ({"output": tmp_path / "out.jsonl", "removed": tmp_path / "out.jsonl"}, "name two files"),
        ({"output": tmp_path / "out.jsonl", "cache": tmp_path / "out.jsonl"}, "embeddings and personas"),
        ({"output": tmp_path / "o", "removed": tmp_path / "o.embeddings"}, "embeddings and personas"),
        ({"output": tmp_path}, "is a folder"),
        ({"output": tmp_path / "out.jsonl", "batch": 0}, "a batch has at least 1 text"),
        ({"output": tmp_path / "out.jsonl", "concurrency": 65}, "1 to 64"),
        ({"output": tmp_path / "out.jsonl", "cosine": 0.0}, "a threshold is above 0"),
    ):
        with pytest.raises(InputError, match=message):
            await dedup(never(), **settings)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="is what is read"):
        await dedup([source], source, overwrite=True)
    with pytest.raises(InputError, match="no personas"):
        await dedup(["", " "], tmp_path / "out.jsonl")
    assert there.read_bytes() == b"precious"
    assert names_in(tmp_path) == ["in.jsonl", "there.jsonl"]


async def test_a_file_that_breaks_in_the_middle_leaves_no_output(tmp_path: Path) -> None:
    import gzip

    source = write(tmp_path / "in.jsonl.gz", gzip.compress(as_jsonl(f"Somebody {n}" for n in range(3_000)))[:-20])
    for embedder in (None, Topics()):
        with pytest.raises(InputError, match="cannot be read after line"):
            await dedup(source, tmp_path / "out.jsonl", embedder=embedder)
        assert set(names_in(tmp_path)) <= {"in.jsonl.gz", "out.jsonl.embeddings"}


async def test_progress_is_told_and_other_tasks_have_their_turn(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    texts = [f"word{number} and more{number}" for number in range(1_500)]
    await dedup(texts, tmp_path / "out.jsonl", on_progress=lambda read, kept: told.append((read, kept)))
    assert told[-1] == (1_500, 1_500)
    assert len(told) == 3
