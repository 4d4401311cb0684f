"""Numbers formatted for people."""

import math

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_MILLS = 0.001
_MAX_DIGITS = 10


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 turn`, `1,200 turns`; `plural` is for irregular nouns."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def compact(number: float) -> str:
    """Return a number with three digits, or below 1,000 without decimals: `950`, `12.3k`, `4.56M`."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        # From 0.9995 of a size on, rounding would give 1000 of the next smaller unit.
        if number >= size * 0.9995:
            digits = number / size
            return f"{digits:.{2 if digits < 9.995 else 1 if digits < 99.95 else 0}f}{suffix}"  # noqa: PLR2004
    return f"{number:.0f}"


def in_bytes(size: float) -> str:
    """Return a size in the largest unit with a value of 1 or more: `0 bytes`, `300 KiB`, `12 MiB`, `3.4 GiB`."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:,.{1 if unit == 'GiB' else 0}f} {unit}"
    return f"{size:.0f} bytes"


def duration(seconds: float) -> str:
    """Return a duration as `0:07`, `12:30`, `3:05:00` or `2 d 04:00`; fractions are cut, not rounded."""
    rounded = int(seconds)
    hours, minutes = rounded % _DAY // _HOUR, rounded % _HOUR // _MINUTE
    if rounded >= _DAY:
        return f"{rounded // _DAY} d {hours:02}:{minutes:02}"
    if rounded >= _HOUR:
        return f"{hours}:{minutes:02}:{rounded % _MINUTE:02}"
    return f"{minutes}:{rounded % _MINUTE:02}"


def per_time(per_second: float) -> str:
    """Return a rate in the first unit with a value of 1 or more, or else per hour: `2.5/s`, `12.0/min`, `3.1/h`."""
    for size, unit in ((1, "s"), (_MINUTE, "min")):
        if per_second * size >= 1:
            return f"{per_second * size:.1f}/{unit}"
    return f"{per_second * _HOUR:.1f}/h"


def dollars(amount: float) -> str:
    """Return US dollars with two decimals, or below one dollar with four or more, for two significant digits."""
    if amount >= 1 or amount == 0:
        return f"{amount:,.2f} USD"
    digits = 4 if amount >= _MILLS else min(_MAX_DIGITS, 1 - math.floor(math.log10(amount)))
    return f"{amount:.{digits}f} USD"
