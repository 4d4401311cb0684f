"""Files of text are read as UTF-8; what is another encoding is told by its name before anything is made of it."""

import codecs

_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
"""Byte order marks; that of UTF-16 begins one of UTF-32."""

_OF_FOUR = {(True, False, False, False): "UTF-32-LE", (False, False, False, True): "UTF-32-BE"}
"""Which of every four bytes are not all zero, in Western text."""


def refuse_other_encodings(start: bytes) -> None:
    """Look at the first line of a file, or the part of it that ends with its first line feed byte.

    Not told apart: encodings of single bytes, such as Windows-1252, which look like UTF-8 that is broken in some lines.

    Raises:
        UnicodeError: It is UTF-16 or UTF-32, with or without a byte order mark, or no text.
    """
    name = next((name for mark, name in _MARKS if start.startswith(mark)), None)
    if name is None and b"\0" in start:
        name = _OF_FOUR.get((any(start[::4]), any(start[1::4]), any(start[2::4]), any(start[3::4])))
        even, odd = start[0::2].count(0), start[1::2].count(0)
        if name is None and 4 * max(even, odd) >= len(start) and 8 * min(even, odd) <= max(even, odd):
            name = "UTF-16-BE" if even > odd else "UTF-16-LE"
        if name is None:
            raise UnicodeError("it is no text: there are NUL bytes in its first line; expected UTF-8")
    if name is not None:
        raise UnicodeError(f"it is {name}; expected UTF-8. `iconv -f {name} -t UTF-8` converts it")
