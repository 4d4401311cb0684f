"""Text for people and models: safe for a terminal, Markdown or a message to an LLM; numbers and names; without keys.

Untrusted text is escaped: invisible characters in a terminal, and everything with a meaning in Markdown.
"""

import json
import math
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

_LAYOUT_CHARS = frozenset("\n\t\u200c\u200d")
"""Line feed and tab, for layout, and the two joiners, which Persian, Indic scripts and emoji need."""

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    r"""Return `text` with every character that a terminal may interpret or not show escaped as `\uXXXX`.

    Printable characters of Unicode, spaces, line feed, tab and the two joiners stay. Escape and other control characters,
    bidirectional overrides, byte order marks, lone surrogates, private and unassigned characters are escaped. CR LF
    becomes LF. JSON text stays JSON text with the same value. The function is idempotent.
    """
    text = text.replace("\r\n", "\n")
    if text.replace("\n", "").isprintable():  # true for nearly all text, and faster than the check of each character
        return text
    return "".join(
        c if c.isprintable() or c in _LAYOUT_CHARS or unicodedata.category(c) == "Zs" else _escaped(c) for c in text
    )


def one_line(text: str, *, size: int | None = None) -> str:
    """Return `printable` text on one line: line feeds and tabs are escaped too.

    Longer text than `size` characters is cut, with an ellipsis at the end.
    """
    line = printable(text).replace("\n", _escaped("\n")).replace("\t", _escaped("\t"))
    return line if size is None or len(line) <= size else f"{line[: size - 1]}…"


def control_character(text: str) -> str | None:
    """Return the first control character in a text, as `U+0000`, ignoring tabs and line ends; None without one."""
    match = _CONTROL.search(text)
    return match and f"U+{ord(match[0]):04X}"


def _escaped(character: str) -> str:
    # UTF-16 code units, the form of JSON's escapes; a lone surrogate is one unit.
    units = character.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{int.from_bytes(units[index : index + 2], 'big'):04x}" for index in range(0, len(units), 2))


_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_MILLS = 0.001
_MAX_DIGITS = 10


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 turn`, `1,200 turns`; `plural` is for irregular nouns."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def compact(number: float) -> str:
    """Return a number with three digits, or below 1,000 without decimals: `950`, `12.3k`, `4.56M`."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        # From 0.9995 of a size on, rounding would give 1000 of the next smaller unit.
        if number >= size * 0.9995:
            digits = number / size
            return f"{digits:.{2 if digits < 9.995 else 1 if digits < 99.95 else 0}f}{suffix}"  # noqa: PLR2004
    return f"{number:.0f}"


def in_bytes(size: float) -> str:
    """Return a size in the largest unit with a value of 1 or more: `0 bytes`, `300 KiB`, `12 MiB`, `3.4 GiB`."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:,.{1 if unit == 'GiB' else 0}f} {unit}"
    return f"{size:.0f} bytes"


def duration(seconds: float) -> str:
    """Return a duration as `0:07`, `12:30`, `3:05:00` or `2 d 04:00`; fractions are cut, not rounded."""
    rounded = int(seconds)
    hours, minutes = rounded % _DAY // _HOUR, rounded % _HOUR // _MINUTE
    if rounded >= _DAY:
        return f"{rounded // _DAY} d {hours:02}:{minutes:02}"
    if rounded >= _HOUR:
        return f"{hours}:{minutes:02}:{rounded % _MINUTE:02}"
    return f"{minutes}:{rounded % _MINUTE:02}"


def per_time(per_second: float) -> str:
    """Return a rate in the first unit with a value of 1 or more, or else per hour: `2.5/s`, `12.0/min`, `3.1/h`."""
    for size, unit in ((1, "s"), (_MINUTE, "min")):
        if per_second * size >= 1:
            return f"{per_second * size:.1f}/{unit}"
    return f"{per_second * _HOUR:.1f}/h"


def dollars(amount: float) -> str:
    """Return US dollars with two decimals, or below one dollar with four or more, for two significant digits."""
    if amount >= 1 or amount == 0:
        return f"{amount:,.2f} USD"
    digits = 4 if amount >= _MILLS else min(_MAX_DIGITS, 1 - math.floor(math.log10(amount)))
    return f"{amount:.{digits}f} USD"


class DistinctNames:
    """Function that returns `name` for its first call, then `name-2`, `name-3` and so on."""

    def __init__(self) -> None:
        self._uses = Counter[str]()
        """Number of uses of each name."""

    def __call__(self, name: str) -> str:
        self._uses[name] += 1
        candidate = name
        while self._uses[name] > 1 and self._uses[candidate := f"{name}-{self._uses[name]}"]:
            self._uses[name] += 1
        if candidate != name:
            self._uses[candidate] = 1
        return candidate


_BACKTICKS: Final = re.compile("`+")
_PUNCTUATION: Final = re.compile(r"([\\`*_{}\[\]<>#|~&!$@:^]|(?<=www)\.)", re.IGNORECASE)
"""Characters with a meaning inside a line, including those of bare addresses; escaped text never begins a line."""


def plain_text(text: str) -> str:
    """Return text escaped for Markdown."""
    return _PUNCTUATION.sub(r"\\\1", _flattened(text))


def code(text: str) -> str:
    """Return a code span with a fence that is longer than any run of backticks inside."""
    line = _flattened(text)
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


def _flattened(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in scrub(text)).split())


def quoted(text: str, *, limit: int = 160) -> str:
    """Return `text` in double quotes on one line, cut after `limit` characters."""
    cut = scrub(text[:limit])
    return json.dumps(cut if len(text) <= limit else f"{cut}...", ensure_ascii=False)


def listed(items: Iterable[str], *, limit: int = 1_000) -> str:
    """Return `items` quoted and joined by commas, within about `limit` characters."""
    shown: list[str] = []
    length = 0
    for item in items:
        if length > limit:
            return f"{', '.join(shown)}, ..."
        shown.append(quoted(item))
        length += len(shown[-1])
    return ", ".join(shown)


def folded(text: str) -> str:
    """Return `text` without differences in case and white space, for comparisons."""
    return " ".join(text.split()).casefold()


_SECRET_NAME = re.compile(r"(_KEY|_TOKEN|_SECRET|_PASSWORD|_CREDENTIALS)$", re.IGNORECASE)
_MIN_KEY_CHARS = 8
"""Minimum length of a key; replacing shorter values would garble the text."""
_KEY_SHAPES = re.compile(r"\b(?:sk|rk|pk|gsk|xai|hf|AIza)[-_][A-Za-z0-9_\-*]{12,}|(?<=Bearer )[^\s\"']{8,}")
"""Shapes of keys that no environment variable holds, or that a server echoes in part."""


def redact(text: str, *, key: str | None = None) -> str:
    """Return `text` without `key`, values of environment variables named like secrets, and texts shaped like keys.

    Keys are also found in the spellings of JSON, URLs and Python.
    """
    secrets = {
        value for name, value in os.environ.items() if len(value) >= _MIN_KEY_CHARS and _SECRET_NAME.search(name)
    }
    if key is not None and len(key) >= _MIN_KEY_CHARS:
        secrets.add(key)
    # Longest first: one key may begin with another.
    for spelling in sorted({form for secret in secrets for form in _spellings(secret)}, key=len, reverse=True):
        text = text.replace(spelling, "***")
    return _KEY_SHAPES.sub("***", text)


def _spellings(secret: str) -> tuple[str, ...]:
    # Python's JSON does not escape slashes, other encoders do; URLs may or may not quote them.
    urls = (quote(secret, safe="", errors="replace"), quote(secret, errors="replace"))
    text = json.dumps(secret)[1:-1]
    return (secret, text, text.replace("/", "\\/"), repr(secret)[1:-1], *urls)


_SURROGATES = re.compile("[\ud800-\udfff]")


def scrub(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, with U+FFFD."""
    # Nearly all text has no surrogates, and both checks are much faster than a search.
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text)
    return text
