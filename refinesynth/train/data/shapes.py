"""Records of every form that we export, distinguished by their keys.

    {"script", "turns", ...}                                a line of trajectories.jsonl
    {"script", "trajectory", "persona"}                     the paper's own keys
    {"conversations": [{"from", "value", "loss"}]}          AgentInstruct; without `loss` ShareGPT
    {"messages": [{"role", "content", "loss"}]}             TRL, ms-swift
    {"messages": [{..., "loss_weight" | "training" | "weight"}]}   LLaMA-Factory v1, Axolotl, OpenAI
    {"messages": [{..., "trainable" | "step_loss_mask"}]}   Tinker's cookbook, slime
    {"prompt": [...], "completion": [...]}                  TRL, one record per correct turn

Records with `messages` or `prompt` may have `tools` and tool calls; `messages.py` lists their forms.

Records without flags on their messages: the last message alone is trained in a prompt with a completion, or if the id
ends in `#1`, `#2`, ... (our split exports); earlier turns are `HISTORY`. All turns of the assistant are trained if the
id ends in `#correct` (our exports without mistakes). Ids count only where the task is in our words. All other records
are general chat: every turn of the assistant is trained, and the conversation is not `marked`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, cast

from pydantic import JsonValue, ValidationError

from refinesynth.chat import TOOL_INSTRUCTIONS, render_tool_turns, render_tools, render_turns
from refinesynth.chat.react import FORMER_INSTRUCTIONS, as_first_worded
from refinesynth.errors import InputError
from refinesynth.text.jsontext import read_json, write_json
from refinesynth.train.conversation import Conversation, FlaggedMessage, ToolCall, conversation, digest, task_digest
from refinesynth.train.data.messages import read_messages, read_tools
from refinesynth.trajectory import DungeonMasterTurn, MalformedTurn, PlayerTurn, Script, Trajectory, explain, read_turns

_MARKED = re.compile(r"^(?P<whole>.+)#(?:\d+|(?P<correct>correct))$", re.DOTALL)

_WHAT_TO_DO = (
    "Export with a flag per message (`refinesynth export --format agentinstruct`), one record per correct turn "
    "(`--masking split`), or add a boolean `loss` to every assistant message, or to none: then all are trained on"
)


_Turns: TypeAlias = tuple[PlayerTurn | DungeonMasterTurn, ...]

ChatForm = Literal["react", "tools"]
"""Form of a trajectory as messages: ReAct text, or actions as tool calls."""


def read_record(
    record: object, where: str, form: ChatForm = "react", *, table: bool = False, unflagged: bool | None = None
) -> Conversation:
    """Read one record of any form; only trajectories are written in `form`.

    `table`: the record is a row of a table, whose columns are filled with null. `unflagged`: train on an assistant's
    messages without a flag where others have one; None refuses such a record.

    Raises:
        InputError: Its form is unknown, or it is not sound; the message begins with `where`.
    """
    if isinstance(record, Trajectory):
        return of_trajectory(record, where, form)
    if not isinstance(record, Mapping):
        raise InputError(f"{where}: expected a JSON object, got {type(record).__name__}")
    # Tables have a column for every key: where a record has none, its value is null.
    given = {key: value for key, value in cast("Mapping[str, Any]", record).items() if value is not None}
    if "script" in given and "turns" in given:
        return _own(given, where, form)
    if "script" in given and "trajectory" in given:
        return _paper(given, where, form)
    if "prompt" in given and "completion" in given:
        return _prompt_completion(given, where, table=table)
    for key in ("conversations", "messages"):
        if key in given:
            if not isinstance(given.get("system", ""), str):
                raise InputError(f"{where}: `system` is {type(given['system']).__name__}; expected text")
            tools, table = read_tools(given, where, table=table)
            messages = read_messages(given[key], key, where, tools=tools, table=table)
            return _chat(given, _with_system(given, messages), tools, where, unflagged)
    raise InputError(
        f"{where}: a record with the keys {sorted(map(str, given))[:8]} is of no form that is known; expected a line of "
        "trajectories.jsonl or of an export: `conversations`, `messages`, `prompt` and `completion`, or `script` and `trajectory`"
    )


def of_trajectory(trajectory: Trajectory, where: str, form: ChatForm = "react") -> Conversation:
    """A trajectory as the conversation that all exports render. Its group is its persona."""
    return conversation(
        trajectory.id,
        _persona(trajectory.persona.text),
        _rendered(trajectory.script, trajectory.turns, form),
        where,
        environment=_environment(trajectory.script),
        script=trajectory.provenance.script_id or "",
        tools=render_tools(trajectory.script) if form == "tools" else (),
    )


def _own(given: Mapping[str, Any], where: str, form: ChatForm) -> Conversation:
    try:
        return of_trajectory(Trajectory.model_validate(given), where, form)
    except ValidationError as error:
        raise InputError(f"{where}: this is no trajectory of this version: {explain(error)}") from error


def read_paper(given: Mapping[str, Any], where: str) -> tuple[Script, tuple[PlayerTurn | DungeonMasterTurn, ...]]:
    """Script and turns of a record in the paper's keys, as objects or JSON text. Raises `InputError` with `where`."""
    try:
        script = Script.from_llm(_parsed(given["script"]))
        turns = read_turns(_parsed(given["trajectory"]))
    except ValidationError as error:
        raise InputError(f"{where}: the script cannot be read: {explain(error)}") from error
    except ValueError as error:
        raise InputError(f"{where}: the script or the trajectory cannot be read: {error}") from error
    sound = tuple(turn for turn in turns if not isinstance(turn, MalformedTurn))
    if len(sound) != len(turns):
        at, bad = next((at, turn) for at, turn in enumerate(turns, start=1) if isinstance(turn, MalformedTurn))
        raise InputError(f"{where}: turn {at} of the trajectory cannot be read: {bad.problem}")
    return script, labelled(sound, given)


def labelled(turns: _Turns, given: Mapping[str, Any]) -> _Turns:
    """`turns` with the repairer's named, as a record's `labels` say; without these, or with others, as they are."""
    if len(labels := _labels(given)) != sum(isinstance(turn, PlayerTurn) for turn in turns):
        return turns
    said = iter(labels)
    return tuple(
        turn.model_copy(update={"by": "repairer"}) if isinstance(turn, PlayerTurn) and next(said) == "repair" else turn
        for turn in turns
    )


def _labels(given: Mapping[str, Any]) -> list[Any]:
    """The labels of an export of a run with a repairer; none if the key means something else."""
    found: object = given.get("labels")
    labels = cast("list[Any]", found) if isinstance(found, list) else []
    return labels if all(label in ("player", "mistake", "repair") for label in labels) else []


def _paper(given: Mapping[str, Any], where: str, form: ChatForm) -> Conversation:
    script, sound = read_paper(given, where)
    messages = _rendered(script, sound, form)
    persona = given.get("persona")
    name = _id(given) or where
    group = _persona(str(persona)) if persona else f"task {digest(messages[0].content)}"
    return conversation(
        name,
        group,
        messages,
        where,
        environment=_environment(script),
        tools=render_tools(script) if form == "tools" else (),
    )


def _prompt_completion(given: Mapping[str, Any], where: str, *, table: bool) -> Conversation:
    tools, table = read_tools(given, where, table=table)
    prompt, completion = (
        read_messages(given[key], key, where, tools=tools, table=table) for key in ("prompt", "completion")
    )
    if len(completion) != 1:
        raise InputError(f"{where}: `completion` holds {len(completion)} messages; expected the assistant's one")
    return _named(given, _with_system(given, [*prompt, *completion]), tools, where, last_only=True)


def _chat(
    given: Mapping[str, Any],
    messages: Sequence[FlaggedMessage],
    tools: Sequence[Mapping[str, Any]],
    where: str,
    unflagged: bool | None,
) -> Conversation:
    flags = [message.loss for message in messages if message.role == "assistant"]
    name = _id(given)
    marked = _mark(name, messages)
    split = name is None or (marked is not None and not marked["correct"])
    if all(flag is None for flag in flags):
        if name is not None and split and flags:
            return _named(given, messages, tools, where, last_only=True)
        every = [message._replace(loss=message.role == "assistant") for message in messages]
        return replace(_named(given, every, tools, where, last_only=False), marked=marked is not None)
    if unflagged is None and None in flags:
        raise InputError(
            f"{where}: only some of the assistant's messages say whether they are trained on. {_WHAT_TO_DO}"
        )
    known = [
        message._replace(loss=unflagged) if message.role == "assistant" and message.loss is None else message
        for message in messages
    ]
    *earlier, last = (message.loss for message in known if message.role == "assistant")
    # Split records mark their last message alone. Of one without an id, that is taken for the sign of it.
    return _named(given, known, tools, where, last_only=split and bool(last) and not any(earlier))


def _mark(name: str | None, messages: Sequence[FlaggedMessage]) -> re.Match[str] | None:
    """Read the mark in an id of our exports; None for other ids."""
    task = next((message.content for message in messages if message.role == "user"), "")
    ours = FORMER_INSTRUCTIONS in as_first_worded(task) or TOOL_INSTRUCTIONS in task
    return _MARKED.match(name) if name and ours else None


def _named(
    given: Mapping[str, Any],
    messages: Sequence[FlaggedMessage],
    tools: Sequence[Mapping[str, Any]],
    where: str,
    *,
    last_only: bool,
) -> Conversation:
    """Make a conversation without a persona: its group is the id before `#`, else the digest of the task."""
    name, labels = _id(given), _labels(given)
    if len(labels) == sum(message.role == "assistant" for message in messages):
        said = iter(labels)
        messages = [
            message._replace(repair=message.role == "assistant" and next(said) == "repair") for message in messages
        ]
    if last_only:
        messages = [message._replace(loss=False) for message in messages]
        messages[-1] = messages[-1]._replace(loss=messages[-1].role == "assistant")
        if messages[-1].role != "assistant":
            raise InputError(f"{where}: the last message, the one to be trained on, is not an assistant's")
    marked = _mark(name, messages)
    read = conversation(name or where, "", messages, where, last_only=last_only, tools=tools)
    group = f"record {marked['whole'] if marked else name}" if name else f"task {task_digest(read.turns)}"
    return replace(read, group=group)


def _id(given: Mapping[str, Any]) -> str | None:
    for key in ("id", "extra_info"):
        value = given.get(key)
        if isinstance(value, str | int) and str(value).strip():
            return str(value)
    return None


def _with_system(given: Mapping[str, Any], messages: list[FlaggedMessage]) -> list[FlaggedMessage]:
    system = given.get("system")
    beside = isinstance(system, str) and system and not (messages and messages[0].role == "system")
    return [FlaggedMessage("system", str(system), loss=False), *messages] if beside else messages


def _rendered(script: Script, turns: Sequence[PlayerTurn | DungeonMasterTurn], form: ChatForm) -> list[FlaggedMessage]:
    if form == "react":
        return [
            FlaggedMessage(message.role, message.content, message.loss, repair=message.label == "repair")
            for message in render_turns(script, turns)
        ]
    return [
        FlaggedMessage(
            message.role,
            message.content,
            message.loss,
            (ToolCall(message.id, *message.call),) if message.call is not None else (),
            message.id if message.role == "tool" else "",
            repair=message.label == "repair",
        )
        for message in render_tool_turns(script, turns)
    ]


def _persona(text: str) -> str:
    return f"persona {digest(text)}"


def _environment(script: Script) -> str:
    # An empty environment says nothing; then the task does.
    return digest(write_json(script.environment).decode()) if script.environment else ""


def _parsed(value: JsonValue) -> JsonValue:
    return read_json(value) if isinstance(value, str) else value
