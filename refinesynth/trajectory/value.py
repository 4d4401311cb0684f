"""Base of all values."""

from typing import Self

import orjson
from pydantic import AliasChoices, BaseModel, ConfigDict

from refinesynth.text.json_reader import write_json


class Value(BaseModel):
    """A frozen model that forbids unknown fields and is one line of JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)

    def to_json(self) -> bytes:
        """This value as one line of JSON, without the newline; lone surrogates in its text become U+FFFD."""
        return write_json(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, line: bytes | str) -> Self:
        """Read what `to_json` wrote.

        Raises:
            pydantic.ValidationError: The line is not such a value.
            orjson.JSONDecodeError: The line is not JSON.
        """
        return cls.model_validate(orjson.loads(line))


def spelled(*names: str) -> AliasChoices:
    """The names under which a field is read: our own first, then the paper's spellings of it."""
    return AliasChoices(*names)


def absent(value: object) -> bool:
    """Return whether a field holds what it holds where nothing was said: such a field is not written, so that records of other
    kinds of play, and prompts with their values, do not change with it.
    """
    return value is None or value is False or value in ((), "", {})
