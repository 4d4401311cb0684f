"""That a draft can be trained on as it is rendered: as ReAct text, which has no other marks than its labels."""

from collections.abc import Iterator

from pydantic.dataclasses import dataclass

from refinesynth.actions.wording import quoted
from refinesynth.chat import parse_player, render_player
from refinesynth.rules.exchanges import exchanges, is_complete
from refinesynth.rules.rule import FIELDS, BaseRule, Violation
from refinesynth.text.printable import control_character
from refinesynth.trajectory import Draft, DraftTurn, MalformedTurn, PlayerTurn


@dataclass(frozen=True, config=FIELDS)
class ReadsBack(BaseRule, built_in=True):
    """A player turn as `chat` renders it is read as the same thought and action, but for blanks around; else
    `ambiguous_text`.

    Else a model learns to write what cannot be parsed: a thought that holds a line `Action: ...`, or an action of two
    paragraphs or in quotes. Turns that the DM called wrong are not trained on and may be anything; of an unfinished
    draft's last turn it is not known yet whether it is one.

    No turn holds a control character, such as NUL or ESC; else `control_character`.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for at, turn in enumerate(draft.turns):
            if found := control_character(_text(turn)):
                message = f"Turn {at + 1} holds the control character {found}. Write it without."
                yield self.violation(at, "control_character", message)
        for step in exchanges(draft.turns):
            if step.flagged or (step.after is None and not is_complete(draft)):
                continue
            problem = _problem(step.player)
            if problem:
                message = (
                    f'Turn {step.at + 1}, written as "Thought: ..." and "Action: ...", {problem}. Begin no line of a text with '
                    "such a label, and write the Action without quotes around it and without a blank line."
                )
                yield self.violation(step.at, "ambiguous_text", message)


def _text(turn: DraftTurn) -> str:
    if isinstance(turn, MalformedTurn):
        return ""  # refused for that
    return turn.thought + (turn.action if isinstance(turn, PlayerTurn) else turn.observation)


def _problem(turn: PlayerTurn) -> str | None:
    """What a reader of the rendered turn gets wrong."""
    action = turn.action.strip()
    if action[:1].isalnum() and "\n" not in action and ":" not in action and ":" not in turn.thought:
        return None  # no label, no quotes, one line: reading it would find just that
    try:
        read = parse_player(render_player(turn))
    except ValueError as error:
        return f"cannot be read: {error}"
    if (read.thought, read.action) == (turn.thought.strip(), action):
        return None
    return f"reads as the thought {quoted(read.thought)} and the action {quoted(read.action)}"
