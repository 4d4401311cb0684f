"""A backend that says next to nothing, for what is put behind our server."""

import json
from collections.abc import Mapping
from typing import Any

URL = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}
STRUCTURE = {"goal": "Take the pot.", "turns": [{"thought": "Hm.", "parameter_error": False}], "count": 3}


async def tiny(**request: Any) -> dict[str, Any]:
    """JSON when asked for JSON, else text."""
    content = json.dumps(STRUCTURE) if request.get("response_format") else "Thought: so\nAction: look"
    return completion_of(request, {"role": "assistant", "content": content})


def completion_of(request: Mapping[str, Any], message: Mapping[str, Any], finish: str = "stop") -> dict[str, Any]:
    return {
        "id": "chatcmpl-tiny",
        "object": "chat.completion",
        "created": 0,
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12},
    }
