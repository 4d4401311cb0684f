"""Why episodes gave no trajectory, in the same words wherever a run is shown."""

from refinesynth.text.figures import counted
from refinesynth.text.printable import one_line

_SHOWN = 200
"""Characters of a reason that are shown."""


def reasons(commonest: tuple[str, int] | None, last: str | None, *, failed: int) -> list[str]:
    """Of the episodes without a trajectory, the most frequent reason and the last, as far as they are known."""
    found: list[str] = []
    if commonest is not None:
        reason, count = commonest
        found.append(f"{count:,} of {counted(failed, 'episode')} without a trajectory: {_short(reason)}")
    if last is not None and (commonest is None or last != commonest[0]):
        found.append(f"the last: {_short(last)}")
    return found


def _short(reason: str) -> str:
    return one_line(reason, most=_SHOWN)
