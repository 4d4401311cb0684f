"""Import formats: one record to one trajectory."""

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from itertools import repeat
from types import MappingProxyType
from typing import Any, Final, cast

from pydantic import ValidationError

from refinesynth._version import __version__
from refinesynth.errors import InputError
from refinesynth.imports.conversations import ParsedPlay, read_conversation
from refinesynth.rules import RequiredKeys
from refinesynth.train.data.record_forms import read_paper
from refinesynth.trajectory import DungeonMasterTurn, Persona, PlayerTurn, Provenance, Trajectory, explain

_VERSION = "ATIF-v"


def _read_ours(document: Mapping[str, Any], where: str) -> Trajectory:
    """Read a document of `AtifFormat`; raises InputError for others."""
    try:
        name = document.get("trajectory_id") or document["session_id"]
        turns = [turn for step in document["steps"][1:] for turn in _turns(step)]
        return Trajectory.model_validate({**document["extra"], "id": name, "turns": turns})
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        why = explain(error) if isinstance(error, ValidationError) else repr(error)
        raise InputError(f"{where}: this is no document that refinesynth wrote: {why}") from error


def _turns(step: Mapping[str, Any]) -> Iterator[PlayerTurn | DungeonMasterTurn]:
    judgement, text = step["extra"].get("dungeon_master"), step["message"]
    if step["source"] == "agent":
        action = step["tool_calls"][0]["arguments"]["action"]
        parallel = step["extra"].get("parallel") is True
        yield PlayerTurn(thought=text, action=action, by=step["extra"].get("by"), parallel=parallel)
        text = step["observation"]["results"][0]["content"] if judgement else ""
    if judgement:
        yield DungeonMasterTurn.model_validate({**judgement, "observation": text})


def _as_chat(document: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return another program's document as chat messages with tool calls; raises InputError for unreadable steps."""
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
    """Yield the messages of a step; the results of calls follow an agent's message."""
    if step["source"] != "agent":
        yield {"role": step["source"], "content": step["message"]}
        return
    calls: list[Any] = step.get("tool_calls") or []
    message = {"role": "assistant", "content": step["message"], "reasoning_content": step.get("reasoning_content")}
    extra: Any = step.get("extra") or {}
    loss: Any = extra.get("loss")
    written: list[dict[str, Any]] = []
    for call in calls:
        function: dict[str, Any] = {"name": call["function_name"], "arguments": call.get("arguments") or {}}
        written.append({"id": call["tool_call_id"], "function": function})
    yield {**message, "loss": loss if isinstance(loss, bool) else None, "tool_calls": written}
    observation: Any = step.get("observation") or {}
    results: list[dict[str, Any]] = observation.get("results") or []
    if not calls:
        if results:
            yield {"role": "user", "content": "\n\n".join(_text(one.get("content")) for one in results)}
        return
    of_calls = [one.get("source_call_id") for one in results]
    unanswered = [call["id"] for call in written if call["id"] not in of_calls]
    # Results without a call id belong to the calls without a result, in order, if their numbers agree; else to the last
    # call.
    others = iter(unanswered) if len(unanswered) == of_calls.count(None) else repeat(written[-1]["id"])
    answers: dict[str, list[str]] = {call["id"]: [] for call in written}
    for of_call, one in zip(of_calls, results, strict=True):
        answers.setdefault(next(others) if of_call is None else of_call, []).append(_text(one.get("content")))
    for call in written:
        yield {"role": "tool", "content": "\n\n".join(answers[call["id"]]), "tool_call_id": call["id"]}


def _text(content: object) -> str:
    """Return a text, or the joined text parts; raises ValueError for other parts, such as images."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = cast("list[dict[str, Any]]", content)
    if any(part.get("type") != "text" for part in parts):
        raise ValueError("it holds something else than text")
    return "\n\n".join(str(part.get("text")) for part in parts)


PLAY: Final = "imported"
"""Play of imported trajectories."""

RULES: Final = repr(RequiredKeys())
"""Rule in the provenance of imported trajectories."""

_SHOWN = 300


def read_record(record: object, format: str, where: str, *, index: int = 0) -> Trajectory:  # noqa: A002
    """Return a record as a trajectory; `index` gives it an id if it has none. Raises InputError with `where`: not valid."""
    read = find(format)
    if not isinstance(record, Mapping):
        raise InputError(f"{where}: expected a JSON object, got {type(record).__name__}")
    # Rows of a table have a null for every missing key.
    fields = {str(key): value for key, value in cast("Mapping[Any, Any]", record).items() if value is not None}
    try:
        parsed = read(fields, where)
        return parsed if isinstance(parsed, Trajectory) else _trajectory(parsed, fields, index)
    except ValidationError as error:
        raise InputError(f"{where}: {explain(error)}") from error
    except RecursionError as error:
        raise InputError(f"{where}: it is nested too deeply to be written down again") from error


def find(name: str) -> Callable[[Mapping[str, Any], str], Trajectory | ParsedPlay]:
    """Return the reader of that format; raises InputError for an unknown format."""
    if found := FORMATS.get(name.strip().casefold()):
        return found
    near = get_close_matches(name.casefold(), FORMATS, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    raise InputError(f"there is no format {name!r} to import{meant} Choose one of: {', '.join(FORMATS)}")


def _trajectory(found: ParsedPlay, record: Mapping[str, Any], index: int) -> Trajectory:
    script, turns = found
    stated = record.get("persona") if "trajectory" in record else None
    persona = Persona(text=stated if isinstance(stated, str) else f"Somebody with this task: {script.goal[:_SHOWN]}")
    name, agent = record.get("id") or record.get("trajectory_id") or record.get("session_id"), record.get("agent")
    model: object = cast("Mapping[str, Any]", agent).get("model_name") if isinstance(agent, Mapping) else None
    return Trajectory(
        id=str(name) if isinstance(name, str | int) else f"{index:06d}-{script.digest[:8]}",
        persona=persona,
        script=script,
        turns=turns,
        provenance=Provenance(
            models={"player": model} if isinstance(model, str) else {},
            play=PLAY,
            seed=0,
            rules=RULES,
            package_version=__version__,
            attempts=1,
            script_attempts=0,
            script_id=script.digest,
        ),
    )


def _chat(record: Mapping[str, Any], where: str, *keys: str) -> ParsedPlay:
    if not record.keys() >= {*keys}:
        raise InputError(f"{where}: expected `{'` and `'.join(keys)}` among the keys {sorted(record)[:8]}")
    return ParsedPlay(*read_paper(record, where)) if "script" in keys else read_conversation(record, where)


def _atif(record: Mapping[str, Any], where: str) -> Trajectory | ParsedPlay:
    version, extra = record.get("schema_version"), record.get("extra")
    if not isinstance(version, str) or not version.startswith(_VERSION) or not isinstance(record.get("steps"), list):
        raise InputError(
            f"{where}: this is no ATIF document: expected a schema_version such as {_VERSION}1.8, and steps"
        )
    ours = isinstance(extra, Mapping) and {"persona", "script", "provenance"} <= cast("dict[str, Any]", extra).keys()
    return _read_ours(record, where) if ours else read_conversation(_as_chat(record, where), where)


FORMATS: Final[Mapping[str, Callable[[Mapping[str, Any], str], Trajectory | ParsedPlay]]] = MappingProxyType(
    {
        "agentinstruct": lambda given, where: _chat(given, where, "conversations"),
        "openai": lambda given, where: _chat(given, where, "messages"),
        "atif": _atif,
        "paper": lambda given, where: _chat(given, where, "script", "trajectory"),
    }
)
"""Reader of each format by its name."""
