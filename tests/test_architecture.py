"""docs/architecture.md names what there is: the rooms of the package in the order of their imports, and files that
exist."""

import ast
import re
import tomllib
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "refinesynth"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

_ROOM = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
_PATH = re.compile(r"`([\w./-]+(?:/|\.(?:py|md|toml|json)))`")


def layers() -> dict[str, int]:
    """Room to its layer in the contract, from the top."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    rows = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return {room.strip().removeprefix("refinesynth."): at for at, row in enumerate(rows) for room in row.split("|")}


def test_the_rooms_are_those_of_the_package_in_the_order_of_imports() -> None:
    there = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} | {path.stem for path in PACKAGE.glob("*.py")}
    rooms = _ROOM.findall(PAGE)
    assert sorted(rooms) == sorted(there - {"__init__", "_version"})
    order = layers()
    assert [order[room] for room in rooms] == sorted(order[room] for room in rooms)


def test_every_file_that_is_named_exists() -> None:
    named = _PATH.findall(PAGE)
    assert len(named) > 50
    assert [path for path in named if not ((PACKAGE / path).exists() or (ROOT / path).exists())] == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    # Imports inside functions and for type checking alone count as well; the error names the circle.
    graph = grimp.build_graph("refinesynth", cache_dir=None)
    imported = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert set(TopologicalSorter(imported).static_order()) == graph.modules


@pytest.mark.long
def test_tests_import_at_most_two_packages_deep() -> None:
    # What lies deeper can be moved and merged without touching a test.
    deep = [
        f"{path.relative_to(ROOT)}: {node.module}"
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("refinesynth.")
        if (node.module or "").count(".") > 3
    ]
    assert deep == []


def test_no_two_files_of_tests_have_one_name() -> None:
    # Pytest imports them by that, and refuses the second.
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


_QUESTION = re.compile(r"(What|Who|Whether|Where|How|Why)\b")


def test_docstrings_begin_with_a_noun_or_an_imperative() -> None:
    """Texts under fields too; of the answers of roles, whose texts a model reads, the module alone."""
    found = [
        f"{file.relative_to(PACKAGE)}:{node.lineno}: {text}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(text := node.value.value, str) and _QUESTION.match(text)
    ]
    assert [one for one in found if not one.startswith("roles/schemas.py")] == []


ONE_MEANING = {
    "registry.py": "entry points, of rules and for Inspect",
    "grounded.py": "the play, and its world as an environment",
    "player.py": "the role, and its part in the rehearsal",
    "script_writer.py": "likewise",
    "narrator.py": "likewise",
    "dungeon_master.py": "likewise",
    "run.py": "a run's settings, and the command",
    "status.py": "a run's status, and the command",
    "__init__.py": "of a package",
    "__main__.py": "of a package",
}


def test_one_file_name_stands_for_one_thing() -> None:
    names = Counter(path.name for path in PACKAGE.rglob("*.py"))
    assert {name for name, files in names.items() if files > 1} == set(ONE_MEANING)


RETIRED = re.compile(
    r"(Account|Asked|Away|Bound|Buyer|Cast|Chance|Claimed|Demand|Fault|FaultKind|Figures|Finished|Forgetful|Lack|Lacks|Ledger|Luck"
    r"|Memory|MixedModel|Move|NoAccount|Paid|Past|Played|Recorded|Room|Ruled|Sending|Served|Shown|Spread|Tally|TakenBack|Talk|Trial"
    r"|Totals|Variety|Verdicts|Way)"
)
"""Names of an earlier vocabulary."""


def test_retired_names_do_not_come_back() -> None:
    defined = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and RETIRED.fullmatch(node.name)
    ]
    assert defined == []


UNCLEAR = re.compile(
    r"_*(above|apart|around|aside|asked|behind|beside|elsewhere|excuse|fates?|foreseen|glance|heard|here|how|lane|luck|mine|ours|purse"
    r"|said|sought|strangers|strikes?|stumbled|theirs|there|told|wake|what|who)_*",
    re.IGNORECASE,
)
"""Pronouns, adverbs, participles without a noun and metaphors, which say nothing about what they name."""


def test_names_say_what_they_name() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {name}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name | ast.arg | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Attribute)
        for name in [getattr(node, {"Name": "id", "arg": "arg", "Attribute": "attr"}.get(type(node).__name__, "name"))]
        if UNCLEAR.fullmatch(name)
    ]
    assert found == []


CLAUSE = re.compile(
    r"\b(what|who|whether|where|how|why|when|is|are|was|were|has|have|does|do|can|must|will)\b", re.IGNORECASE
)


def test_headings_are_noun_phrases() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    headings = [
        f"{page.name}: {line}"
        for page in pages
        for block in re.split(r"^```.*?^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
        if re.match(r"#+ ", line)
    ]
    assert len(headings) > 100
    assert [heading for heading in headings if CLAUSE.search(heading)] == []
