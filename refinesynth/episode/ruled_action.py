"""Outcome of one action in an executed world, for the record, the DungeonMaster and in plain words; and transient
failures: right actions that fail by chance, which teach agents to retry.
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
"""Maximum number of visible names for a DungeonMaster; those that have just appeared come first."""

_SUCCESS = re.compile(SUCCESS.replace(" ", r"\s+"), re.IGNORECASE)

_CARRIED_OUT = "It is done."
_REFUSED = "Nothing happens."


@dataclass(frozen=True)
class Ruled:
    """An action with its ruling and, if it failed by chance, the excuse."""

    action: str
    ruling: Ruling
    before: tuple[str, ...]
    """Names that were visible before the action."""
    progress_before: float
    excuse: str | None = None
    """The excuse of a transient failure; None if it was none."""

    @property
    def transient(self) -> bool:
        return self.excuse is not None

    @property
    def done(self) -> bool:
        """True if this action reaches the goal."""
        return self.ruling.done and not self.transient

    @property
    def text(self) -> str:
        """Plain text of the ruling, never blank, at most `MAX_OBSERVATION` characters."""
        if self.excuse is not None:
            return self.excuse
        text = without_success(self.ruling.text).strip()
        if len(text) > MAX_OBSERVATION:
            text = f"{text[: MAX_OBSERVATION - 3].rstrip()}..."
        return text or (_CARRIED_OUT if self.ruling.kind is None else _REFUSED)

    @property
    def thought(self) -> str:
        """The ruling as a plain sentence, for the record."""
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
        """Return the ruling for the DungeonMaster's prompt, of bounded size."""
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
        """Return the DungeonMaster's turn with these words; all other fields come from the ruling."""
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
    """Return the text without the success phrase, which only the engine writes."""
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
"""Excuses of a transient failure, without names."""


def fails(share: float, *, seed: int, replica: int, attempt: int, turn: int) -> bool:
    """Return whether the action at `turn` fails in this play and attempt, with probability `share`.

    The result depends on the arguments only, so a play can be repeated. Draws at different turns are independent.
    """
    return _draw(seed, replica, attempt, turn) < share * _WHOLE


def excuse(*, seed: int, replica: int, before: int) -> str:
    """Return the excuse of a failure with `before` earlier ones in the play; all are used before one repeats."""
    return EXCUSES[(_draw(seed, replica) + before) % len(EXCUSES)]


def tried_before(turns: tuple[PlayerTurn | DungeonMasterTurn, ...], action: str) -> bool:
    """Return whether the last action was the same and failed by chance; it must not fail again."""
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
