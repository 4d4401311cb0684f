"""What is trained on: a conversation whose assistant turns say what they are.

No trainer's library is needed to hold one; `train.data` reads them and `train.render` turns them into tokens and labels.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple


class Speech(StrEnum):
    """What an assistant turn is."""

    CORRECT = "correct"
    """Right, after a turn that was right too."""
    REFINEMENT = "refinement"
    """Right, and the assistant turn before it was a mistake: where a model learns to repair."""
    MISTAKE = "mistake"
    """Flagged as wrong. Context; never trained on by default."""
    HISTORY = "history"
    """An earlier turn of which the record says only that it is not to be trained on. Context, whatever the loss."""
    PREAMBLE = "preamble"
    """An "OK" to the instruction, before the task begins, as the authors' released data has it. Context, whatever the loss."""


class LossOn(StrEnum):
    """Which assistant turns give loss (paper, equation 1 and the ablation table)."""

    REFINEMENT = "refinement"
    """Refinement tuning: all but mistakes."""
    ALL_TURNS = "all_turns"
    """Mistakes too: the paper's "erroneous loss"."""
    NO_REFINEMENT_TURNS = "no_refinement_turns"
    """Correct turns that repair nothing: the paper's "without refinement loss"."""

    def trains(self, speech: Speech | None) -> bool:
        """Whether a turn gives loss; `speech` is None for what is no assistant turn."""
        if self is LossOn.ALL_TURNS:
            return speech in {Speech.CORRECT, Speech.REFINEMENT, Speech.MISTAKE}
        if self is LossOn.NO_REFINEMENT_TURNS:
            return speech is Speech.CORRECT
        return speech in {Speech.CORRECT, Speech.REFINEMENT}


class Turn(NamedTuple):
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str
    speech: Speech | None
    """What the assistant's turn is; None for every other role."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A system turn or none, then user and assistant in alternation, a user first."""

    id: str
    """Of the trajectory, or of the record that it was read from."""
    group: str
    """Conversations of one persona or environment share it: what is held out is whole groups."""
    turns: tuple[Turn, ...]
    where: str
    """File and line that it comes from, for messages: `runs/first/trajectories.jsonl:17`."""
    environment: str = ""
    """Digest of the environment that it is played in, where that is known; conversations that share it are held out together."""
    script: str = ""
    """Digest of the script that it is played in, where that is recorded; likewise."""
    marked: bool = True
    """Whether its record says which turns are to be learned; where not, all of the assistant's are."""
    source: str = ""
    """Which source of the data it is from, by its label; see `data.mixing`."""
    again: int = 0
    """How many times it was taken before, where its source has a weight above 1."""

    def trained(self, loss_on: LossOn = LossOn.REFINEMENT) -> tuple[bool, ...]:
        """Whether each turn gives loss, in the order of `turns`."""
        return tuple(loss_on.trains(turn.speech) for turn in self.turns)
