"""The early stop of a run in which nothing is accepted."""

from typing import Literal, TypeAlias

from refinesynth.run import RunStats

_UNJUDGED = 4
"""Multiple of the limit after which lost episodes count too: a deadline may be too short for all of them."""

Why: TypeAlias = Literal["nothing_accepted"]


def stops_early(limit: int, *, episodes: int, lost: int, accepted: int) -> bool:
    """Return True if a run stops after so many committed episodes, of which `lost` say nothing of the data.

    Depends only on what is committed, so neither clocks nor workers decide. A `limit` of 0 never stops.
    """
    return limit > 0 and not accepted and (episodes - lost >= limit or episodes >= _UNJUDGED * limit)


def explain(limit: int, stats: RunStats) -> str:
    """The reason of an early stop, as a clause."""
    lost = f" ({stats.lost:,} of them by their backend or their deadline)" if stats.lost else ""
    return (
        f"none of the first {stats.episodes:,} episodes gave one{lost}, so the run stopped early (early_stop {limit:,})"
    )
