"""Untrusted text made safe for a terminal by escapes of invisible characters."""

import re
import unicodedata

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
