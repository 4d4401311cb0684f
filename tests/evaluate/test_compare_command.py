"""`refinesynth compare`, in process."""

import json
import re
from pathlib import Path

import pytest
from command_line import cli
from eval_logs import flat, scored, write_log
from terminal_text import is_inert
from typer.testing import Result

HOSTILE = "a<script>alert(1)</script>|[x](y)\x1b[31m$\\frac$"


def compare(*arguments: object) -> Result:
    return cli("compare", *arguments, env={"COLUMNS": "40"})


@pytest.fixture
def evals(tmp_path: Path) -> Path:
    for name, won in (("base", 20), ("first", 40)):
        write_log(tmp_path / "evals" / name, "babyai", flat(won, 112), model=f"test/{name}")
        write_log(tmp_path / "evals" / name, "worlds", {"a": scored(1, 0), "b": scored(0, 0)}, argument="runs/held-out")
        write_log(tmp_path / "evals" / name, "alfworld", flat(won, 50))
        write_log(tmp_path / "evals" / name, "alfworld", flat(won - 10, 50), perturb="P1")
    return tmp_path / "evals"


def test_it_shows_scores_differences_perturbations_and_behaviour(evals: Path) -> None:
    shown = compare(evals / "base", evals / "first").stdout
    lines = [re.split(r"\s{2,}", line.strip()) for line in shown.splitlines()]
    assert ["babyai", "base", "112", "17.9 [10.7, 25.0]", "58.9 [55.4, 62.5]"] in lines
    assert ["alfworld P1", "first", "50 of 134", "60.0 [46.0, 74.0]", "80.0 [73.0, 87.0]"] in lines
    assert ["babyai", "first", "success", "112", "+17.9 [+10.7, +25.0]", "<0.001"] in lines
    assert ["alfworld", "base", "P1, original", "30.0 ± 10.0, 14.1", "65.0 ± 5.0, 7.1"] in [
        [*line[:2], ", ".join(sorted(line[2].split(", "))), *line[3:]] for line in lines if len(line) > 2
    ]
    assert ["babyai", "base", "10.0", "20.0", "33.3", "50.0", "2.0"] in lines
    assert ["held-out of base needs scienceworld, pddl, jericho"] in lines
    assert "(published)" not in shown


def test_the_papers_rows_stand_beside_in_its_order(evals: Path) -> None:
    shown = compare(evals / "base", "--paper").stdout
    names = re.findall(r"^(.+?) {2,}.*\d+\.\d/", shown.partition("Scores")[0], re.MULTILINE)
    assert names[0] == "GPT-4o (published)"
    assert names[6] == "LLaMA-3-8B AgentRefine (published)"
    assert names[14:] == ["base"]
    assert "Agent-FLAN (published)" in names[5]


def test_the_paper_alone_needs_no_folder() -> None:
    shown = compare("--paper").stdout
    rows = {name: figures.split() for name, figures in re.findall(r"^(.+?) \(published\)  +(.*)$", shown, re.MULTILINE)}
    assert len(rows) == 14
    assert rows["LLaMA-3-8B AgentRefine"][-1] == "23.7/43.9"
    assert rows["LLaMA-3-8B-Instruct"][-1] == "22.7/45.5"
    assert rows["LLaMA-3-8B AgentGym"][0] == "61.9/76.9†"
    assert rows["LLaMA-3-8B AgentGen"][-1] == "-"
    assert "held-out of LLaMA-3-8B AgentGen (published) needs scienceworld, jericho" in shown


@pytest.mark.long
def test_it_writes_markdown_a_page_a_picture_and_json(evals: Path, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "comparison"
    result = compare(evals / "base", evals / "first", "--paper", "-o", folder)
    assert result.exit_code == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        f"compare.{kind}" for kind in ("html", "json", "md", "png")
    ]
    assert (folder / "compare.png").read_bytes().startswith(b"\x89PNG")
    page = (folder / "compare.html").read_text()
    assert set(re.findall(r' (?:src|href)="(.)', page)) <= {"#"}
    assert "<svg" in page
    assert ">17.9 [10.7, 25.0]<" in page
    assert "<script" not in page
    assert "| babyai | base | 112 | 17.9 \\[10.7, 25.0\\] |" in (folder / "compare.md").read_text()
    facts = json.loads((folder / "compare.json").read_bytes())
    tables = facts["tables"]
    babyai = [row for row in tables["scores"] if (row["task"], row["evaluation"]) == ("babyai", "first")]
    assert babyai[0]["success"]["mean"] == pytest.approx(40 / 112)
    assert tables["differences"][0]["p"] == {"p": pytest.approx(0.0002, abs=0.0005), "test": "McNemar, exact"}
    assert tables["main"][6]["evaluation"] == "LLaMA-3-8B AgentRefine (published)"
    assert tables["main"][6]["held-out"]["progress"] == pytest.approx(0.43946, abs=1e-5)
    assert compare(evals / "base", "-o", folder).exit_code == 0, "what is there is replaced"


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    name = HOSTILE.replace("/", "")
    write_log(tmp_path / name, "worlds", {"a": scored(1, 0), "b": [None, None]}, argument=HOSTILE, model=HOSTILE)
    result = compare(tmp_path / name, "-o", tmp_path / "out")
    assert result.exit_code == 0
    assert is_inert(result.stdout)
    assert "<script" not in (tmp_path / "out" / "compare.html").read_text()
    written = (tmp_path / "out" / "compare.md").read_text()
    assert "<script" not in re.sub(r"\\.", "", written)
    assert "[x](y)" not in written


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give folders of evaluations, or --paper"),
        (("EVALS/broken",), "cannot be read"),
        (("--paper", "-o", "EVALS/broken/0.eval"), "is a file"),
    ],
)
def test_wrong_input_exits_with_2(evals: Path, arguments: tuple[str, ...], words: str) -> None:
    (evals / "broken").mkdir()
    (evals / "broken" / "0.eval").write_bytes(b"PK\x03\x04 but no archive")
    result = compare(*(one.replace("EVALS", str(evals)) for one in arguments))
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""
