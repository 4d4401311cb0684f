"""The dataset card: a README.md that the Hugging Face Hub understands, about one export.

Titles, model names, rules and personas are text that others wrote. Whatever they hold, the YAML header stays the header that is
meant, and the Markdown body gets no heading, link, image or HTML from them.
"""

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from refinesynth._version import __version__
from refinesynth.atomic_write import output_file
from refinesynth.export.facts import CardFacts
from refinesynth.export.writing import ExportReport
from refinesynth.jsontext import scrub

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATE = Path(__file__).with_name("card.md.jinja")
_BACKTICKS = re.compile("`+")
_PUNCTUATION = re.compile(r"([\\`*_{}\[\]<>#|~&!$@:^]|(?<=www)\.)", re.IGNORECASE)
"""What means something inside a line, the beginning of a bare address included; the text never begins one."""


def yaml_text(text: str) -> str:
    """A double-quoted YAML scalar; what YAML does not allow as it stands is escaped."""
    escaped = (char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08X}" for char in scrub(text))
    return f'"{"".join(escaped)}"'


def markdown_text(text: str) -> str:
    """Text on one line that Markdown shows as it is."""
    return _PUNCTUATION.sub(r"\\\1", _one_line(text))


def markdown_code(text: str) -> str:
    """A code span on one line; its fence is longer than any run of backticks inside."""
    line = _one_line(text)
    longest = max((len(run) for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in scrub(text)).split())


def render_card(facts: CardFacts, report: ExportReport) -> str:
    """The card's text."""
    return _template().render(facts=facts, tally=facts.tally, report=report, version=__version__).strip() + "\n"


@cache
def _template() -> "Template":
    from jinja2 import Environment, StrictUndefined

    # Markdown, not HTML: the filters below escape, and each use of untrusted text goes through one of them.
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)  # noqa: S701
    environment.filters.update(yaml=yaml_text, text=markdown_text, code=markdown_code)
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))


def write_card(facts: CardFacts, report: ExportReport, *, overwrite: bool = False) -> Path:
    """Write the card as README.md beside the export, and say where it is.

    Raises:
        InputError: There is a README.md and it may not be overwritten, or it cannot be written.
    """
    path = report.path.with_name("README.md")
    with output_file(path, overwrite=overwrite) as file:
        file.write(render_card(facts, report).encode())
    return path
