"""What litellm does to a request or an answer for one provider, where that is more than to hand it on."""

from collections.abc import Iterable
from typing import Any, cast

from refinesynth.client.http.listed import says
from refinesynth.client.http.reply import Reply

_DEEPSEEK_EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max", "ultra")
"""Those that litellm hands on, from 1.109 on."""


def as_it_is(_body: dict[str, Any], _model: str) -> None:
    """Nothing to change."""


def read_as_it_is(reply: Reply) -> Reply:
    """Nothing to change."""
    return reply


def for_vllm(body: dict[str, Any], _model: str) -> None:
    """Tools whose schemas say neither `strict` nor that there are no further properties: vLLM's grammars know
    neither.
    """
    if "tools" in body:
        body["tools"] = _without(body["tools"], strict=None, additionalProperties=False)


def for_deepseek(body: dict[str, Any], model: str) -> None:
    """Thinking is on or off, an effort alone turns it on; while it is on, what the model thought before must be there,
    were it a blank.
    """
    thinking, effort = body.pop("thinking", None), body.pop("reasoning_effort", None)
    kind = cast("dict[str, Any]", thinking).get("type") if isinstance(thinking, dict) else None
    if kind in {"enabled", "disabled"}:
        body["thinking"] = {"type": kind}
    elif effort is not None:
        body["thinking"] = {"type": "disabled" if effort == "none" else "enabled"}
    if effort in _DEEPSEEK_EFFORTS and body.get("thinking") == {"type": "enabled"}:
        body["reasoning_effort"] = effort
    if body.get("thinking") == {"type": "enabled"} and says("deepseek", model, "supports_reasoning"):
        body["messages"] = _with_thoughts(body["messages"], {"assistant"})


def for_moonshot(body: dict[str, Any], model: str) -> None:
    """No tool call can be demanded, only asked for; a model that thinks chooses its temperature, others stay below
    1.
    """
    if body.get("tool_choice") == "required":
        del body["tool_choice"]
        please = {"role": "user", "content": "Please select a tool to handle the current issue."}
        body["messages"] = [*body["messages"], please]
    if says("moonshot", model, "supports_reasoning"):
        body.pop("temperature", None)
        body["messages"] = _with_thoughts(body["messages"], {"assistant"}, calling=True)
    elif "temperature" in body:
        body["temperature"] = min(body["temperature"], 1)


def for_mistral(body: dict[str, Any], _model: str) -> None:
    """Another word for the seed and for a demanded tool call; nothing that a model only thought may come back to it."""
    if "seed" in body:
        body["random_seed"] = body.pop("seed")
    if body.get("tool_choice") == "required":
        body["tool_choice"] = "any"
    if "tools" in body:
        body["tools"] = _without(body["tools"], **{"$id": None, "$schema": None})
    without_thoughts(body, _model)


def without_thoughts(body: dict[str, Any], _model: str) -> None:
    """Nothing that a model only thought comes back to it."""
    body["messages"] = [
        {name: value for name, value in message.items() if name != "reasoning_content"} for message in body["messages"]
    ]


def for_xai(body: dict[str, Any], _model: str) -> None:
    """Tools without `strict`."""
    if "tools" in body:
        body["tools"] = _without(body["tools"], strict=None)


def read_xai(reply: Reply) -> Reply:
    """The tokens of thoughts count as completion tokens, which xAI reports apart."""
    usage = reply.get("usage")
    details = cast("dict[str, Any]", usage).get("completion_tokens_details") if isinstance(usage, dict) else None
    if not isinstance(details, dict):
        return reply
    bill = cast("dict[str, Any]", usage)
    thought = cast("dict[str, Any]", details).get("reasoning_tokens")
    counts = [bill.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")]
    if all(isinstance(count, int) for count in (thought, *counts)):
        prompt, completion, total = cast("list[int]", counts)
        if total == prompt + completion + cast("int", thought):
            bill["completion_tokens"] = total - prompt
    return reply


def for_openrouter(body: dict[str, Any], _model: str) -> None:
    """The bill is asked for; the highest effort has another name."""
    body["usage"] = {"include": True}
    if body.get("reasoning_effort") == "max":
        body["reasoning_effort"] = "xhigh"


def _with_thoughts(
    messages: Iterable[dict[str, Any]], roles: set[str], *, calling: bool = False
) -> list[dict[str, Any]]:
    """A blank thought where a message of these roles, or one of them that calls tools, has none."""
    return [
        {**message, "reasoning_content": " "}
        if message["role"] in roles
        and not message.get("reasoning_content")
        and (message.get("tool_calls") or not calling)
        else message
        for message in messages
    ]


def _without(value: Any, **unwanted: object) -> Any:
    """A copy of a JSON value without these keys, at any depth; one with a value of its own goes only if it has that."""
    if isinstance(value, dict):
        named = cast("dict[str, Any]", value)
        return {
            name: _without(item, **unwanted)
            for name, item in named.items()
            if name not in unwanted or (unwanted[name] is not None and item is not unwanted[name])
        }
    if isinstance(value, list):
        return [_without(item, **unwanted) for item in cast("list[Any]", value)]
    return value
