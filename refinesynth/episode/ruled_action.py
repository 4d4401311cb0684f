"""Outcome of one action in an executed world, for the record, the DungeonMaster and in plain words; and transient
failures: right actions that fail by chance, which teach agents to retry.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

from refinesynth.rules.actions import SUCCESS
from refinesynth.rules.rule import exchanges
from refinesynth.text.formatting import folded, listed
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn
from refinesynth.world import Ruling
from refinesynth.world.compiled_action import shown_part

MAX_NAMES = 200
"""Maximum number of visible names for a DungeonMaster; those that have just appeared come first."""

_SUCCESS = re.compile(SUCCESS.replace(" ", r"\s+"), re.IGNORECASE)

_CARRIED_OUT = "It is done."
_REFUSED = "Nothing happens."


@dataclass(frozen=True)
class RuledAction:
    """An action with its ruling and, if it failed by chance, the text of the failure."""

    action: str
    ruling: Ruling
    visible_before: tuple[str, ...]
    """Names that were visible before the action."""
    progress_before: float
    failure_text: str | None = None
    """Observation of a transient failure; None if there was none."""

    @property
    def transient(self) -> bool:
        return self.failure_text is not None

    @property
    def done(self) -> bool:
        """True if this action reaches the goal."""
        return self.ruling.done and not self.transient

    @cached_property
    def _outcome(self) -> Ruling:
        """The ruling, or for a transient failure one that changes nothing."""
        if self.failure_text is None:
            return self.ruling
        unchanged = {"visible": self.visible_before, "appeared": (), "changed": (), "progress": self.progress_before}
        return replace(self.ruling, text=self.failure_text, done=False, **unchanged)

    @property
    def text(self) -> str:
        """Plain text of the ruling, never blank, at most `MAX_OBSERVATION` characters."""
        return bounded(self._outcome.text) or (_CARRIED_OUT if self.ruling.kind is None else _REFUSED)

    @property
    def thought(self) -> str:
        """The ruling as a plain sentence, for the record."""
        if self.transient:
            return "The action is right, but it fails for a moment, by chance. Nothing changes."
        verdict = "The action is possible."
        if self.ruling.kind is not None:
            verdict = f"The action is refused: it is a {self.ruling.kind.value} mistake."
        if not self.ruling.changed:
            return f"{verdict} Nothing changes."
        return f"{verdict} It changes {listed((change.path for change in self.ruling.changed), limit=300)}."

    def to_prompt(self) -> dict[str, Any]:
        """Return the ruling for the DungeonMaster's prompt, of bounded size."""
        ruling, kind = self._outcome, self.ruling.kind
        return {
            "accepted": kind is None and not self.transient,
            "mistake": None if kind is None else kind.value,
            "transient": self.transient,
            "text": self.text,
            "changed": [
                {"path": change.path, "before": change.before, "after": change.after} for change in ruling.changed
            ],
            "visible": [*dict.fromkeys((*ruling.appeared, *ruling.visible))][:MAX_NAMES],
            "appeared": [*ruling.appeared][:MAX_NAMES],
            "done": ruling.done,
        }

    def turn(self, thought: str, observation: str) -> DungeonMasterTurn:
        """Return the DungeonMaster's turn with these words; all other fields come from the ruling."""
        words = observation.rstrip()
        return DungeonMasterTurn.of_kind(
            self.ruling.kind,
            thought=thought,
            observation=f"{words} {SUCCESS}" if self.done else words,
            progress=self._outcome.progress,
            transient=self.transient,
        )


def bounded(text: str) -> str:
    """Return the text as an observation: at most `MAX_OBSERVATION` characters, without the success phrase, which only
    the engine writes.
    """
    return shown_part(_SUCCESS.sub("success", text).strip())


_DRAW_RANGE = 2**64

FAILURE_TEXTS = (
    "It does not work this time: something sticks for a moment. Nothing has changed, and it may well work on another try.",
    "That does not go through this time. It seems to be something passing; all is as it was before.",
    "For a moment nothing responds, and the attempt comes to nothing. All is as before, and nothing speaks against trying again.",
    "It slips and does not work this time. Nothing has changed; it seems worth another try.",
    "Something is busy just then, and the attempt has no effect. It looks like a passing hindrance.",
    "A brief hitch: it does not work this time, and nothing has changed. Such a thing may pass by itself.",
    "It gets interrupted this time, before anything comes of it. All is as before, and nothing stays in the way.",
    "It hangs for a moment and then drops out without effect. All is as before; another try may go differently.",
)
"""Observations of a transient failure, without names."""


def transient_failure(
    turns: Sequence[PlayerTurn | DungeonMasterTurn],
    action: str,
    share: float,
    *,
    seed: int,
    replica: int = 0,
    attempt: int = 1,
) -> str | None:
    """Return the observation if the right action after `turns` fails by chance, with probability `share`; else None.

    The result depends on the arguments only, so a play can be repeated. Draws at different turns are independent. The
    same action never fails twice in a row. All texts are used in a play before one repeats.
    """
    if any(one.transient and folded(one.player.action) == folded(action) for one in [*exchanges(turns)][-1:]):
        return None
    if _draw(seed, replica, attempt, len(turns)) >= share * _DRAW_RANGE:
        return None
    before = sum(isinstance(turn, DungeonMasterTurn) and turn.transient for turn in turns)
    return FAILURE_TEXTS[(_draw(seed, replica) + before) % len(FAILURE_TEXTS)]


def _draw(*values: int) -> int:
    return int.from_bytes(blake2b("/".join(map(str, values)).encode(), digest_size=8).digest())
