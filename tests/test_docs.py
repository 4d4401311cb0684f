"""What README and docs show, runs: each document in a folder of its own, its blocks in order, as a reader types them.

A block that needs a key, a network or a shell of its own is marked by `<!-- not run: reason -->` on the line before it.
"""

import ast
import gc
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
import typer.main

from refinesynth.cli import app

ROOT = Path(__file__).parent.parent
SKILL = ROOT / "refinesynth" / ".agents" / "skills" / "refinesynth" / "SKILL.md"
DOCUMENTS = [ROOT / "README.md", SKILL, *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+) -->\n+)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)#\s]+)(?:#[^)]*)?\)")


class Block(NamedTuple):
    language: str
    code: str
    line: int
    reason: str | None


def blocks(document: Path) -> Iterator[Block]:
    text = document.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("code")) + 1
        yield Block(found["language"], found["code"], line, found["reason"])


def run_python(block: Block, document: Path, namespace: dict[str, object] | None = None) -> None:
    """Run a block as a notebook would, `await` on its top level included."""
    # Padded, so that a traceback names the line in the document.
    source = "\n" * (block.line - 1) + block.code
    code = compile(source, str(document), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    namespace = {"__name__": "__main__"} if namespace is None else namespace
    if code.co_flags & inspect.CO_COROUTINE:
        anyio.run(partial(_evaluate, code, namespace))
    else:
        exec(code, namespace)


async def _evaluate(code: object, namespace: dict[str, object]) -> None:
    await eval(code, namespace)  # type: ignore[arg-type]


def run_shell(block: Block, warm: Path) -> None:
    """Run a block as one shell script that stops at the first failure."""
    programs = f"{warm}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        env={**os.environ, "PATH": programs, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"line {block.line}:\n{block.code}\n{done.stdout}\n{done.stderr}"


@pytest.mark.process
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_run(document: Path, warm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(document):
        if block.reason is not None:
            continue
        if block.language == "python":
            run_python(block, document)
        elif block.language == "bash":
            run_shell(block, warm)
    # Inspect leaves streams open, of which the warnings are not for a later test.
    gc.collect()


@pytest.mark.parametrize("name", ["quickstart", "curation"])
def test_the_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "curation":
        pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    path, namespace = ROOT / "docs" / f"{name}.ipynb", dict[str, object]()
    cells = [cell for cell in json.loads(path.read_bytes())["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        assert cell["outputs"] == []
        run_python(Block("python", "".join(cell["source"]), 1, None), path, namespace)
    assert (tmp_path / f"{name}.openai.jsonl").stat().st_size > 0


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    targets = [found["target"] for found in _LINK.finditer(document.read_text(encoding="utf-8"))]
    # The pages of the reference are made with the site, which is built strictly (test_site.py).
    local = [target for target in targets if not target.startswith(("http://", "https://", "reference/"))]
    assert [target for target in local if not (document.parent / target).exists()] == []


def test_every_block_says_what_it_is() -> None:
    unnamed = [
        f"{document.name}:{block.line}" for document in DOCUMENTS for block in blocks(document) if not block.language
    ]
    assert unnamed == []


def test_the_readme_shows_python_and_shell() -> None:
    languages = {block.language for block in blocks(ROOT / "README.md") if block.reason is None}
    assert {"python", "bash"} <= languages


_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_NAME = re.compile(r"`(refinesynth(?:\.\w+)+)[(`]")
_TEST = re.compile(r"`((?:\w+/)*test_\w+\.py)`")
_OF_OTHERS = {
    *("--help", "--nproc-per-node", "--quick", "--display", "--log-dir", "--seeds", "--workers", "--report"),
    *("--world-size", "--nb-objects", "--quest-length", "--experiment", "--worlds", "--env", "--client"),
    *("--jinja", "--enable-auto-tool-choice", "--tool-call-parser"),
    *("--array", "--cpus-per-task", "--job-name", "--mem", "--open-mode", "--requeue", "--signal", "--time"),
    *("--jinja", "--enable-auto-tool-choice", "--tool-call-parser", "--enable-cache-report"),
    *("--enable-prompt-tokens-details", "--policy", "--routing-key-override", "--session-key"),
    *("--nodes", "--ntasks-per-node", "--cpus-per-task", "--overlap", "--head", "--port", "--num-cpus", "--block"),
    *("--address", "--exclude", "--enable-lora", "--device", "--merge", "--no-deps", "--output-dir"),
    *("--arm", "--size", "--limit-minutes", "--results", "--additional-suffix"),
}
"""Of any command, of pip, of llama.cpp, of Slurm and Ray, of torchrun, of the benchmarks, of Inspect, of TextWorld, of verifiers, of servers of models, of split."""
_SPAN_ATTRIBUTES = {"refinesynth.stage", "refinesynth.number", "refinesynth.accepted"}


def options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for name in getattr(command, "commands", {}):
        _, below, _ = command.resolve_command(None, [name])
        yield from options(below)


def exists(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_options_names_and_tests_that_a_page_names_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert set(_OPTION.findall(text)) - {*options(typer.main.get_command(app)), *_OF_OTHERS} == set()
    assert [name for name in {*_NAME.findall(text)} - _SPAN_ATTRIBUTES if not exists(name)] == []
    tests = (path.removeprefix("tests/") for path in _TEST.findall(text))
    assert [path for path in tests if not (ROOT / "tests" / path).exists()] == []
