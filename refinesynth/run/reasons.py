"""Why episodes gave no trajectory: counted by what they have in common, in bounded memory."""

import re
from collections import Counter

REASON = 300
"""Characters of a reason that are kept."""
_KEPT = 16
"""Reasons that are told apart. Where there are more, the rarest gives way, so that a count may be too low."""
_OF_ONE_EPISODE = re.compile(r"'[^']*'|\"[^\"]*\"|\d[\d,.]*")
"""Names, words and numbers, which are others in each episode although the reason is the same."""


def count_reason(counts: Counter[str], reason: str) -> None:
    """Count one more episode; alike reasons are counted under the first of them."""
    reason = reason[:REASON]
    shape = _shape(reason)
    known = next((one for one in counts if _shape(one) == shape), None)
    if known is None and len(counts) >= _KEPT:
        del counts[min(counts, key=counts.__getitem__)]
    counts[known or reason] += 1


def _shape(reason: str) -> str:
    return _OF_ONE_EPISODE.sub("", reason)
