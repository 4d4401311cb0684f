"""What a terminal shows, and what it would obey."""

import unicodedata


def is_inert(text: str) -> bool:
    """Whether a terminal just shows this; by the categories of Unicode, where the package asks `str.isprintable`."""
    obeyed = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    return all(one in "\n\t\u200c\u200d" or unicodedata.category(one) not in obeyed for one in text)
