"""Find the records that are asked for, without parsing the others."""

import random
from collections.abc import Iterable

from refinesynth.cli.stored import Line, Unreadable
from refinesynth.errors import InputError
from refinesynth.outcome import Refused
from refinesynth.trajectory import Trajectory

_NAMED = 5
"""Candidates that the message about an ambiguous id names."""

_DIGITS = 6
"""Episode ids begin with the episode's number in at least so many digits."""


def key(record: Trajectory | Refused) -> str:
    """The id of the episode that a record belongs to."""
    return record.id if isinstance(record, Trajectory) else record.episode


def by_id(lines: Iterable[Line], wanted: str) -> list[Trajectory | Refused]:
    """The records of one episode, by its id, its number, or the beginning of its id.

    Raises:
        InputError: No id is or begins so, or several begin so.
    """
    start = f"{wanted.zfill(_DIGITS)}-" if wanted.isdecimal() else wanted
    # Ids are plain text, which JSON does not escape: a line without the text holds no such id and need not be parsed.
    needles = {text.encode(errors="replace") for text in (f'"{wanted}"', f'"{start}')}
    found: dict[str, list[Trajectory | Refused]] = {}
    for line in lines:
        record = line.read() if any(needle in line.data for needle in needles) else None
        if record is None or isinstance(record, Unreadable):
            continue
        if key(record) == wanted or key(record).startswith(start):
            found.setdefault(key(record), []).append(record)
    if wanted in found:
        return found[wanted]
    if not found:
        raise InputError(f"no id is or begins with {wanted!r}; `--list` lists them")
    if len(found) > 1:
        more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
        raise InputError(f"{wanted!r} is the beginning of {len(found):,} ids: {', '.join([*found][:_NAMED])}{more}")
    return next(iter(found.values()))


def at_random(lines: Iterable[Line]) -> Line | None:
    """Any one line, each as likely as the others; None if there is none. Needs one pass and the memory of one line."""
    chosen: Line | None = None
    for seen, line in enumerate(lines):
        if random.randrange(seen + 1) == 0:
            chosen = line
    return chosen
