"""A section of docs/benchmarks.md that a program writes between marks of its own."""

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def write_section(program: str, heading: str, text: str, *, page: Path = PAGE) -> None:
    """Replace what the page holds between this program's marks; a page that has none gets them, and the heading, at its
    end."""
    begin, end = f"<!-- measured: python -m {program} -->", f"<!-- /measured: python -m {program} -->"
    told = page.read_text(encoding="utf-8")
    before, found, rest = told.partition(begin)
    after = rest.partition(end)[2] if found else "\n"
    if not found:
        before = f"{told.rstrip()}\n\n## {heading}\n\n"
    page.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", encoding="utf-8")
