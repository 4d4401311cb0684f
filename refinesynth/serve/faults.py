"""What may go wrong with a request on purpose, how long an answer takes, and how both are written on a command line."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from random import Random
from typing import Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from refinesynth.errors import InputError

Fault = int | str
"""An HTTP status, or the name of a field of `HttpFaults`."""

_STATUS = re.compile(r"[0-9]{3}")
_DURATION = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{0,9})?)[ ]?(?P<unit>ms|s|m)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}
_LONGEST = 3_600.0

_SUM_SLACK = 1e-9


class HttpFaults(BaseModel, frozen=True, extra="forbid"):
    """The share of requests that fails, by kind; together at most all of them.

    From `drip` on, the completion function is asked, and its answer breaks on the way: such a request counts as paid.
    """

    statuses: Mapping[int, float] = Field(default_factory=dict[int, float])
    """HTTP error status (400 to 599) to the share of requests that get it; 429 and 503 come with Retry-After."""
    busy: float = 0.0
    """429 without Retry-After."""
    hang: float = 0.0
    """Never answered; the connection stays open until the client gives up."""
    before: float = 0.0
    """The connection is reset (TCP RST) before any byte of an answer."""
    garbage: float = 0.0
    """Answered with status 200 and a body that is no JSON."""
    drip: float = 0.0
    """The answer comes a byte at a time, ten a second."""
    middle: float = 0.0
    """Reset in the middle of the body."""
    after: float = 0.0
    """Reset right after the whole body."""

    @model_validator(mode="after")
    def _are_shares(self) -> Self:
        for name, share in self._shares():
            if not 0.0 <= share <= 1.0:
                raise ValueError(f"{name}={share:g} is no share of the requests; it lies between 0 and 1")
        for status in self.statuses:
            if not 400 <= status <= 599:  # noqa: PLR2004 - HTTP's range of errors
                raise ValueError(f"{status} is no HTTP error status; they run from 400 to 599")
        if (total := sum(share for _, share in self._shares())) > 1.0 + _SUM_SLACK:
            raise ValueError(f"the shares add up to {total:g}, which is more than 1")
        return self

    def _shares(self) -> list[tuple[Fault, float]]:
        return [*sorted(self.statuses.items()), *((name, getattr(self, name)) for name in NAMES)]

    def draw(self, random: Random) -> Fault | None:
        """What goes wrong with one request, if anything. Takes one number from `random`, for any shares."""
        point = random.random()
        for fault, share in self._shares():
            if point < share:
                return fault
            point -= share
        return None


NAMES = tuple(name for name in HttpFaults.model_fields if name != "statuses")
"""The kinds of faults that are no HTTP status."""


def parse_faults(text: str) -> HttpFaults:
    """Read `429=0.05,500=0.01,hang=0.001,garbage=0.01`; blank means no faults.

    Raises:
        InputError: Something in it is no fault or no share, is given twice, or the shares add up to more than 1.
    """
    shares: dict[str, float] = {}
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, share = (part.strip() for part in piece.casefold().partition("="))
        if not equals:
            raise InputError(f"{piece!r} is no fault; write a kind, an equals sign and a share, as in 429=0.05")
        if not (_STATUS.fullmatch(name) or name in NAMES):
            near = get_close_matches(name, NAMES, n=1)
            meant = f" (did you mean {near[0]}?)" if near else ""
            raise InputError(
                f"{name!r} is no kind of fault{meant}; use an HTTP status such as 429, or {', '.join(NAMES)}"
            )
        if name in shares:
            raise InputError(f"{name!r} is given twice in {text!r}; give it once")
        try:
            shares[name] = float(share)
        except ValueError as error:
            raise InputError(
                f"{piece!r}: {share!r} is no number; write a share between 0 and 1, as in 429=0.05"
            ) from error
    statuses = {int(name): shares.pop(name) for name in list(shares) if name not in NAMES}
    try:
        return HttpFaults.model_validate({"statuses": statuses, **shares})
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise InputError(f"the faults {text!r} cannot be: {reason}") from error


def parse_duration(text: str) -> float:
    """Read `200ms`, `1.5s`, `2m` or `0`, in seconds; an hour at most.

    Raises:
        InputError: It is none of these.
    """
    given = text.strip().casefold()
    if given in {"0", "0.0"}:
        return 0.0
    if not (read := _DURATION.fullmatch(given)):
        raise InputError(f"{text!r} is no duration; write a number and a unit, as in 200ms, 1.5s or 2m")
    seconds = float(read["number"]) * _SECONDS[read["unit"]]
    if seconds > _LONGEST:
        raise InputError(f"{text!r} is too long; an hour (60m) is the most")
    return seconds
