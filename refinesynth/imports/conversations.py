"""Conversations, read as training reads them, as turns in a script."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from refinesynth.actions.calls import Call, text_of
from refinesynth.actions.matching import match_in
from refinesynth.chat import read_player, thinking_in
from refinesynth.errors import InputError
from refinesynth.imports.functions import ANSWER, Functions
from refinesynth.imports.tasks import Task, plain_script, read_task, read_tool_task
from refinesynth.train.conversation import Conversation, Turn, TurnLabel
from refinesynth.train.data.shapes import read_record
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn, Script

UNANSWERED = "(no answer)"
"""In the place of an observation that is empty, or missing: exports leave out the last."""


class Played(NamedTuple):
    """What was played, and in what."""

    script: Script
    turns: tuple[PlayerTurn | DungeonMasterTurn, ...]


_Reader = Callable[[Turn], PlayerTurn]


def read_conversation(record: Mapping[str, Any], where: str) -> Played:
    """The messages of a record, with or without calls of tools; a mistake is what its flags keep out of training, and
    where some messages have a flag, those without one are right.

    Raises:
        InputError: They are no agent's turns; the message begins with `where`.
    """
    found = read_record(record, where, unflagged=True)
    if any(turn.label is TurnLabel.HISTORY for turn in found.turns):
        raise InputError(
            f"{where}: only the last message is to be trained on, as in one of several records of a conversation, so it is not known "
            "which of the earlier turns are mistakes; export with a flag per message, and an id where there is a place for one"
        )
    asked = list(takewhile(lambda turn: turn.label in {None, TurnLabel.PREAMBLE}, found.turns))
    played = found.turns[len(asked) :]
    if not played:
        raise InputError(f"{where}: the assistant takes no turn")
    called = found.tools or any(turn.calls for turn in played)
    try:
        task, read = _with_calls(found, asked, played) if called else _as_text(asked)
        beside = bool(record.get("system")) and found.turns[0].role == "system"
        return Played(task.script, tuple(_turns(task, played, read, first=len(asked) + (0 if beside else 1))))
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error


def _as_text(asked: Sequence[Turn]) -> tuple[Task, _Reader]:
    ours = read_task(asked[0].content) if len(asked) == 1 else None
    return ours or Task(plain_script(*_told(asked)), None), _read_text


def _read_text(turn: Turn) -> PlayerTurn:
    thinking, content = _thoughts(turn)
    try:
        player = read_player(content)
    except ValueError:
        raise ValueError(
            'the assistant takes no action in it, there is no line that begins with "Action:"; expected one in each of its messages '
            '("Thought: ..." and then "Action: ..."), or calls of functions. Leave the record out, or write its actions so'
        ) from None
    return player.model_copy(update={"thought": _joined(thinking, player.thought)}) if thinking else player


def _thoughts(turn: Turn) -> tuple[str, str]:
    """What was thought, apart from the message or at its beginning, and the rest of the message."""
    return (turn.thinking, turn.content) if turn.thinking else thinking_in(turn.content)[:2]


def _joined(thinking: str, said: str) -> str:
    return f"{thinking}\n\n{said}" if thinking and said.strip() else thinking or said


def _with_calls(found: Conversation, asked: Sequence[Turn], played: Sequence[Turn]) -> tuple[Task, _Reader]:
    acting = [turn for turn in played if turn.role == "assistant"]
    if (most := max(len(turn.calls) for turn in acting)) > 1:
        raise ValueError(f"one message calls {most} functions; a turn is one action")
    silent = any(not turn.calls for turn in acting)
    ours = read_tool_task(asked[0].content, found.tools) if len(asked) == 1 and not silent else None
    if ours is not None:
        return ours, lambda turn: PlayerTurn(
            thought=_joined(*_thoughts(turn)),
            action=text_of(ours.script, Call(turn.calls[0].name, turn.calls[0].arguments)),
        )
    right = [call for turn in acting for call in turn.calls if turn.label is not TurnLabel.MISTAKE]
    functions = Functions(found.tools, right, answers=silent)

    def read(turn: Turn) -> PlayerTurn:
        if not turn.calls:
            thinking, content = _thoughts(turn)
            return PlayerTurn(thought=thinking, action=ANSWER.fill({"text": content}))
        return PlayerTurn(thought=_joined(*_thoughts(turn)), action=functions.text_of(turn.calls[0]))

    return Task(plain_script(*_told(asked), functions.actions), None), read


def _told(asked: Sequence[Turn]) -> tuple[str, str]:
    """Introduction and goal in others' words: what is said last before the first turn is the goal."""
    *before, goal = (turn.content.strip() for turn in asked if turn.label is None)
    return "\n\n".join(before), goal


def _turns(
    task: Task, played: Sequence[Turn], read: _Reader, *, first: int
) -> Iterator[PlayerTurn | DungeonMasterTurn]:
    """Each turn of the player is answered; messages that follow each other are one observation.

    Raises:
        ValueError: A turn cannot be read; `first` is the number of the first message among those of the record.
    """
    if task.opening is not None:
        yield _answer(task.opening)
    for at, speaker, heard in _exchanges(played):
        try:
            player = read(speaker)
        except ValueError as error:
            raise ValueError(f"message {first + at}: {error}") from error
        yield player
        observation = "\n\n".join(turn.content for turn in heard if turn.content.strip()) or UNANSWERED
        unknown = match_in(task.script, player.action) is None
        yield _answer(observation, wrong=speaker.label is TurnLabel.MISTAKE, unknown=unknown)


def _exchanges(played: Sequence[Turn]) -> Iterator[tuple[int, Turn, list[Turn]]]:
    """Each turn of the assistant, at its index, with what it hears after it."""
    starts = [at for at, turn in enumerate(played) if turn.role == "assistant"]
    for at, stop in zip(starts, [*starts[1:], len(played)], strict=True):
        yield at, played[at], list(played[at + 1 : stop])


def _answer(observation: str, *, wrong: bool = False, unknown: bool = False) -> DungeonMasterTurn:
    """Which kind of mistake it was no flag says: what is no action at all has the wrong form, else it made no sense."""
    return DungeonMasterTurn(
        thought="",
        parameter_error=wrong and unknown,
        place_error=False,
        logic_error=wrong and not unknown,
        observation=observation,
    )
