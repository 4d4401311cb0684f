"""One action in an executed world: what came of it, as the record, the DungeonMaster and plain words have it; and transient
failures, by which a right action fails for a moment, so that agents learn to try again what deserves it.
"""

import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from refinesynth.actions.wording import folded, listed
from refinesynth.rules.ending import SUCCESS
from refinesynth.rules.text_form import MAX_OBSERVATION
from refinesynth.trajectory import DungeonMasterTurn, MistakeKind, PlayerTurn
from refinesynth.world import Ruling

MAX_NAMES = 200
"""Most visible names that a DungeonMaster is shown; those that have just appeared come first."""

_SUCCESS = re.compile(SUCCESS.replace(" ", r"\s+"), re.IGNORECASE)

_CARRIED_OUT = "It is done."
_REFUSED = "Nothing happens."


@dataclass(frozen=True)
class Ruled:
    """An action with the world's ruling on it, and whether chance let it fail."""

    action: str
    ruling: Ruling
    before: tuple[str, ...]
    """Names that were visible before it."""
    progress_before: float
    excuse: str | None = None
    """The excuse of a transient failure; None if it was none."""

    @property
    def transient(self) -> bool:
        return self.excuse is not None

    @property
    def done(self) -> bool:
        """True if the goal is reached by it."""
        return self.ruling.done and not self.transient

    @property
    def text(self) -> str:
        """Plain words of the world, where no better ones were accepted; never blank, cut at `MAX_OBSERVATION`."""
        if self.excuse is not None:
            return self.excuse
        text = without_success(self.ruling.text).strip()
        if len(text) > MAX_OBSERVATION:
            text = f"{text[: MAX_OBSERVATION - 3].rstrip()}..."
        return text or (_CARRIED_OUT if self.ruling.kind is None else _REFUSED)

    @property
    def thought(self) -> str:
        """The ruling in a plain sentence, for the record."""
        if self.transient:
            return "The action is right, but it fails for a moment, by chance. Nothing changes."
        if self.ruling.kind is not None:
            verdict = f"The action is refused: it is a {self.ruling.kind.value} mistake."
        else:
            verdict = "The action is possible."
        if not self.ruling.changed:
            return f"{verdict} Nothing changes."
        return f"{verdict} It changes {listed((change.path for change in self.ruling.changed), most=300)}."

    def shown(self) -> dict[str, Any]:
        """The ruling as a DungeonMaster is shown it, of bounded size."""
        accepted = self.ruling.kind is None and not self.transient
        seen, appeared = (self.before, ()) if self.transient else (self.ruling.visible, self.ruling.appeared)
        first = dict.fromkeys((*appeared, *seen))
        return {
            "accepted": accepted,
            "mistake": None if self.transient or self.ruling.kind is None else self.ruling.kind.value,
            "transient": self.transient,
            "text": self.text,
            "changed": [
                {"path": change.path, "before": change.before, "after": change.after} for change in self.ruling.changed
            ]
            if not self.transient
            else [],
            "visible": list(first)[:MAX_NAMES],
            "appeared": list(appeared)[:MAX_NAMES],
            "done": self.done,
        }

    def turn(self, thought: str, observation: str) -> DungeonMasterTurn:
        """The answer for the record, in these words: all else is the world's."""
        kind = self.ruling.kind
        said = observation.rstrip()
        return DungeonMasterTurn(
            thought=thought,
            observation=f"{said} {SUCCESS}" if self.done else said,
            parameter_error=kind is MistakeKind.PARAMETER,
            place_error=kind is MistakeKind.PLACE,
            logic_error=kind is MistakeKind.LOGIC,
            progress=self.progress_before if self.transient else self.ruling.progress,
            transient=self.transient,
        )


def without_success(text: str) -> str:
    """The text of an environment in other words where it reports success, which only the engine does."""
    return _SUCCESS.sub("success", text)


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
    """Return whether the action at `turn` fails for a moment in this play and attempt, with probability `share`.

    A function of its arguments alone, so that a play can be repeated; draws at different turns are independent.
    """
    return _draw(seed, replica, attempt, turn) < share * _WHOLE


def excuse(*, seed: int, replica: int, before: int) -> str:
    """The excuse of a failure, `before` it so many in the same play: none comes twice until all were."""
    return EXCUSES[(_draw(seed, replica) + before) % len(EXCUSES)]


def tried_before(turns: tuple[PlayerTurn | DungeonMasterTurn, ...], action: str) -> bool:
    """Return whether the last action of `turns` was the same and failed for a moment; it must not fail so again."""
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
