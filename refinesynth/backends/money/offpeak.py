"""Hours in which a provider is cheaper, as litellm's price map writes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError


@dataclass(frozen=True)
class Window:
    """From a time of day in UTC up to another, perhaps over midnight, on certain days."""

    start: time
    end: time
    days: frozenset[int] = frozenset(range(1, 8))
    """1 is Monday."""

    def holds(self, now: time, day: int) -> bool:
        """Whether a moment lies in it."""
        if day not in self.days:
            return False
        return self.start <= now < self.end if self.start < self.end else now >= self.start or now < self.end


@dataclass(frozen=True, eq=False)
class OffPeak:
    """Windows, and the calendar by which their days are told. One of them equals only itself: that is quick to look up."""

    windows: tuple[Window, ...]
    calendar: str = "UTC"

    def holds(self, seconds: float) -> bool:
        """Whether a moment, in seconds since 1970, lies in one of the windows."""
        return _holds(self, int(seconds) // 60)

    @classmethod
    def read(cls, block: Mapping[str, Any]) -> "OffPeak | None":
        """From an entry's `off_peak_pricing`; None if it cannot be understood, and then the usual, dearer prices count."""
        try:
            windows = [_window(text) for text in _texts(block.get("hours_utc", ()))]
            for rule in block.get("windows", ()):
                days = frozenset(int(day) for day in rule.get("weekdays", range(1, 8)))
                windows += [_window(text, days) for text in _texts(rule["hours_utc"])]
            calendar = block.get("weekday_timezone", "UTC")
            ZoneInfo(calendar)
        except (TypeError, ValueError, KeyError, AttributeError, ZoneInfoNotFoundError):
            return None
        return cls(tuple(windows), calendar)


def _texts(hours: str | list[str]) -> list[str]:
    return [hours] if isinstance(hours, str) else list(hours)


def _window(text: str, days: frozenset[int] = frozenset(range(1, 8))) -> Window:
    start, end = text.split("-")
    return Window(time.fromisoformat(start.strip()), time.fromisoformat(end.strip()), days)


@lru_cache(maxsize=64)
def _holds(hours: OffPeak, minute: int) -> bool:
    # Asked for every completion, and windows begin and end with a minute.
    moment = datetime.fromtimestamp(minute * 60, UTC)
    day = moment.astimezone(ZoneInfo(hours.calendar)).isoweekday()
    return any(window.holds(moment.time(), day) for window in hours.windows)
