"""What is kept of what the rules accepted: no near-duplicate scripts, nothing that an evaluation set holds."""

from typing import Literal

from pydantic import BaseModel, Field


class Curation(BaseModel, frozen=True, extra="forbid"):
    """Settings of curation. It looks at episodes in the order of their personas, so the result does not depend on
    concurrency.
    """

    near_duplicates: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False)
    """Similarity from which on a script counts as one that is there already, 0 to 1, and is refused; None refuses
    none."""
    contamination: tuple[str, ...] = ()
    """Files of evaluation sets that scripts and trajectories are compared with. A run that is continued must be given
    the same content."""
    contaminated: Literal["report", "refuse"] = "report"
    """What becomes of a trajectory that shares a run of words with them."""
    words: int = Field(default=13, ge=3, le=100)
    """Length of such a run of words."""

    @property
    def idle(self) -> bool:
        """Whether nothing is looked at."""
        return self.near_duplicates is None and not self.contamination
