"""Base class of all values."""

from typing import Self

import orjson
from pydantic import AliasChoices, BaseModel, ConfigDict

from refinesynth.text.json_reader import write_json


class Value(BaseModel):
    """A frozen model that forbids unknown fields and is one line of JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)

    def to_json(self) -> bytes:
        """Return this value as one line of JSON without a newline; lone surrogates become U+FFFD."""
        return write_json(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, line: bytes | str) -> Self:
        """Read the result of `to_json`.

        Raises:
            pydantic.ValidationError: The line is not such a value.
            orjson.JSONDecodeError: The line is not JSON.
        """
        return cls.model_validate(orjson.loads(line))


aliases = AliasChoices
"""Accepted names of a field: our own first, then the paper's spellings."""


def is_empty(value: object) -> bool:
    """Return whether a field has an empty value (None, False, or an empty text, tuple or object) and is not written, so
    records of other plays and prompts with their values stay unchanged.
    """
    return value is None or value is False or value in ((), "", {})
