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
from refinesynth.text.json_reader import write_json
from refinesynth.train.data.record_forms import read_paper
from refinesynth.trajectory import DungeonMasterTurn, Persona, PlayerTurn, Provenance, Trajectory, explain

_VERSION = "ATIF-v"


def _read_own_document(document: Mapping[str, Any], location: str) -> Trajectory:
    """Read a document of `AtifFormat`; raises InputError for others."""
    try:
        name = document.get("trajectory_id") or document["session_id"]
        turns = [turn for step in document["steps"][1:] for turn in _turns(step)]
        return Trajectory.model_validate({**document["extra"], "id": name, "turns": turns})
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        reason = explain(error) if isinstance(error, ValidationError) else repr(error)
        raise InputError(f"{location}: this is no document that refinesynth wrote: {reason}") from error


def _turns(step: Mapping[str, Any]) -> Iterator[PlayerTurn | DungeonMasterTurn]:
    judgement, text = step["extra"].get("dungeon_master"), step["message"]
    if step["source"] == "agent":
        action = step["tool_calls"][0]["arguments"]["action"]
        parallel = step["extra"].get("parallel") is True
        yield PlayerTurn(thought=text, action=action, by=step["extra"].get("by"), parallel=parallel)
        text = step["observation"]["results"][0]["content"] if judgement else ""
    if judgement:
        yield DungeonMasterTurn.model_validate({**judgement, "observation": text})


def _as_chat(document: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Return another program's document as chat messages with tool calls; raises InputError for unreadable steps."""
    messages: list[dict[str, Any]] = []
    try:
        for step in document["steps"]:
            for message in _messages(step):
                last = messages[-1] if messages else {}
                if message["role"] == last.get("role") != "assistant" and "tool_call_id" not in message:
                    last["content"] = f"{_text(last['content'])}\n\n{_text(message['content'])}"
                else:
                    messages.append(message)
        agent: Any = document.get("agent") or {}
        return {"messages": messages, "tools": agent.get("tool_definitions")}
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{location}: a step cannot be read: {error!r}") from error


def _messages(step: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the messages of a step; the results of calls follow an agent's message.

    An agent's step that no model wrote in this session is context, and thus a user message with its calls and results.
    """
    observation: Any = step.get("observation") or {}
    results: list[dict[str, Any]] = observation.get("results") or []
    texts = [_text(result.get("content")) for result in results]
    if step["source"] != "agent":
        content = "\n\n".join(filter(None, [_text(step["message"]), *texts])) if texts else step["message"]
        yield {"role": step["source"], "content": content}
        return
    calls: list[Any] = step.get("tool_calls") or []
    if step.get("is_copied_context") is True or step.get("llm_call_count") == 0:
        called = (f"{call['function_name']} {write_json(call.get('arguments') or {}).decode()}" for call in calls)
        yield {"role": "user", "content": "\n\n".join(filter(None, [_text(step["message"]), *called, *texts]))}
        return
    message = {"role": "assistant", "content": step["message"], "reasoning_content": step.get("reasoning_content")}
    extra: Any = step.get("extra") or {}
    loss: Any = extra.get("loss")
    tool_calls: list[dict[str, Any]] = []
    for call in calls:
        function: dict[str, Any] = {"name": call["function_name"], "arguments": call.get("arguments") or {}}
        tool_calls.append({"id": call["tool_call_id"], "function": function})
    yield {**message, "loss": loss if isinstance(loss, bool) else None, "tool_calls": tool_calls}
    if not calls:
        if results:
            yield {"role": "user", "content": "\n\n".join(texts)}
        return
    call_ids = [result.get("source_call_id") for result in results]
    unanswered = [call["id"] for call in tool_calls if call["id"] not in call_ids]
    # Results without a call id belong to the calls without a result, in order, if their numbers agree; else to the last
    # call.
    default_ids = iter(unanswered) if len(unanswered) == call_ids.count(None) else repeat(tool_calls[-1]["id"])
    answers: dict[str, list[str]] = {call["id"]: [] for call in tool_calls}
    if unknown := next((call_id for call_id in call_ids if call_id is not None and call_id not in answers), None):
        raise ValueError(f"a result answers the call {unknown!r}, which its step does not make")
    for call_id, text in zip(call_ids, texts, strict=True):
        answers[next(default_ids) if call_id is None else call_id].append(text)
    for call in tool_calls:
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

_MAX_GOAL = 300


def read_record(record: object, format: str, location: str, *, index: int = 0) -> Trajectory:  # noqa: A002
    """Return a record as a trajectory; `index` gives it an id if it has none. Raises InputError with `location`: not valid."""
    read = find(format)
    if not isinstance(record, Mapping):
        raise InputError(f"{location}: expected a JSON object, got {type(record).__name__}")
    # Rows of a table have a null for every missing key.
    fields = {str(key): value for key, value in cast("Mapping[Any, Any]", record).items() if value is not None}
    try:
        parsed = read(fields, location)
        return parsed if isinstance(parsed, Trajectory) else _trajectory(parsed, fields, index)
    except ValidationError as error:
        raise InputError(f"{location}: {explain(error)}") from error
    except RecursionError as error:
        raise InputError(f"{location}: it is nested too deeply to be written down again") from error


def find(name: str) -> Callable[[Mapping[str, Any], str], Trajectory | ParsedPlay]:
    """Return the reader of that format; raises InputError for an unknown format."""
    if reader := FORMATS.get(name.strip().casefold()):
        return reader
    similar = get_close_matches(name.casefold(), FORMATS, n=1)
    hint = f"; did you mean {similar[0]!r}?" if similar else "."
    raise InputError(f"there is no format {name!r} to import{hint} Choose one of: {', '.join(FORMATS)}")


def _trajectory(play: ParsedPlay, record: Mapping[str, Any], index: int) -> Trajectory:
    script, turns = play
    stated = record.get("persona") if "trajectory" in record else None
    persona = Persona(text=stated if isinstance(stated, str) else f"Somebody with this task: {script.goal[:_MAX_GOAL]}")
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


def _chat(record: Mapping[str, Any], location: str, *keys: str) -> ParsedPlay:
    if not record.keys() >= {*keys}:
        raise InputError(f"{location}: expected `{'` and `'.join(keys)}` among the keys {sorted(record)[:8]}")
    return ParsedPlay(*read_paper(record, location)) if "script" in keys else read_conversation(record, location)


def _atif(record: Mapping[str, Any], location: str) -> Trajectory | ParsedPlay:
    version, extra = record.get("schema_version"), record.get("extra")
    if not isinstance(version, str) or not version.startswith(_VERSION) or not isinstance(record.get("steps"), list):
        raise InputError(
            f"{location}: this is no ATIF document: expected a schema_version such as {_VERSION}1.8, and steps"
        )
    is_own = isinstance(extra, Mapping) and {"persona", "script", "provenance"} <= cast("dict[str, Any]", extra).keys()
    return _read_own_document(record, location) if is_own else read_conversation(_as_chat(record, location), location)


FORMATS: Final[Mapping[str, Callable[[Mapping[str, Any], str], Trajectory | ParsedPlay]]] = MappingProxyType(
    {
        "agentinstruct": lambda record, location: _chat(record, location, "conversations"),
        "openai": lambda record, location: _chat(record, location, "messages"),
        "atif": _atif,
        "paper": lambda record, location: _chat(record, location, "script", "trajectory"),
    }
)
"""Reader of each format by its name."""
