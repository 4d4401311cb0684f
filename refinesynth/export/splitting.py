"""Splits trajectories by script: all that were played in one script are on one side, however many there are."""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Literal

from refinesynth.errors import InputError
from refinesynth.trajectory import Trajectory

Side = Literal["train", "held_out"]

_WHOLE = 2**64


def group_of(trajectory: Trajectory) -> str:
    """What decides on which side a trajectory is: its script, or its persona where no script is recorded."""
    script = trajectory.provenance.script_id
    return f"persona {trajectory.persona.text}" if script is None else f"script {script}"


def one_side(trajectories: Iterable[Trajectory], side: Side, *, held_out: float, seed: int = 0) -> Iterator[Trajectory]:
    """Those of one side, lazily and in their order; both sides together are all, and share no group.

    A group is held out with the probability `held_out`. Whether it is depends on the group and `seed` alone, so it
    stays where it is when a run goes on. Not promised: that either side of few groups holds any.

    Raises:
        InputError: `held_out` is no share. At once.
    """
    if not 0 < held_out < 1:
        raise InputError(
            f"held_out is {held_out!r}; expected the share of the scripts to hold out, above 0 and below 1"
        )
    return (one for one in trajectories if (_draw(group_of(one), seed) < held_out * _WHOLE) == (side == "held_out"))


def _draw(group: str, seed: int) -> int:
    text = f"{seed}\n{group}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest())
