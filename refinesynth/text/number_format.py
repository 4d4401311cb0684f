"""Numbers as people read them."""

import math

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_MILLS = 0.001
_MOST_DIGITS = 10


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 turn`, `1,200 turns`; `plural` for nouns that take no s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def compact(number: float) -> str:
    """Three significant digits: `950`, `12.3k`, `4.56M`."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        # Just below a size, rounding would show 1000 of the next smaller one.
        if number >= size * 0.9995:
            digits = number / size
            return f"{digits:.{2 if digits < 9.995 else 1 if digits < 99.95 else 0}f}{suffix}"  # noqa: PLR2004
    return f"{number:.0f}"


def in_bytes(size: float) -> str:
    """`0 bytes`, `300 KiB`, `12 MiB`, `3.4 GiB`: the largest unit of which there is one."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:,.{1 if unit == 'GiB' else 0}f} {unit}"
    return f"{size:.0f} bytes"


def duration(seconds: float) -> str:
    """`0:07`, `12:30`, `3:05:00`, `2 d 04:00`; seconds are cut, not rounded."""
    rounded = int(seconds)
    hours, minutes = rounded % _DAY // _HOUR, rounded % _HOUR // _MINUTE
    if rounded >= _DAY:
        return f"{rounded // _DAY} d {hours:02}:{minutes:02}"
    if rounded >= _HOUR:
        return f"{hours}:{minutes:02}:{rounded % _MINUTE:02}"
    return f"{minutes}:{rounded % _MINUTE:02}"


def per_time(per_second: float) -> str:
    """A rate in the unit that gives it a digit before the point: `2.5/s`, `12.0/min`, `3.1/h`."""
    for size, unit in ((1, "s"), (_MINUTE, "min")):
        if per_second * size >= 1:
            return f"{per_second * size:.1f}/{unit}"
    return f"{per_second * _HOUR:.1f}/h"


def dollars(amount: float) -> str:
    """US dollars: cents, and more digits for less than a dollar, two that count at least."""
    if amount >= 1 or amount == 0:
        return f"{amount:,.2f} USD"
    digits = 4 if amount >= _MILLS else min(_MOST_DIGITS, 1 - math.floor(math.log10(amount)))
    return f"{amount:.{digits}f} USD"
