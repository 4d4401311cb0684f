"""Beginnings of the plays of a world: clean, or behind the first mistake of a trajectory."""

import re
from hashlib import blake2b

from refinesynth.errors import InputError
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn, Trajectory

START_HELP = "clean, the beginning of each world once; mistakes, behind the first mistake of each trajectory; or mixed:0.5, that share of the trajectories behind their mistake."

_WHOLE = 2**64


def share_of_mistakes(start: str) -> float:
    """Share of the trajectories that begin behind their first mistake, of a `start` in the form of `START_HELP`.

    Raises:
        InputError: It has another form.
    """
    if start in {"clean", "mistakes"}:
        return float(start == "mistakes")
    given = re.fullmatch(r"mixed:([01]|0?\.[0-9]+|1\.0*)", start)
    if given is None:
        raise InputError(f"the start is {start!r}; expected clean, mistakes or mixed:0.5 (a share from 0 to 1)")
    return float(given[1])


def behind_mistake(trajectory: Trajectory) -> tuple[PlayerTurn | DungeonMasterTurn, ...]:
    """The turns up to the answer that flags the first mistake; none if the trajectory has no mistake."""
    flagged = (at for at, turn in enumerate(trajectory.turns) if isinstance(turn, DungeonMasterTurn) and turn.flagged)
    at = next(flagged, None)
    return () if at is None else trajectory.turns[: at + 1]


def beginning(trajectory: Trajectory, share: float) -> tuple[PlayerTurn | DungeonMasterTurn, ...]:
    """The turns behind which a play begins, by the share of mistakes and the trajectory's id; none for a clean start."""
    if not share:
        return ()
    drawn = int.from_bytes(blake2b(trajectory.id.encode("utf-8", "surrogatepass"), digest_size=8).digest())
    return behind_mistake(trajectory) if drawn < share * _WHOLE else ()
