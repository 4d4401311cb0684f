"""Conversation with labelled assistant turns, which `train.data` reads and `train.render` renders as tokens."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import takewhile
from typing import Any, Final, Literal, NamedTuple, cast

from refinesynth.chat import action_label
from refinesynth.errors import InputError

THOUGHTS: Final = ("reasoning_content", "reasoning", "thinking")
"""Message keys for an assistant's thought. Records and chat templates use different keys."""


class TurnLabel(StrEnum):
    """Label of an assistant turn."""

    CORRECT = "correct"
    """Correct turn that does not follow a mistake."""
    REFINEMENT = "refinement"
    """Correct turn after a mistake or by the repairer: the repair that a model learns."""
    MISTAKE = "mistake"
    """Turn flagged as wrong. Context; not trained by default."""
    HISTORY = "history"
    """Earlier turn of a split record, untrained whether correct or wrong. Always context."""
    PREAMBLE = "preamble"
    """Untrained turn before all actions and trained turns, such as the "OK" in the authors' data. Always context."""


class LossOn(StrEnum):
    """Assistant turns that give loss (paper, equation 1 and the ablation table)."""

    REFINEMENT = "refinement"
    """Correct turns and repairs: refinement tuning."""
    ALL_TURNS = "all_turns"
    """Correct turns, repairs and mistakes: the paper's "erroneous loss"."""
    NO_REFINEMENT_TURNS = "no_refinement_turns"
    """Correct turns that are not repairs: the paper's "without refinement loss"."""
    REPAIRS = "repairs"
    """Repairs only: correct turns after a mistake, and turns of the repairer."""

    def trains(self, turn_label: TurnLabel | None) -> bool:
        """Return True if a turn gives loss; `turn_label` is None for roles other than the assistant."""
        return turn_label in _TRAINED_LABELS[self]


_TRAINED_LABELS: Final = {
    LossOn.REFINEMENT: {TurnLabel.CORRECT, TurnLabel.REFINEMENT},
    LossOn.ALL_TURNS: {TurnLabel.CORRECT, TurnLabel.REFINEMENT, TurnLabel.MISTAKE},
    LossOn.NO_REFINEMENT_TURNS: {TurnLabel.CORRECT},
    LossOn.REPAIRS: {TurnLabel.REFINEMENT},
}


class ToolCall(NamedTuple):
    """Function call of an assistant."""

    id: str
    name: str
    arguments: Mapping[str, Any]

    def message(self, *, text: bool) -> dict[str, Any]:
        """The call as an entry of `tool_calls`; `text` writes the arguments as JSON text, not as an object."""
        arguments = json.dumps(dict(self.arguments), ensure_ascii=False) if text else dict(self.arguments)
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}}


class Turn(NamedTuple):
    """One chat message."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    label: TurnLabel | None
    """Label of an assistant turn; None for other roles."""
    calls: tuple[ToolCall, ...] = ()
    """Calls in the same turn as the content."""
    call_id: str = ""
    """Id of the call that a tool message answers."""
    thinking: str = ""
    """Assistant's thinking that is not part of the content."""
    mistakes: tuple[str, ...] = ()
    """Ids of mistaken calls in a turn that also has correct calls; `label` is that of the correct calls."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """An optional system turn, then alternating user and assistant turns; tool turns follow turns with calls."""

    id: str
    """Id of the trajectory or record."""
    group: str
    """Label shared by conversations of one persona, record or task; they are held out together."""
    turns: tuple[Turn, ...]
    location: str
    """File and line, for error messages: `runs/first/trajectories.jsonl:17`."""
    environment: str = ""
    """Digest of the environment, if known; conversations with the same one are held out together."""
    script: str = ""
    """Digest of the script, if recorded; conversations with the same one are held out together."""
    marked: bool = True
    """True if the record specifies the trained turns; otherwise all assistant turns are trained."""
    source: str = ""
    """Name of the source."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Functions that may be called, in the form of a chat completion's `tools`."""

    def trained(self, loss_on: LossOn = LossOn.REFINEMENT) -> tuple[bool, ...]:
        """Loss flag of each turn, in the order of `turns`; a turn with a mistaken call counts as a mistake."""
        return tuple(loss_on.trains(TurnLabel.MISTAKE if turn.mistakes else turn.label) for turn in self.turns)


_NEXT_ROLES: Final = {
    "system": {"user"},
    "user": {"assistant"},
    "assistant": {"user"},
    "tool": {"assistant", "user"},
}
"""Allowed roles of the next message, by role, if no call is open."""


class FlaggedMessage(NamedTuple):
    """Message of a record, before labelling."""

    role: str
    content: str
    loss: bool | None
    """Loss flag of an assistant message; None if the record has none."""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    thinking: str = ""
    name: str = ""
    """Name of the message's author: in tool messages, the function."""
    repair: bool = False
    """True for an assistant message with a call that the record labels as a repair."""
    mistakes: tuple[str, ...] = ()
    """Ids of mistaken calls in a message that also has correct calls."""


def digest(text: str) -> str:
    """Digest of a text (20 hexadecimal digits), independent of case and whitespace."""
    return hashlib.sha256(" ".join(text.casefold().split()).encode(errors="surrogatepass")).hexdigest()[:20]


def make_conversation(
    id: str,  # noqa: A002
    group: str,
    messages: Sequence[FlaggedMessage],
    location: str,
    /,
    *,
    last_only: bool = False,
    environment: str = "",
    tools: Sequence[Mapping[str, Any]] = (),
) -> Conversation:
    """Make a conversation; `last_only` trains the last message only. Raises `InputError` for invalid messages."""
    _check_messages(messages, location)
    turns: list[Turn] = []
    previous: TurnLabel | None = None
    has_actions = any(map(_has_action, messages))
    for index, message in enumerate(messages):
        label = None
        if message.role == "assistant":
            # All earlier turns of a split record are untrained: a preamble is certain only if the record has actions.
            if previous is None and not message.loss and not _has_action(message) and (has_actions or not last_only):
                label = TurnLabel.PREAMBLE
            else:
                previous = label = _turn_label(message, previous, history=last_only and index < len(messages) - 1)
        role = cast("Literal['system', 'user', 'assistant', 'tool']", message.role)
        mistakes = message.mistakes if label is not TurnLabel.HISTORY else ()
        previous = TurnLabel.MISTAKE if mistakes else previous
        turns.append(Turn(role, message.content, label, message.calls, message.call_id, message.thinking, mistakes))
    return Conversation(id, group, tuple(turns), location, environment, tools=tuple(tools))


def without_mistakes(conversation: Conversation) -> Conversation | None:
    """Remove mistakes and their observations (the paper's data without refinement); None if no correct turn is left.

    Raises `InputError` if the record does not mark its mistakes.
    """
    refuse_history(conversation, "they cannot be taken out")
    kept: list[Turn] = []
    after_mistake, removed_calls = False, set[str]()
    for turn in conversation.turns:
        after_mistake = turn.label is TurnLabel.MISTAKE if turn.role == "assistant" else after_mistake
        removed_calls = {*turn.mistakes} if turn.role == "assistant" else removed_calls
        if after_mistake or turn.call_id in removed_calls:
            continue
        if turn.mistakes:
            turn = turn._replace(calls=tuple(call for call in turn.calls if call.id not in removed_calls), mistakes=())  # noqa: PLW2901
        kept.append(turn._replace(label=TurnLabel.CORRECT) if turn.label is TurnLabel.REFINEMENT else turn)
    if not any(turn.label is TurnLabel.CORRECT for turn in kept):
        return None
    return replace(conversation, turns=tuple(kept))


def refuse_history(conversation: Conversation, consequence: str) -> None:
    """Raises: InputError: The record does not mark its mistakes."""
    if any(turn.label is TurnLabel.HISTORY for turn in conversation.turns):
        raise InputError(
            f"{conversation.location}: this record does not say which of its earlier turns are mistakes, so {consequence}; give the run's "
            "own folder, or an export with a flag per message"
        )


def task_digest(turns: Iterable[Turn]) -> str:
    """Digest of the task: the user messages before the first assistant turn that is no preamble."""
    prompt_turns = takewhile(lambda turn: turn.label in {None, TurnLabel.PREAMBLE}, turns)
    return digest("\n\n".join(turn.content for turn in prompt_turns if turn.role == "user"))


def _has_action(message: FlaggedMessage) -> bool:
    return message.role == "assistant" and (bool(message.calls) or action_label(message.content) is not None)


def _turn_label(message: FlaggedMessage, previous: TurnLabel | None, *, history: bool) -> TurnLabel:
    if history:
        return TurnLabel.HISTORY
    if not message.loss and not message.mistakes:
        return TurnLabel.MISTAKE
    return TurnLabel.REFINEMENT if message.repair or previous is TurnLabel.MISTAKE else TurnLabel.CORRECT


def _check_messages(messages: Sequence[FlaggedMessage], location: str) -> None:
    expected = {"system" if messages and messages[0].role == "system" else "user"}
    open_calls: set[str] = set()
    for number, message in enumerate(messages, start=1):
        role, problem = message.role, ""
        if role not in _NEXT_ROLES:
            problem = f"is from {role!r}, a role that is not read. Rename it to system, user, assistant or tool"
        elif role not in expected:
            problem = (
                f"is from {role!r} where one from {' or '.join(map(repr, sorted(expected)))} is expected: after a system message or none, "
                "user and assistant take turns, a user first, and each call of a tool is answered by one message of the tool"
            )
        elif not message.content.strip() and not message.calls and role != "tool":
            problem = f"({role}) is empty. Remove this record, or fill the message in"
        elif role != "assistant" and message.loss:
            problem = f"is a {role}'s and marked for training; only an assistant's can be. Remove the mark"
        elif role == "tool" and message.call_id not in open_calls:
            problem = (
                f"answers the call {message.call_id!r}, and open are {sorted(open_calls)}; give one in tool_call_id"
            )
        if problem:
            raise InputError(f"{location}: message {number} {problem}")
        open_calls = {call.id for call in message.calls} if role != "tool" else open_calls - {message.call_id}
        expected = {"tool"} if open_calls else _NEXT_ROLES[role]
    if not any(message.role == "assistant" for message in messages):
        raise InputError(f"{location}: there is no assistant message, so nothing to learn. Remove this record")
