"""Which domain a row belongs to: by a field where there is one, else by the noun that its persona begins with."""

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache

from pydantic import JsonValue

from refinesynth.personas.near import words
from refinesynth.personas.rows import Record

DOMAIN = "domain"
"""Balance by whichever of `DOMAIN_FIELDS` a row has."""
AUTO = "auto"
"""Balance by what personas are, by their first words."""

DOMAIN_FIELDS = (
    "general domain (top 1 percent)",
    "general domain (top 0.1 percent)",
    "general domain",
    "domain",
    "category",
)
"""Fields that are taken for a domain; the first that says something counts. Persona Hub's elite files have the first
two."""

NO_DOMAIN = "(none)"
"""The domain of rows whose fields name none; such rows are one group."""

_MISSING = frozenset({"", "none", "null", "nan", "n/a", "na", "unknown", "not specified", "-"})
_LONGEST = 100
_FIELD = re.compile(r"[\W_]+")
_SPACE = re.compile(r"\s+")


def domain_of(record: Record, by: str = DOMAIN) -> str | None:
    """The domain of a row: None if its fields name none.

    Names of fields are compared without regard to case and punctuation, so that a misspelled extra column of the same
    name stands in for a field that is empty. Domains are compared without regard to case, space and quotes around them.

    Args:
        record: The row.
        by: `domain`, `auto`, or the name of a field.
    """
    if by == AUTO:
        return leading_noun(record.persona.text)
    wanted = tuple(map(_plain, DOMAIN_FIELDS)) if _plain(by) == DOMAIN else (_plain(by),)
    named: dict[str, str] = {}
    for name, value in record.fields.items():
        plain = _plain(name)
        if plain in wanted and plain not in named and (domain := _said(value)) is not None:
            named[plain] = domain
    return next((named[name] for name in wanted if name in named), None)


def has_domain_field(fields: Mapping[str, JsonValue], by: str = DOMAIN) -> bool:
    """Whether a row has such a field at all, be it empty."""
    wanted = {_plain(name) for name in DOMAIN_FIELDS} if _plain(by) == DOMAIN else {_plain(by)}
    return by == AUTO or any(_plain(name) in wanted for name in fields)


@lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    return _FIELD.sub(" ", name.replace(".", "point")).strip().casefold()


def _said(value: JsonValue) -> str | None:
    """The domain that a field names; None for null, for `None` and the like, and for what is no text."""
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, str):
        return None
    domain = _SPACE.sub(" ", value[: 4 * _LONGEST]).strip(" \"'.,;").casefold()[:_LONGEST]
    return None if domain in _MISSING else domain


_ARTICLES = frozenset({"a", "an", "the", "one", "this", "these", "some", "our", "my", "your", "his", "her", "their"})
_STOPS = frozenset(
    re.findall(
        r"\w+",
        """
        who whose whom which that with without of in on at from for to by as and or but is are was were has have had can
        after before during while when where between under over near into about against among through only also not if so
        currently recently specialized specialised specializing focused dedicated located based known passionate responsible
        fluent interested eager working living looking running seeking studying
        """,
    )
)
"""Words that end the noun phrase a persona begins with."""
_PEOPLE = frozenset(
    re.findall(
        r"\w+",
        """
        nurse chef coach student graduate farmer judge guide pilot smith tailor cook clerk monk nun priest mayor parent
        mother father grandmother grandfather widow widower child teenager veteran expert critic scholar architect
        professional enthusiast freelance novice apprentice intern fan advocate executive representative diplomat chief
        police host aide page scout spy thief poet artist person individual citizen user resident member people
        """,
    )
)
_AGENT = re.compile(
    r"\w{2,}(er|ers|or|ors|ist|ists|ian|ians|eur|eurs|ant|ants|man|men|woman|women|smith|wright|keeper|maker|path|monger|yst|ysts)"
)
_LOOKED_AT = 12
"""Words at the beginning that are looked at."""


def leading_noun(text: str) -> str:
    """What a persona is, roughly: `A retired engineering professor who ...` is a `professor`.

    Of the words before the first that ends a noun phrase, the last that looks like a name for people, else the last
    one. For texts that begin in a script other than Latin, the first word of that letter's name in Unicode (`cyrillic`,
    `cjk`, ...).
    """
    letter = next(filter(str.isalpha, text), None)
    script = "unknown" if letter is None else unicodedata.name(letter, "unknown").split()[0].casefold()
    if script != "latin":
        return script
    parts = re.split(r"[,;:.!?()\u2014]", text[:400])
    begin = next((part for part in parts if part.strip()), "").replace("-", " ")
    found = [word for word in words(begin)[:_LOOKED_AT] if word and not word.isdigit()]
    while found and found[0] in _ARTICLES:
        del found[0]
    end = next((at for at, word in enumerate(found) if word in _STOPS and at), len(found))
    phrase = found[:end]
    people = [word for word in phrase if word in _PEOPLE or _AGENT.fullmatch(word)]
    return (people or phrase or [script])[-1]
