"""What is trained on: a conversation whose assistant turns are labelled.

No trainer's library is needed to hold one; `train.data` reads them and `train.render` turns them into tokens and
labels.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import takewhile
from typing import Any, Final, Literal, NamedTuple

from refinesynth.chat import action_label
from refinesynth.errors import InputError

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


_ROLES = frozenset({"system", "user", "assistant", "tool"})


class FlaggedMessage(NamedTuple):
    """One message as a record has it."""

    role: str
    content: str
    loss: bool | None
    """For an assistant's: whether it is right; None where the record does not say."""
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""
    thinking: str = ""
    name: str = ""
    """Of a tool's: the function that answers, if it says so."""


def digest(text: str) -> str:
    """A short name for a text; case and blanks do not matter."""
    return hashlib.sha256(" ".join(text.casefold().split()).encode(errors="surrogatepass")).hexdigest()[:20]


def conversation(
    id: str,  # noqa: A002
    group: str,
    messages: Sequence[FlaggedMessage],
    where: str,
    /,
    *,
    last_only: bool = False,
    environment: str = "",
    script: str = "",
    tools: Sequence[Mapping[str, Any]] = (),
) -> Conversation:
    """A conversation of sound messages.

    `last_only`: the record trains on its last message, and says nothing of the earlier ones.

    Raises:
        InputError: Roles do not alternate, a message is empty, or there is no assistant's.
    """
    _refuse_unsound(messages, where)
    turns: list[Turn] = []
    before: TurnLabel | None = None
    agent = any(map(_acts, messages))
    for at, message in enumerate(messages):
        if message.role == "assistant":
            # In a split record all earlier turns are untrained; only an agent's, that begins to act later, has a preamble.
            if before is None and not message.loss and not _acts(message) and (agent or not last_only):
                label = TurnLabel.PREAMBLE
            else:
                last = at == len(messages) - 1
                before = label = _label(message, before, history=last_only and not last)
            turns.append(Turn("assistant", message.content, label, message.calls, thinking=message.thinking))
        elif message.role == "tool":
            turns.append(Turn("tool", message.content, None, answers=message.answers))
        else:
            turns.append(Turn("system" if message.role == "system" else "user", message.content, None))
    return Conversation(id, group, tuple(turns), where, environment, script, tools=tuple(tools))


def without_mistakes(whole: Conversation) -> Conversation | None:
    """The conversation without its mistakes and the answers to them: the paper's data without refinement.

    Every trajectory of the method holds mistakes, so that to leave out whole ones would leave none; what is left of
    each shows no refinement. None if nothing that is right is left.

    Raises:
        InputError: It is not known which of its turns are mistakes.
    """
    kept: list[Turn] = []
    wrong = False
    for turn in whole.turns:
        if turn.label is TurnLabel.HISTORY:
            raise InputError(
                f"{whole.where}: this record does not say which of its earlier turns are mistakes, so they cannot be taken out; "
                "give the run's own folder, or an export with a flag per message"
            )
        wrong = turn.label is TurnLabel.MISTAKE if turn.role == "assistant" else wrong
        if wrong:
            continue
        kept.append(turn._replace(label=TurnLabel.CORRECT) if turn.label is TurnLabel.REFINEMENT else turn)
    if not any(turn.label is TurnLabel.CORRECT for turn in kept):
        return None
    return replace(whole, turns=tuple(kept))


def task_digest(turns: Iterable[Turn]) -> str:
    """Digest of the task: the user's messages up to the assistant's first attempt."""
    before = takewhile(lambda turn: turn.label in {None, TurnLabel.PREAMBLE}, turns)
    return digest("\n\n".join(turn.content for turn in before if turn.role == "user"))


def _acts(message: FlaggedMessage) -> bool:
    return message.role == "assistant" and (bool(message.calls) or action_label(message.content) is not None)


def _label(message: FlaggedMessage, before: TurnLabel | None, *, history: bool) -> TurnLabel:
    if history:
        return TurnLabel.HISTORY
    if not message.loss:
        return TurnLabel.MISTAKE
    return TurnLabel.REFINEMENT if before is TurnLabel.MISTAKE else TurnLabel.CORRECT


def _refuse_unsound(messages: Sequence[FlaggedMessage], where: str) -> None:
    expected = {"system" if messages and messages[0].role == "system" else "user"}
    open_calls: set[str] = set()
    for number, message in enumerate(messages, start=1):
        if message.role not in _ROLES:
            raise InputError(
                f"{where}: message {number} is from {message.role!r}, a role that is not read; expected system, user, assistant or tool, "
                "or another word for one of them. Rename the role, or leave the message out"
            )
        if message.role == "tool" and "tool" not in expected and messages[number - 2].role == "assistant":
            raise InputError(
                f"{where}: message {number} is from 'tool', and the message before it calls no function that can be read; expected "
                "`tool_calls`, `function_call`, or <tool_call> with JSON that ends the text. Write the call so, or make the answer a "
                "user's message"
            )
        if message.role not in expected:
            raise InputError(
                f"{where}: message {number} is from {message.role!r} where one from {' or '.join(map(repr, sorted(expected)))} is "
                "expected: after a system message or none, user and assistant take turns, a user first, and each call of a tool is "
                "answered by one message of the tool. Join or remove messages so that they do"
            )
        if not message.content.strip() and not message.calls and message.role != "tool":
            raise InputError(
                f"{where}: message {number} ({message.role}) is empty. Remove this record, or fill the message in"
            )
        if message.role != "assistant" and message.loss:
            raise InputError(
                f"{where}: message {number} is a {message.role}'s and marked for training; only an assistant's can be. Remove the mark"
            )
        if message.role == "tool" and message.answers not in open_calls:
            raise InputError(
                f"{where}: message {number} answers the call {message.answers!r}, and open are {sorted(open_calls)}; expected the id "
                "of one in tool_call_id"
            )
        open_calls = {call.id for call in message.calls} if message.role != "tool" else open_calls - {message.answers}
        expected = _followers(message, open_calls)
    if not any(message.role == "assistant" for message in messages):
        raise InputError(f"{where}: there is no assistant message, so nothing to learn. Remove this record")


def _followers(message: FlaggedMessage, open_calls: Collection[str]) -> set[str]:
    if open_calls:
        return {"tool"}
    if message.role == "tool":
        return {"assistant", "user"}
    return {"assistant": {"user"}, "user": {"assistant"}}.get(message.role, {"user"})
