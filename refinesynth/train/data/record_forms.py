"""Reader of records in all export formats, which are distinguished by their keys.

    {"script", "turns", ...}                                a line of trajectories.jsonl
    {"script", "trajectory", "persona"}                     the paper's own keys
    {"conversations": [{"from", "value", "loss"}]}          AgentInstruct; without `loss` ShareGPT
    {"messages": [{"role", "content", "loss"}]}             TRL, ms-swift
    {"messages": [{..., "loss_weight" | "training" | "weight"}]}   LLaMA-Factory v1, Axolotl, OpenAI
    {"messages": [{..., "trainable" | "step_loss_mask"}]}   Tinker's cookbook, slime
    {"prompt": [...], "completion": [...]}                  TRL, one record per correct turn

Records with `messages` or `prompt` may have `tools` and tool calls, in the form of chat completions (`messages.py`).

Without loss flags, only the last message is trained in a prompt with completion, and in a record whose id ends with
`#1`, `#2`, ... (split exports of refinesynth); earlier turns are `HISTORY`. All assistant turns are trained if the id
ends with `#correct` (exports without mistakes). Id suffixes count only if the task has the wording of refinesynth.
Other records are general chat: all assistant turns are trained, and the conversation is not `marked`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, cast

from pydantic import JsonValue, ValidationError

from refinesynth.chat import ToolMessage, render_tool_turns, render_tools, render_turns, tool_instructions_in
from refinesynth.chat.react import FORMER_INSTRUCTIONS, with_former_instructions
from refinesynth.errors import InputError
from refinesynth.text.json_reader import read_json, write_json
from refinesynth.train.data.messages import read_messages, read_tools
from refinesynth.train.labelled_conversation import (
    Conversation,
    FlaggedMessage,
    ToolCall,
    digest,
    make_conversation,
    task_digest,
)
from refinesynth.trajectory import DungeonMasterTurn, MalformedTurn, PlayerTurn, Script, Trajectory, explain, read_turns

_EXPORT_ID = re.compile(r"^(?P<whole>.+)#(?:\d+|(?P<correct>correct))$", re.DOTALL)

_Turns: TypeAlias = tuple[PlayerTurn | DungeonMasterTurn, ...]

ChatForm = Literal["react", "tools"]
"""Message form of a trajectory: ReAct text, or actions as tool calls."""


def read_record(
    record: object, location: str, form: ChatForm = "react", *, unflagged: bool | None = None
) -> Conversation:
    """Read one record of any format; `form` applies to trajectories only.

    `unflagged` is the loss flag of assistant messages without a flag in a record that flags others; None refuses such a
    record.

    Raises:
        InputError: The format is unknown or the record is invalid; the message begins with `location`.
    """
    if isinstance(record, Trajectory):
        return from_trajectory(record, location, form)
    if not isinstance(record, Mapping):
        raise InputError(f"{location}: expected a JSON object, got {type(record).__name__}")
    # Tables have a column for every key: absent keys are null.
    fields = {key: value for key, value in cast("Mapping[str, Any]", record).items() if value is not None}
    if "script" in fields and "turns" in fields:
        try:
            return from_trajectory(Trajectory.model_validate(fields), location, form)
        except ValidationError as error:
            raise InputError(f"{location}: this is no trajectory of this version: {explain(error)}") from error
    if "script" in fields and "trajectory" in fields:
        script, turns = read_paper(fields, location)
        persona = fields.get("persona")
        return _convert(_record_id(fields) or location, persona and str(persona), script, turns, location, form=form)
    if "prompt" in fields and "completion" in fields:
        return _read_chat(fields, ("prompt", "completion"), location)
    for key in ("conversations", "messages"):
        if key in fields:
            return _read_chat(fields, (key,), location, unflagged=unflagged)
    raise InputError(
        f"{location}: a record with the keys {sorted(map(str, fields))[:8]} is of no form that is known; expected a line of "
        "trajectories.jsonl or of an export: `conversations`, `messages`, `prompt` and `completion`, or `script` and `trajectory`"
    )


def from_trajectory(trajectory: Trajectory, location: str, form: ChatForm = "react") -> Conversation:
    """Convert a trajectory to the conversation that all exports render; its group is the persona."""
    script, turns, parallel = trajectory.script, trajectory.turns, trajectory.provenance.parallel_calls
    result = _convert(trajectory.id, trajectory.persona.text, script, turns, location, form=form, parallel=parallel)
    return replace(result, script=trajectory.provenance.script_id or "")


def _convert(
    name: str,
    persona: str | None,
    script: Script,
    turns: Sequence[PlayerTurn | DungeonMasterTurn],
    location: str,
    *,
    form: ChatForm,
    parallel: bool = False,
) -> Conversation:
    if form == "tools":
        messages = [*map(_flagged_message, render_tool_turns(script, turns, parallel=parallel))]
    else:
        messages = [
            FlaggedMessage(message.role, message.content, message.loss, repair=message.label == "repair")
            for message in render_turns(script, turns)
        ]
    return make_conversation(
        name,
        f"persona {digest(persona)}" if persona else f"task {digest(messages[0].content)}",
        messages,
        location,
        # Empty environments do not link conversations.
        environment=digest(write_json(script.environment).decode()) if script.environment else "",
        tools=render_tools(script) if form == "tools" else (),
    )


def _flagged_message(message: ToolMessage) -> FlaggedMessage:
    mistakes = tuple(call.id for call in message.calls if call.label == "mistake")
    return FlaggedMessage(
        message.role,
        message.content,
        message.loss,
        tuple(ToolCall(call.id, *call.call) for call in message.calls if call.call is not None),
        message.id if message.role == "tool" else "",
        repair=any(call.label == "repair" for call in message.calls),
        mistakes=mistakes if len(mistakes) < len(message.calls) else (),
    )


def read_paper(record: Mapping[str, Any], location: str) -> tuple[Script, _Turns]:
    """Read script and turns from the paper's keys, as objects or JSON text. Raises `InputError` with `location`."""
    try:
        script = Script.from_llm(_parse_json(record["script"]))
        turns = read_turns(_parse_json(record["trajectory"]))
    except ValidationError as error:
        raise InputError(f"{location}: the script cannot be read: {explain(error)}") from error
    except ValueError as error:
        raise InputError(f"{location}: the script or the trajectory cannot be read: {error}") from error
    valid_turns: list[PlayerTurn | DungeonMasterTurn] = []
    for number, turn in enumerate(turns, start=1):
        if isinstance(turn, MalformedTurn):
            raise InputError(f"{location}: turn {number} of the trajectory cannot be read: {turn.problem}")
        valid_turns.append(turn)
    return script, mark_repairs(tuple(valid_turns), record)


def mark_repairs(turns: _Turns, record: Mapping[str, Any]) -> _Turns:
    """Set `by` of the turns that a record's labels assign to the repairer; other `labels` change nothing."""
    calls: list[int] = []
    for turn in (turn for turn in turns if isinstance(turn, PlayerTurn)):
        if turn.parallel and calls:
            calls[-1] += 1
        else:
            calls.append(1)
    labels = (label for message_labels in _labels(record, calls) for label in message_labels)
    return tuple(
        turn.model_copy(update={"by": "repairer"})
        if isinstance(turn, PlayerTurn) and next(labels, "") == "repair"
        else turn
        for turn in turns
    )


def _labels(record: Mapping[str, Any], calls: Sequence[int]) -> list[tuple[str, ...]]:
    """The labels of each assistant message's calls, from an export's `turn_labels` or `labels`; `calls` holds the numbers
    of calls. All are empty if `labels` has another meaning or length.
    """
    value: object = record.get("turn_labels", record.get("labels"))
    groups = [tuple(str(label).split("+")) for label in cast("list[Any]", value)] if isinstance(value, list) else []
    if len(groups) != len(calls) or any(
        not {"player", "mistake", "repair"}.issuperset(labels) or len(labels) not in {1, count}
        for labels, count in zip(groups, calls, strict=True)
    ):
        return [()] * len(calls)
    return [labels * (count // len(labels)) for labels, count in zip(groups, calls, strict=True)]


def _read_chat(
    record: Mapping[str, Any], keys: Sequence[str], location: str, *, unflagged: bool | None = None
) -> Conversation:
    """Read a record of messages. Its group is the id before `#`, else the digest of the task."""
    if unread := next((key for key in ("message_loss_mask", "loss_mask", "functions") if key in record), None):
        instead = "`tools`, as of a chat completion" if unread == "functions" else "a boolean `loss` of each message"
        raise InputError(f"{location}: `{unread}` of a record is not read; replace it by {instead}")
    system = record.get("system", "")
    if not isinstance(system, str):
        raise InputError(f"{location}: `system` is {type(system).__name__}; expected text")
    tools = read_tools(record, location)
    parts = [read_messages(record[key], key, location) for key in keys]
    if len(parts) > 1 and len(parts[-1]) != 1:
        raise InputError(f"{location}: `completion` holds {len(parts[-1])} messages; expected the assistant's one")
    messages = [message for part in parts for message in part]
    if system and not (messages and messages[0].role == "system"):
        messages.insert(0, FlaggedMessage("system", system, loss=False))
    name, suffix = _record_id(record), _export_suffix(record, messages)
    flags = [message.loss for message in messages if message.role == "assistant"]
    is_split = name is None or (suffix is not None and not suffix["correct"])
    is_marked, last_only = True, len(parts) > 1
    if not last_only and all(flag is None for flag in flags):
        last_only = name is not None and is_split and bool(flags)
        is_marked = last_only or suffix is not None
        messages = [message._replace(loss=message.role == "assistant") for message in messages]
    elif not last_only:
        if unflagged is None and None in flags:
            raise InputError(
                f"{location}: only some of the assistant's messages say whether they are trained on. Export with a flag per message "
                "(`refinesynth export --format agentinstruct`), one record per correct turn (`--masking split`), or add a boolean `loss` "
                "to every assistant message, or to none: then all are trained on"
            )
        messages = [
            message._replace(loss=unflagged) if message.role == "assistant" and message.loss is None else message
            for message in messages
        ]
        *earlier, last = (message.loss for message in messages if message.role == "assistant")
        # Split records flag only their last message. A record without an id and with this pattern counts as split.
        last_only = is_split and bool(last) and not any(earlier)
    if last_only:
        if messages[-1].role != "assistant":
            raise InputError(f"{location}: the last message, the one to be trained on, is not an assistant's")
        messages = [*(message._replace(loss=False) for message in messages[:-1]), messages[-1]._replace(loss=True)]
    labels = iter(_labels(record, [max(1, len(item.calls)) for item in messages if item.role == "assistant"]))
    messages = [_with_labels(item, next(labels)) if item.role == "assistant" else item for item in messages]
    result = make_conversation(name or location, "", messages, location, last_only=last_only, tools=tools)
    group = f"record {suffix['whole'] if suffix else name}" if name else f"task {task_digest(result.turns)}"
    return replace(result, group=group, marked=is_marked)


def _with_labels(message: FlaggedMessage, labels: Sequence[str]) -> FlaggedMessage:
    mistakes = tuple(call.id for call, label in zip(message.calls, labels, strict=False) if label == "mistake")
    return message._replace(
        repair="repair" in labels, mistakes=mistakes if len(mistakes) < len(message.calls) and not message.loss else ()
    )


def _export_suffix(record: Mapping[str, Any], messages: Sequence[FlaggedMessage]) -> re.Match[str] | None:
    """Match the id suffix of a refinesynth export; None for other ids."""
    name = _record_id(record)
    task = next((message.content for message in messages if message.role == "user"), "")
    is_ours = FORMER_INSTRUCTIONS in with_former_instructions(task) or bool(tool_instructions_in(task))
    return _EXPORT_ID.match(name) if name and is_ours else None


def _record_id(record: Mapping[str, Any]) -> str | None:
    values = (record.get(key) for key in ("id", "extra_info"))
    return next((str(value) for value in values if isinstance(value, str | int) and str(value).strip()), None)


def _parse_json(value: JsonValue) -> JsonValue:
    return read_json(value) if isinstance(value, str) else value
