"""Quotations in messages to an LLM: short, and on one line."""

import json
from collections.abc import Iterable

from refinesynth.text.json_reader import scrub


def quoted(text: str, *, most: int = 160) -> str:
    """`text` in double quotes on one line, cut after `most` characters."""
    cut = scrub(text[:most])
    return json.dumps(cut if len(text) <= most else f"{cut}...", ensure_ascii=False)


def listed(items: Iterable[str], *, most: int = 1_000) -> str:
    """`items` quoted, with commas between, as many as fit into about `most` characters."""
    shown: list[str] = []
    length = 0
    for item in items:
        if length > most:
            return f"{', '.join(shown)}, ..."
        shown.append(quoted(item))
        length += len(shown[-1])
    return ", ".join(shown)


def folded(text: str) -> str:
    """`text` without regard to case and white space: two texts that fold alike say the same."""
    return " ".join(text.split()).casefold()
