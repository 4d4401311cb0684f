"""A part of a run that is played on independent machines."""

import re
from typing import Any

from pydantic import BaseModel, Field, model_serializer, model_validator

_TEXT = re.compile(r"\s*([0-9]{1,7})\s*/\s*([0-9]{1,7})\s*")


class Shard(BaseModel, frozen=True, extra="forbid"):
    """`3/8` is the fourth of eight: every eighth persona, beginning with the fourth, and an eighth of `n`.

    Shards of the same personas are disjoint and complete. They are counted from 0, like the indices of Kubernetes'
    jobs, and of Slurm's with `--array=0-7`.
    """

    index: int = Field(ge=0)
    of: int = Field(ge=1, le=1_000_000)
    """Number of shards."""

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        if (match := _TEXT.fullmatch(given)) is None:
            raise ValueError("expected I/N, such as 3/8: the fourth of eight, since they are counted from 0")
        return {"index": int(match[1]), "of": int(match[2])}

    @model_validator(mode="after")
    def _is_one_of_them(self) -> "Shard":
        if self.index >= self.of:
            raise ValueError(
                f"shards are counted from 0, so of {self.of} the last is {self.of - 1}/{self.of} "
                f"(in Slurm: --array=0-{self.of - 1})"
            )
        return self

    @model_serializer
    def _as_text(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"

    def share(self, count: int) -> int:
        """Return how many of `count` personas in a row, or trajectories to make, are this shard's."""
        return max(0, -(-(count - self.index) // self.of))

    def place(self, index: int) -> int:
        """Return the place in the whole of the shard's persona number `index`; both from 0."""
        return self.index + index * self.of


WHOLE = Shard(index=0, of=1)
