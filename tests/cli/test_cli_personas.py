"""`refinesynth personas dedup`."""

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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing command"),
        (["dedup", "missing.jsonl", "-o", "out.jsonl"], "there is no file 'missing.jsonl'"),
        (["dedup", "-o", "out.jsonl", "--threshold", "0"], "expected more than 0 and at most 1"),
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
