"""Settings of grounded play: execution of the world, and the features that are requested of scripts."""

from dataclasses import fields
from hashlib import blake2b
from math import isqrt
from typing import Annotated, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic.dataclasses import dataclass

from refinesynth.errors import ConfigurationError
from refinesynth.option import MISTAKES, PLAY, Option

_MAX_BAND_LENGTH = 20
"""Longest text of a band, in characters."""

MAX_STEPS = 100
"""Longest solution that a band of difficulty can ask for, in actions."""


_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=False)]

_CIRCLE = 2**64
"""Steps of a circle on which each feature moves; it is requested while in the first part, of the size of its share."""

_STRIDES = (0x9E3779B97F4A7C15, 0x6A09E667F3BCC909, 0xBB67AE8584CAA73B, 0xA54FF53A5F1D36F1)
"""Step of each feature per episode: fractions of the golden ratio and of the roots of 2, 3 and 7, so positions
spread evenly over the circle and features do not coincide."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid", use_attribute_docstrings=True))
class Mix:
    """Shares from 0 to 1 of the scripts with each requested feature. The result is measured, see `Difficulty`.

    Raises:
        pydantic.ValidationError: A share is not between 0 and 1.
    """

    distractors: _Share = 0.7
    """About half of the objects play no part, and some are tempting."""
    irreversible: _Share = 0.3
    """A wrong action can make the goal unreachable for good."""
    hidden: _Share = 0.6
    """Something needed is neither visible nor known at first."""
    preconditions: _Share = 0.8
    """The last step needs several previous steps, each needing the one before."""

    def wanted(self, index: int, seed: int = 0) -> tuple[str, ...]:
        """Return the requested features of episode `index` (from 0), in the fields' order.

        A function of its arguments alone. Among consecutive episodes, a feature's share is met as closely as possible.
        """
        return tuple(
            feature
            for feature, stride in zip(FEATURES, _STRIDES, strict=True)
            if (index * stride + _offset(feature, seed)) % _CIRCLE < getattr(self, feature) * _CIRCLE
        )

    @classmethod
    def parse(cls, text: str) -> "Mix":
        """Parse `hidden=0.5,irreversible=0.2`; other features keep their default.

        Raises:
            ConfigurationError: A part is not `feature=share`.
        """
        shares: dict[str, str] = {}
        for part in filter(None, map(str.strip, text.split(","))):
            feature, sign, share = (piece.strip() for piece in part.partition("="))
            if not sign or feature not in FEATURES or feature in shares:
                raise ConfigurationError(f"mix has {part!r}; {_EXPECTED}")
            shares[feature] = share
        try:
            return cls(**shares)  # pyright: ignore[reportArgumentType] - texts of numbers, which pydantic reads
        except ValidationError as error:
            problem = error.errors()[0]
            raise ConfigurationError(f"mix has {problem['loc'][-1]}={problem['input']!r}; {_EXPECTED}") from None


FEATURES = tuple(field.name for field in fields(Mix))  # pyright: ignore[reportArgumentType] - pydantic's dataclasses are dataclasses

_EXPECTED = f"expected feature=share with a share from 0 to 1, once each of: {', '.join(FEATURES)}"


def choice_of(number: int, *, root: int, index: int, seed: int) -> int:
    """Return one of `number` choices, from 0, for episode `index` (from 0). A function of its arguments alone.

    Among consecutive episodes all choices are about equally frequent. The stride is the square root of the prime
    `root`; choices with different roots, other than the features' 2, 3, 5 and 7, do not coincide.
    """
    stride = isqrt(root << 128)
    return (index * stride + _offset(str(root), seed)) % _CIRCLE * number // _CIRCLE


def _offset(feature: str, seed: int) -> int:
    return int.from_bytes(blake2b(f"{seed}/{feature}".encode(), digest_size=8).digest())


class Grounding(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Settings of grounded play: the world is executed by its rulebook, and the DungeonMaster only puts the result into
    words.
    """

    terse: Annotated[bool, Option(PLAY)] = False
    """Grounded play: observations are the rulebook's own words, without requests to a DungeonMaster model."""
    difficulty: Annotated[tuple[int, int] | None, Option(PLAY, "BAND")] = None
    """Grounded play: range of the length of a script's shortest solution in actions, such as 4..12; other scripts are
    refused. By default 6..12; 1..100 accepts all."""
    transient: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False), Option(MISTAKES, "RATE")] = 0.0
    """Grounded play: share of the right actions with an effect that fail once by chance and say so; agents learn to
    retry them."""
    mix: Annotated[Mix, Option(PLAY, "SHARES")] = Field(default_factory=Mix)
    """Grounded play: share of the scripts with a requested feature:
    distractors=0.8,irreversible=0.2,hidden=0.5,preconditions=0.7."""

    @model_validator(mode="before")
    @classmethod
    def _without_two_steps(cls, given: object) -> object:
        """Accept `two_steps=False` of earlier versions, in which a script could be written in two calls."""
        if not isinstance(given, dict):
            return given
        settings = dict(cast("dict[str, object]", given))
        if settings.pop("two_steps", False) is not False:
            raise ValueError("two_steps: a script is written in one call; leave two_steps out")
        return settings

    @field_validator("difficulty", "mix", mode="before")
    @classmethod
    def _parse_text(cls, value: object, info: ValidationInfo) -> object:
        return {"difficulty": band, "mix": Mix.parse}[str(info.field_name)](value) if isinstance(value, str) else value

    @field_validator("difficulty")
    @classmethod
    def _check_band(cls, value: tuple[int, int] | None) -> tuple[int, int] | None:
        if value is not None and not 1 <= value[0] <= value[1] <= MAX_STEPS:
            raise ValueError(f"expected two whole numbers, 1 or more and {MAX_STEPS} or less, the smaller one first")
        return value


def band(text: str) -> tuple[int, int]:
    """Parse `4..12`, `4..`, `..12` or `6` into fewest and most actions.

    Raises:
        ConfigurationError: It is none of these.
    """
    low, dots, high = (part.strip() for part in text.partition(".."))
    if (low or high) and len(text) <= _MAX_BAND_LENGTH and f"{low or 1}{high or 1}".isdecimal():
        minimum = int(low or 1)
        maximum = int(high or MAX_STEPS) if dots else minimum
        if 1 <= minimum <= maximum <= MAX_STEPS:
            return minimum, maximum
    raise ConfigurationError(
        f"difficulty {text!r} is no band of solution lengths; write 4..12 (actions, both ends counted, {MAX_STEPS} at most), 4.. or ..12"
    )
