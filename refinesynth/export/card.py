"""The dataset card: a README.md that the Hugging Face Hub understands, about one export.

Titles, model names, rules and personas are text that others wrote. For any such text, the YAML header stays the header
that is meant, and the Markdown body gets no heading, link, image or HTML from them.
"""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from refinesynth._version import __version__
from refinesynth.export.facts import CardFacts
from refinesynth.export.writing import ExportReport
from refinesynth.files.atomic_write import output_file
from refinesynth.text.jsontext import scrub
from refinesynth.text.markdown import code, plain_text

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATE = Path(__file__).with_name("card.md.jinja")


def yaml_text(text: str) -> str:
    """A double-quoted YAML scalar; what YAML does not allow as it stands is escaped."""
    escaped = (char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08X}" for char in scrub(text))
    return f'"{"".join(escaped)}"'


def render_card(facts: CardFacts, report: ExportReport) -> str:
    """The card's text."""
    return _template().render(facts=facts, tally=facts.tally, report=report, version=__version__).strip() + "\n"


@cache
def _template() -> "Template":
    from jinja2 import Environment, StrictUndefined

    # Markdown, not HTML: the filters below escape, and each use of untrusted text goes through one of them.
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)  # noqa: S701
    environment.filters.update(yaml=yaml_text, text=plain_text, code=code)
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
