"""Untrusted regular expressions on RE2: linear time, bounded memory, silenced log.

Patterns are written by an LLM. RE2 has no look-around and no backreferences; a refused pattern is reported with the
reason. Texts are matched as UTF-8 bytes, so RE2's wrapper need not count characters; lone surrogates count as U+FFFD.
"""

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, cast

import re2

from refinesynth.text.formatting import scrub

MAX_PATTERN_CHARACTERS = 2_000
"""Longest pattern, in characters."""

MAX_MEMORY = 512 * 1024
"""Memory limit of one compiled pattern including its caches, in bytes."""

CACHED_PATTERNS = 2_048
"""Number of cached compiled patterns, which bounds memory for any number of scripts."""

_re2 = cast("Any", re2)


class PatternError(ValueError):
    """A pattern is too long, holds a lone surrogate or is refused by RE2. The message is feedback to its LLM."""


class Pattern:
    """A compiled pattern. Immutable and safe to share between threads."""

    __slots__ = ("_regexp", "groups", "names", "source")

    def __init__(self, source: str, *, ignore_case: bool = False, max_memory: int = MAX_MEMORY) -> None:
        """Compile `source`, without a limit of its length.

        Raises:
            PatternError: RE2 refuses it, or it holds a lone surrogate.
        """
        try:
            self._regexp = _re2.compile(source.encode(), _options(ignore_case, max_memory))
        except UnicodeEncodeError as error:
            raise PatternError("the pattern holds a lone surrogate, which is no character") from error
        except _re2.error as error:
            raise PatternError(f"RE2 refuses the pattern: {_reason(error)}") from error
        self.source = source
        self.groups: int = self._regexp.groups
        """Number of capturing groups, including named ones."""
        numbers = cast("Mapping[bytes, int]", self._regexp.groupindex)
        self.names: Mapping[str, int] = {name.decode(errors="replace"): number for name, number in numbers.items()}
        """Named groups: name to number, from 1."""

    def fullmatch(self, text: bytes) -> tuple[str | None, ...] | None:
        """Return the captures of all groups if all of `text` matches, else None; an unused group has None."""
        match = self._regexp.fullmatch(text)
        if match is None:
            return None
        captured: list[str | None] = []
        for start, end in map(match.span, range(1, self.groups + 1)):
            # `\C` may cut a character in two, hence errors="replace".
            captured.append(None if start < 0 else text[start:end].decode(errors="replace"))
        return tuple(captured)

    def matches(self, text: bytes) -> bool:
        """Return whether all of `text` matches."""
        return self._regexp.fullmatch(text) is not None

    def search(self, text: bytes) -> str | None:
        """Return the first part of `text` that matches, or None."""
        match = self._regexp.search(text)
        return None if match is None else cast("bytes", match.group()).decode(errors="replace")


@cache
def _options(ignore_case: bool, max_memory: int) -> Any:
    options = _re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.max_mem = max_memory
    return options


@lru_cache(maxsize=CACHED_PATTERNS)
def compile_pattern(pattern: str, *, ignore_case: bool = False) -> Pattern:
    """Compile an LLM's pattern; results are cached.

    Raises:
        PatternError: It is longer than `MAX_PATTERN_CHARACTERS`, holds a lone surrogate, or RE2 refuses it.
    """
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise PatternError(
            f"the pattern has {len(pattern):,} characters; at most {MAX_PATTERN_CHARACTERS:,} are allowed"
        )
    return Pattern(pattern, ignore_case=ignore_case)


def pattern_of(template: str) -> str:
    """Return a pattern of the template with any text in its placeholders."""
    *texts, last = map(re.escape, re.split(r"\{[^{}]*\}", template))
    return "(?s)" + "(.*?)".join(texts) + (f"(.*){last}" if texts else last)


def to_utf8(text: str) -> bytes:
    """Return `text` as UTF-8; works for every text."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return scrub(text).encode()


def _reason(error: Exception) -> str:
    reason = cast("object", error.args[0]) if error.args else "no reason given"
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
