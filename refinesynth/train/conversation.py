"""What is trained on: a conversation whose assistant turns are labelled.

No trainer's library is needed to hold one; `train.data` reads them and `train.render` turns them into tokens and
labels.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple

THOUGHTS: Final = ("reasoning_content", "reasoning", "thinking")
"""Under which of these a message has an assistant's thought depends on the record, and on the chat template."""


class TurnLabel(StrEnum):
    """The label of an assistant turn."""

    CORRECT = "correct"
    """Right, after a turn that was right too."""
    REFINEMENT = "refinement"
    """Right, and the assistant turn before it was a mistake: where a model learns to repair."""
    MISTAKE = "mistake"
    """Flagged as wrong. Context; never trained on by default."""
    HISTORY = "history"
    """An earlier turn of which the record says only that it is not to be trained on. Always context."""
    PREAMBLE = "preamble"
    """Not trained on, and before all actions and trained turns: such as an "OK" to the instruction, as the authors'
    released data has it. Always context."""


class LossOn(StrEnum):
    """Which assistant turns give loss (paper, equation 1 and the ablation table)."""

    REFINEMENT = "refinement"
    """Refinement tuning: all but mistakes."""
    ALL_TURNS = "all_turns"
    """Mistakes too: the paper's "erroneous loss"."""
    NO_REFINEMENT_TURNS = "no_refinement_turns"
    """Correct turns that repair nothing: the paper's "without refinement loss"."""

    def trains(self, turn_label: TurnLabel | None) -> bool:
        """Whether a turn gives loss; `turn_label` is None for a turn that is not an assistant's."""
        if self is LossOn.ALL_TURNS:
            return turn_label in {TurnLabel.CORRECT, TurnLabel.REFINEMENT, TurnLabel.MISTAKE}
        if self is LossOn.NO_REFINEMENT_TURNS:
            return turn_label is TurnLabel.CORRECT
        return turn_label in {TurnLabel.CORRECT, TurnLabel.REFINEMENT}


class ToolCall(NamedTuple):
    """A function that an assistant calls."""

    id: str
    name: str
    arguments: Mapping[str, Any]

    def message(self, *, text: bool) -> dict[str, Any]:
        """As an entry of `tool_calls`, its arguments as JSON `text` or as an object."""
        given = json.dumps(dict(self.arguments), ensure_ascii=False) if text else dict(self.arguments)
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": given}}


class Turn(NamedTuple):
    """One chat message."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    label: TurnLabel | None
    """The label of an assistant's turn; None for every other role."""
    calls: tuple[ToolCall, ...] = ()
    """What an assistant calls beside what it says; all of it is one turn."""
    answers: str = ""
    """Of a tool's message: the id of the call that it answers."""
    thinking: str = ""
    """What a record has of an assistant's thinking apart from the content; thoughts in the content stay there."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A system turn or none, then user and assistant in alternation, a user first; where an assistant calls tools,
    their answers come in the user's place.
    """

    id: str
    """Of the trajectory, or of the record that it was read from."""
    group: str
    """Conversations of one persona or environment share it: what is held out is whole groups."""
    turns: tuple[Turn, ...]
    where: str
    """File and line that it comes from, for messages: `runs/first/trajectories.jsonl:17`."""
    environment: str = ""
    """Digest of the environment that it is played in, where that is known; conversations that share it are held out
    together."""
    script: str = ""
    """Digest of the script that it is played in, where that is recorded; likewise."""
    marked: bool = True
    """Whether its record says which turns are to be learned; where not, all of the assistant's are."""
    source: str = ""
    """Which source of the data it is from, by its label; see `data.mixing`."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """The functions that may be called, as a chat completion's `tools` have them."""
    again: int = 0
    """How many times it was taken before, where its source has a weight above 1."""

    def trained(self, loss_on: LossOn = LossOn.REFINEMENT) -> tuple[bool, ...]:
        """Whether each turn gives loss, in the order of `turns`."""
        return tuple(loss_on.trains(turn.label) for turn in self.turns)
