"""Quotations in messages to an LLM, short and on one line."""

import json
from collections.abc import Iterable

from refinesynth.text.json_reader import scrub


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
