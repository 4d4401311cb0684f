"""How long it is fuzzed, and how what was right is damaged.

A handful of examples belong to the test suite. `FUZZ_EXAMPLES=20000 pytest tests/fuzz` fuzzes in earnest; what
Hypothesis finds it keeps in `.hypothesis` and tries first the next time, with few examples too.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "15"))

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much, HealthCheck.large_base_example)

thoroughly = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=_SLOW)

_Content = TypeVar("_Content", str, bytes)

TEXTS = (
    "", "\x00", "\ud800", "\x1b[2J", "\u2028", "\r\n", "\n\n", "{", "}", "[", "]", '"', "\\", "\\u", "\\ud800", ",", ":", "null", "NaN",
    "1e400", "9" * 5_000, "[" * 200, '{"a":' * 200, "```json\n", "```", "Thought:", "**Action:**", "Observation:", "Task Succeed",
    '{"role": "DM"}', '"turns": []', "{item}", "^(a+)+$", "\ufeff", "e\u0301", "'", "True", "//", "/*",
)  # fmt: skip
"""Pieces that somebody stumbles over."""


@dataclass(frozen=True)
class Edit:
    """One change: what stands at a place, given as a share of the length, is replaced."""

    at: float
    length: int
    by: str

    def do(self, content: _Content) -> _Content:
        start = int(self.at * len(content))
        by: Any = self.by if isinstance(content, str) else self.by.encode(errors="surrogatepass")
        return content[:start] + by + content[start + self.length :]


_shares = st.floats(0, 1)
edits = st.builds(Edit, _shares, st.integers(0, 60), st.sampled_from(TEXTS) | st.text(st.characters(), max_size=5))
cuts = st.builds(Edit, _shares, st.just(10**9), st.just(""))
flips = st.builds(Edit, _shares, st.just(1), st.integers(0, 255).map(chr))


def damaged(right: st.SearchStrategy[_Content], *, most: int = 6) -> st.SearchStrategy[_Content]:
    """What is right with a few changes; now and then none, or the end missing."""

    def change(content: _Content, changes: list[Edit]) -> _Content:
        for edit in changes:
            content = edit.do(content)
        return content

    changes = st.lists(edits | cuts | flips, max_size=most)
    return st.builds(change, right, changes)


def json_values(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Any JSON value, with what Python's reader takes beyond JSON."""
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
    return st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
    )


def only(*errors: type[Exception]) -> Callable[[Callable[[], object]], object]:
    """Call something that may raise these errors, with a message, and no others."""

    def call(function: Callable[[], object]) -> object:
        try:
            return function()
        except errors as error:
            text = str(error)
        assert text.strip()
        return None

    return call
