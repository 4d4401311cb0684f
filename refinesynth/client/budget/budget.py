"""What a run may spend, as a value: US dollars, tokens, or both."""

import math
import re
from dataclasses import dataclass
from typing import cast

from refinesynth.errors import InputError

_SCALES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
_NUMBER = r"(?P<number>\d+(?:_\d+)*(?:\.\d*)?(?:e[+]?\d+)?|\.\d+)"
_DOLLARS = re.compile(rf"\$\s*{_NUMBER}|{_NUMBER.replace('number', 'behind')}\s*(?:usd|\$|dollars?)", re.IGNORECASE)
_TOKENS = re.compile(rf"{_NUMBER}\s*(?P<scale>[kmgb]?)\s*tok(?:en)?s?", re.IGNORECASE)
_HOW = "write for example 50usd, 20Mtok, 800ktok, or 50usd,20Mtok for both"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A hard stop. Whichever limit is reached first counts; without one, nothing is limited."""

    usd: float | None = None
    """US dollars."""
    tokens: float | None = None
    """Of prompts, cached ones included, and answers together."""

    def __post_init__(self) -> None:
        for name, value in (("usd", self.usd), ("tokens", self.tokens)):
            if value is not None and not (_is_number(value) and 0 < value < math.inf):
                raise InputError(f"a budget of {value!r} {name}: expected a number above 0; {_HOW}")

    def __str__(self) -> str:
        parts: list[str] = []
        if self.usd is not None:
            parts.append(f"{self.usd:,.2f} USD" if self.usd >= 1 else f"{self.usd:g} USD")
        if self.tokens is not None:
            parts.append(f"{self.tokens:,.0f} tokens")
        return " and ".join(parts) or "no limit"

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """`50usd`, `$0.50`, `20Mtok`, `1e6 tokens`, or one of each with a comma between.

        Raises:
            InputError: It is nothing of the kind, not above 0, or names one limit twice.
        """
        limits: dict[str, float] = {}
        for part in text.split(","):
            name, value = _limit(part.strip(), text)
            if name in limits:
                raise InputError(f"the budget {text!r} names {name} twice; {_HOW}")
            limits[name] = value
        return cls(**limits)

    @classmethod
    def of(cls, given: "Budget | str | None") -> "Budget | None":
        """What was given for a budget, as one.

        Raises:
            InputError: It is none.
        """
        if given is None or isinstance(given, Budget):
            return given
        if not isinstance(cast("object", given), str):
            raise InputError(f"a budget of {given!r}: expected Budget(...) or text; {_HOW}")
        return cls.parse(given)


def _limit(part: str, text: str) -> tuple[str, float]:
    if found := _DOLLARS.fullmatch(part):
        return "usd", float(found["number"] or found["behind"])
    if found := _TOKENS.fullmatch(part):
        return "tokens", float(found["number"]) * _SCALES[found["scale"].casefold()]
    raise InputError(f"{text!r} is no budget; {_HOW}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
