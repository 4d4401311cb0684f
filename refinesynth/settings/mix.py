"""Features of grounded scripts: each is requested in a share of the scripts, spread evenly over a run."""

from dataclasses import fields
from hashlib import blake2b
from math import isqrt
from typing import Annotated

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from refinesynth.errors import ConfigurationError

_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=False)]

_CIRCLE = 2**64
"""Steps of a circle on which each feature moves; it is requested while in the first part, of the size of its share."""

_STRIDES = (0x9E3779B97F4A7C15, 0x6A09E667F3BCC909, 0xBB67AE8584CAA73B, 0xA54FF53A5F1D36F1)
"""Step of each feature per episode: fractions of the golden ratio and of the roots of 2, 3 and 7, so positions
spread evenly over the circle and features do not coincide."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
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
            found = error.errors()[0]
            raise ConfigurationError(f"mix has {found['loc'][-1]}={found['input']!r}; {_EXPECTED}") from None


FEATURES = tuple(field.name for field in fields(Mix))  # pyright: ignore[reportArgumentType] - pydantic's dataclasses are dataclasses

_EXPECTED = f"expected feature=share with a share from 0 to 1, once each of: {', '.join(FEATURES)}"


def walked(number: int, *, root: int, index: int, seed: int) -> int:
    """Return one of `number` choices, from 0, for episode `index` (from 0). A function of its arguments alone.

    Among consecutive episodes all choices are about equally frequent. The stride is the square root of the prime
    `root`; choices with different roots, other than the features' 2, 3, 5 and 7, do not coincide.
    """
    stride = isqrt(root << 128)
    return (index * stride + _offset(str(root), seed)) % _CIRCLE * number // _CIRCLE


def _offset(feature: str, seed: int) -> int:
    return int.from_bytes(blake2b(f"{seed}/{feature}".encode(), digest_size=8).digest())
