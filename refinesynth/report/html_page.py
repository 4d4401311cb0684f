"""Rendering that all pages share: templates that escape values, data for scripts, and shortened texts."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from refinesynth.text.json_reader import write_json
from refinesynth.text.printable import printable

if TYPE_CHECKING:
    from jinja2 import Environment

MAX_TEXT: Final = 4_000
"""Most characters of one text in a page."""


def render_page(template: str, **values: Any) -> str:
    """Return a page; values are escaped unless the template says otherwise."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = FileSystemLoader(Path(__file__).parent)
    return Environment(loader=folder, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True)


def script_data(value: object) -> str:
    """Return JSON that cannot end its script element."""
    return write_json(value).decode().replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def shorten(text: str) -> str:
    """Return a text for a page: printable, and cut at `MAX_TEXT` characters."""
    cut = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text):,} characters)"
    return printable(cut)
