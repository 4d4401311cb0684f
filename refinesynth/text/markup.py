"""Untrusted text escaped for Markdown: no heading, link, image or HTML."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from refinesynth.text.json_reader import scrub

_BACKTICKS: Final = re.compile("`+")
_PUNCTUATION: Final = re.compile(r"([\\`*_{}\[\]<>#|~&!$@:^]|(?<=www)\.)", re.IGNORECASE)
"""Characters with a meaning inside a line, including those of bare addresses; escaped text never begins a line."""


def plain_text(text: str) -> str:
    """Return text escaped for Markdown."""
    return _PUNCTUATION.sub(r"\\\1", _one_line(text))


def code(text: str) -> str:
    """Return a code span with a fence that is longer than any run of backticks inside."""
    line = _one_line(text)
    longest = max((len(run) for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def code_in_table(text: object) -> str:
    """Return a code span for a table's cell, with `|` escaped."""
    return code(str(text).replace("|", "\\|"))


def render_markdown(template: Path, filters: Mapping[str, Callable[..., str]], **values: object) -> str:
    """Render a Jinja template; untrusted text must pass through an escaping filter."""
    from jinja2 import Environment, StrictUndefined

    # No autoescape: the result is Markdown, not HTML.
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)  # noqa: S701
    environment.filters.update(filters)
    return environment.from_string(template.read_text(encoding="utf-8")).render(values).strip() + "\n"


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in scrub(text)).split())
