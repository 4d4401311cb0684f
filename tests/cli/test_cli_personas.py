"""`refinesynth personas`: in process, and as a process where signals come in."""

from functools import partial
from pathlib import Path

import orjson
import pytest
from command_line import cli

from refinesynth.personas import shipped

GENERAL = "general domain (top 1 percent)"
personas = partial(cli, "personas")


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """Persona Hub's elite form: 40 personas of four domains, each twice, and a line that is none."""
    texts = [persona.text for persona in shipped()][:40]
    rows = [{"persona": text, GENERAL: "ABCD"[number % 4]} for number, text in enumerate([*texts, *texts])]
    path = tmp_path / "elite.jsonl"
    path.write_bytes(b"\n".join([b'{"persona": "broken', *map(orjson.dumps, rows)]))
    return path


def lines(path: Path) -> list[dict[str, str]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_dedup_writes_each_once_with_its_fields(people: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    result = personas("dedup", people, "-o", out)
    assert result.exit_code == 0, result.output
    assert f"{out}: 40 of 80 personas" in result.stdout
    assert "left out: 40 exact duplicates and 0 near-duplicates" in result.stdout
    assert lines(out) == lines_of_first_half(people)
    assert "1 row skipped" in result.stderr
    assert "line 1: is not JSON" in result.stderr
    again = personas("dedup", people, "-o", out)
    assert (again.exit_code, len(lines(out))) == (2, 40)
    assert "exists already" in again.stderr
    report = orjson.loads(personas("dedup", people, "-o", out, "--overwrite", "--json").stdout)
    assert (report["kept"], report["exact"], report["output"]) == (40, 40, str(out))


def lines_of_first_half(people: Path) -> list[dict[str, str]]:
    return [orjson.loads(line) for line in people.read_bytes().splitlines()[1:41]]


def test_sample_is_balanced_and_the_same_again(people: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"
    for out in (first, second):
        result = personas("sample", people, "-n", "10", "-o", out, "--balance-by", GENERAL, "--seed", "3")
        assert result.exit_code == 0, result.output
    assert first.read_bytes() == second.read_bytes()
    assert "10 personas of 80" in result.stdout
    assert "4 groups: " in result.stdout
    drawn = orjson.loads(
        personas("sample", first, "-n", "10", "-o", tmp_path / "c.jsonl", "--balance-by", GENERAL, "--json").stdout
    )
    assert sorted(drawn["domains"].values()) == [2, 2, 3, 3]


def test_a_sample_that_falls_short_is_written_and_ends_with_1(people: Path, tmp_path: Path) -> None:
    result = personas("sample", people, "-n", "99", "-o", tmp_path / "out.jsonl")
    assert result.exit_code == 1
    assert "99 were asked for, and there are only 80" in result.stderr
    assert len(lines(tmp_path / "out.jsonl")) == 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing command"),
        (["dedup", "missing.jsonl", "-o", "out.jsonl"], "there is no file 'missing.jsonl'"),
        (["dedup", "-o", "out.jsonl", "--threshold", "0"], "expected more than 0 and at most 1"),
        (["sample", "-n", "0", "-o", "out.jsonl"], "Invalid value for '-n'"),
        (["sample", "-n", "5", "-o", "out.jsonl", "--balance-by", "domain"], "no row has a field"),
    ],
)
def test_wrong_input_is_one_message_and_2(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = personas(*arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []
