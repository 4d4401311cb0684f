"""Curation of what the rules accepted: near-duplicate scripts, and overlaps with evaluation sets."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from refinesynth.option import RULES, Option


class Curation(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Settings of curation. It looks at episodes in the order of their personas, so the result does not depend on
    concurrency.
    """

    near_duplicates: Annotated[
        Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None, Option(RULES, "SIMILARITY")
    ] = None
    """Similarity, 0 to 1, from which on a script counts as a duplicate of an earlier one and is refused; by default
    none is."""
    contamination: Annotated[tuple[str, ...], Option(RULES, "FILE")] = ()
    """Files of evaluation sets that scripts and trajectories are compared with. A run that is continued must be given
    the same content."""
    contaminated: Annotated[Literal["report", "refuse"], Option(RULES)] = "report"
    """Treatment of a trajectory that shares a run of words with a contamination file."""
    words: int = Field(default=13, ge=3, le=100)
    """Length of such a run of words."""

    @property
    def idle(self) -> bool:
        """True if nothing is checked."""
        return self.near_duplicates is None and not self.contamination
