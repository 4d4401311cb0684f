"""What a format makes of a trajectory, line by line."""

from typing import NamedTuple, Self

from pydantic import JsonValue


class Record(NamedTuple):
    """One line of an export; or the reason why there is none."""

    data: dict[str, JsonValue]
    trained: int
    """Assistant messages that a trainer learns to write."""
    masked: int
    """Assistant messages that are context only."""
    omitted: str = ""
    """Why nothing is written: the end of a sentence that begins with how many mistakes it holds for."""

    @classmethod
    def none(cls, why: str) -> Self:
        """No line."""
        return cls({}, 0, 0, why)
