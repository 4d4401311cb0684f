"""Untrusted text in Markdown: shown as it is, on one line, never as heading, link, image or HTML."""

import re
from typing import Final

from refinesynth.text.json_reader import scrub

_BACKTICKS: Final = re.compile("`+")
_PUNCTUATION: Final = re.compile(r"([\\`*_{}\[\]<>#|~&!$@:^]|(?<=www)\.)", re.IGNORECASE)
"""Characters with a meaning inside a line, the beginning of a bare address included; the text never begins one."""


def plain_text(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return _PUNCTUATION.sub(r"\\\1", _one_line(text))


def code(text: str) -> str:
    """Return a code span; its fence is longer than any run of backticks inside."""
    line = _one_line(text)
    longest = max((len(run) for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def code_in_table(text: object) -> str:
    """Return a code span for a table's cell, which a `|` must not end."""
    return code(str(text).replace("|", "\\|"))


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in scrub(text)).split())
