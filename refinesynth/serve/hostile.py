"""What no server should send and some do: characters that obey or vanish, numbers that are none, values of wrong types."""

from pydantic import JsonValue

CHARACTERS = (
    "\ud800", "\udc00\ud800", "\x00", "\x07\x08", "\x1b[2J\x1b[31m", "\x1b]0;title\x07", "\x1b]8;;http://example.org\x07",
    "\x9b31m", "\x7f", "\u202e", "\u2066\u200f", "\u2028", "\u2029", "\x85", "\r", "\r\n", "\x0b\x0c\x1c\x1e", "\ufeff",
    "\uffff", "\U000e0041", "\u200b", "e\u0301" * 20, "\U0001f9ea",
)  # fmt: skip
"""Lone surrogates, control characters, escape sequences, bidirectional marks, everything that some reader takes for the end
of a line, characters without a glyph."""

NUMBERS = (
    "1e400", "-1e400", "NaN", "Infinity", "-Infinity", "9" * 400, "9" * 5_000, str(2**63), str(-(2**63) - 1), str(2**64),
    "1e-400", "-0.0", "-1", "1.5",
)  # fmt: skip
"""Numbers as JSON text: beyond floats, beyond 64 bits, longer than Python reads, or no JSON at all."""

VALUES: tuple[JsonValue, ...] = (None, True, 0, -1, 1.5, "", "text", [], {}, [[]], ["text"], {"text": {}}, "\x00")
"""Of every type, so that most are of the wrong one wherever they stand."""

PAGE = b"<!doctype html><html><head><title>502 Bad Gateway</title></head><body>Bad Gateway</body></html>"

GARBAGE = (
    b'{"id": "chatcmpl-0", "choices": [{"index": 0, "mess',
    PAGE,
    b"",
    b"\xff\xfe{\x00}\x00",
    b'data: {"choices": []}\n\ndata: [DONE]\n\n',
    b'{"choices": [{"message": {"content": "\xed\xa0\x80"}}]}',
)
"""A connection that broke, a proxy's page, nothing at all, UTF-16, a stream that nobody asked for, a surrogate in UTF-8."""
