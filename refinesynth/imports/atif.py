"""Documents of the Agent Trajectory Interchange Format: ours, which hold script and provenance, and others'."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic import ValidationError

from refinesynth.errors import InputError
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn, Trajectory, explain

_VERSION = "ATIF-v"


def refuse_others(document: Mapping[str, Any], where: str) -> None:
    """Raises: InputError: This is no such document."""
    version = document.get("schema_version")
    if not isinstance(version, str) or not version.startswith(_VERSION) or not isinstance(document.get("steps"), list):
        raise InputError(
            f"{where}: this is no ATIF document: expected a schema_version such as {_VERSION}1.8, and steps"
        )


def is_ours(document: Mapping[str, Any]) -> bool:
    """Whether `AtifFormat` wrote it, by what it holds."""
    extra = document.get("extra")
    return isinstance(extra, Mapping) and {"persona", "script", "provenance"} <= cast("dict[str, Any]", extra).keys()


def read_ours(document: Mapping[str, Any], where: str) -> Trajectory:
    """The way back of `AtifFormat`.

    Raises:
        InputError: A part of it is missing, or of the wrong kind.
    """
    try:
        name = document.get("trajectory_id") or document["session_id"]
        turns = [turn for step in document["steps"][1:] for turn in _turns(step)]
        return Trajectory.model_validate({**document["extra"], "id": name, "turns": turns})
    except ValidationError as error:
        raise InputError(f"{where}: this is no document that refinesynth wrote: {explain(error)}") from error
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{where}: this is no document that refinesynth wrote: {error!r}") from error


def _turns(step: Mapping[str, Any]) -> Iterator[PlayerTurn | DungeonMasterTurn]:
    judgement, said = step["extra"].get("dungeon_master"), step["message"]
    if step["source"] == "agent":
        yield PlayerTurn(thought=said, action=step["tool_calls"][0]["arguments"]["action"])
        said = step["observation"]["results"][0]["content"] if judgement else ""
    if judgement:
        yield DungeonMasterTurn.model_validate({**judgement, "observation": said})


def as_chat(document: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Another program's document as a record of messages with calls of tools.

    Raises:
        InputError: A step is not sound.
    """
    messages: list[dict[str, Any]] = []
    try:
        for step in document["steps"]:
            for message in _messages(step):
                before = messages[-1] if messages else {}
                if message["role"] == before.get("role") != "assistant" and "tool_call_id" not in message:
                    before["content"] = f"{_text(before['content'])}\n\n{_text(message['content'])}"
                else:
                    messages.append(message)
        agent: Any = document.get("agent") or {}
        return {"messages": messages, "tools": agent.get("tool_definitions")}
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{where}: a step cannot be read: {error!r}") from error


def _messages(step: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A step as messages: an agent's is followed by what its calls gave."""
    if step["source"] != "agent":
        yield {"role": step["source"], "content": step["message"]}
        return
    calls: list[Any] = step.get("tool_calls") or []
    message = {"role": "assistant", "content": step["message"], "reasoning_content": step.get("reasoning_content")}
    extra: Any = step.get("extra") or {}
    loss: Any = extra.get("loss")
    yield {**message, "loss": loss if isinstance(loss, bool) else None, "tool_calls": [*map(_call, calls)]}
    observation: Any = step.get("observation") or {}
    results: list[dict[str, Any]] = observation.get("results") or []
    for call in calls:
        given = [
            _text(one.get("content")) for one in results if one.get("source_call_id") in {call["tool_call_id"], None}
        ]
        yield {"role": "tool", "content": "\n\n".join(given), "tool_call_id": call["tool_call_id"]}
    if results and not calls:
        yield {"role": "user", "content": "\n\n".join(_text(one.get("content")) for one in results)}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": call["tool_call_id"],
        "function": {"name": call["function_name"], "arguments": call.get("arguments") or {}},
    }


def _text(content: object) -> str:
    """Text, or the text of parts.

    Raises:
        ValueError: There is something else among them, such as a picture.
    """
    if content is None or isinstance(content, str):
        return content or ""
    parts = cast("list[dict[str, Any]]", content)
    if any(part.get("type") != "text" for part in parts):
        raise ValueError("it holds something else than text")
    return "\n\n".join(str(part.get("text")) for part in parts)
