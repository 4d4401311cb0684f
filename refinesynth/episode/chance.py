"""Transient failures: a right action fails for a moment, so that agents learn to try again what deserves it. Pure."""

from hashlib import blake2b

from refinesynth.actions.wording import folded
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn

_WHOLE = 2**64

EXCUSES = (
    "It does not work this time: something sticks for a moment. Nothing has changed, and it may well work on another try.",
    "That does not go through this time. It seems to be something passing; all is as it was before.",
    "For a moment nothing responds, and the attempt comes to nothing. All is as before, and nothing speaks against trying again.",
    "It slips and does not work this time. Nothing has changed; it seems worth another try.",
    "Something is busy just then, and the attempt has no effect. It looks like a passing hindrance.",
    "A brief hitch: it does not work this time, and nothing has changed. Such a thing may pass by itself.",
    "It gets interrupted this time, before anything comes of it. All is as before, and nothing stays in the way.",
    "It hangs for a moment and then drops out without effect. All is as before; another try may go differently.",
)
"""Excuses of a transient failure, naming nothing."""


def fails(share: float, *, seed: int, replica: int, attempt: int, turn: int) -> bool:
    """Whether chance lets the action at `turn` fail in this play and attempt, with the probability `share`.

    A function of its arguments alone, so that a play can be repeated; draws at different turns are independent.
    """
    return _draw(seed, replica, attempt, turn) < share * _WHOLE


def excuse(*, seed: int, replica: int, before: int) -> str:
    """The excuse of a failure, `before` it so many in the same play: none comes twice until all were."""
    return EXCUSES[(_draw(seed, replica) + before) % len(EXCUSES)]


def tried_before(turns: tuple[PlayerTurn | DungeonMasterTurn, ...], action: str) -> bool:
    """Whether the last action of `turns` was the same and failed for a moment: then it must not fail so again."""
    if len(turns) < 2:  # noqa: PLR2004 - an action and its answer
        return False
    act, answer = turns[-2:]
    return (
        isinstance(act, PlayerTurn)
        and isinstance(answer, DungeonMasterTurn)
        and answer.transient
        and folded(act.action) == folded(action)
    )


def _draw(*values: int) -> int:
    return int.from_bytes(blake2b("/".join(map(str, values)).encode(), digest_size=8).digest())
