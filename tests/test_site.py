"""The documentation site is built without network, strictly, and reaches what a reader looks for."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import refinesynth

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name in ("docs", "refinesynth", "README.md"):
        (folder / name).symlink_to(ROOT / name)
    build = folder / "build_site.py"
    build.write_text((ROOT / "docs" / "build_site.py").read_text(encoding="utf-8").replace(".parent.parent", ".parent"))
    done = subprocess.run(
        [sys.executable, str(build), "--strict"], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


@pytest.mark.process
def test_the_site_is_built_strictly_and_is_whole(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    assert [page for page in pages if not (site / page).is_file()] == []
    for page in site.rglob("*.html"):
        sources = re.findall(r"<(?:script|img|link)[^>]* (?:src|href)=\"(https?:[^\"]+)\"", page.read_text("utf-8"))
        assert sources == [], page
    index = (site / "llms.txt").read_text("utf-8")
    listed = re.findall(r"\]\(([^)]+)\)", index)
    assert len(listed) > 30
    assert [page for page in listed if not (site / page).is_file()] == []


@pytest.mark.process
def test_the_reference_is_made_from_the_package(site: Path) -> None:
    commands = (site / "reference" / "cli.md").read_text("utf-8")
    assert "## refinesynth personas dedup" in commands
    assert "`--early-stop`" in commands
    settings = (site / "reference" / "settings.md").read_text("utf-8")
    assert "| `early_stop`" in settings
    assert "learning_rate" in settings
    schema = json.loads((site / "reference" / "trajectory.schema.json").read_bytes())
    assert {"id", "persona", "script", "turns", "provenance"} <= set(schema["properties"])
    rules = (site / "reference" / "refinesynth.rules.html").read_text("utf-8")
    assert 'id="refinesynth.rules.Rule"' in rules
    top = (site / "reference" / "refinesynth.html").read_text("utf-8")
    public = [name for name in refinesynth.__all__ if name[0].isupper()]
    assert [name for name in public if f'id="refinesynth.{name}"' not in top] == []
    for function in ("synthesis.synthesize.synthesize", "evaluate.evaluate"):
        assert f'id="refinesynth.{function}"' in top


@pytest.mark.process
@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("write a rule", "BaseRule"),
        ("limit the cost", "--budget"),
        ("your own server", "base_url"),
        ("data of other projects", "refinesynth import"),
        ("the loss mask", "no loss"),
    ],
)
def test_a_task_of_the_start_page_leads_to_its_answer(site: Path, task: str, answer: str) -> None:
    rows = [line for line in (site / "index.md").read_text("utf-8").splitlines() if task in line.lower()]
    targets = re.findall(r"\]\(([^)#]+)", " ".join(rows))
    assert any(answer in (site / target).read_text("utf-8") for target in targets)
