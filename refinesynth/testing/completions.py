"""A scripted completion function, for tests of backends, roles and runs without a model."""

from collections.abc import Mapping
from typing import Any

from refinesynth.errors import RefinesynthError
from refinesynth.rehearsal.openai_wire import envelope

Answer = str | Mapping[str, Any] | Exception
"""Text of an assistant message, its fields (`content`, `tool_calls`), a response with `choices`, or an error to raise."""


class ScriptedCompletion:
    r"""Completion function that returns the given answers in order and records the requests.

    It takes the keyword arguments of `litellm.acompletion` and returns an OpenAI chat completion as a dict, with a quarter
    of the characters as token counts. After the last answer it raises `RefinesynthError`.

        call = ScriptedCompletion("Thought: ...\nAction: look", TimeoutError())
        await call(model="any", messages=[...])
        assert call.requests[0]["model"] == "any"
    """

    def __init__(self, *answers: Answer) -> None:
        self._answers = answers
        self.requests: list[dict[str, Any]] = []
        """Keyword arguments of every call."""

    @property
    def left(self) -> int:
        """Number of remaining answers."""
        return max(len(self._answers) - len(self.requests), 0)

    async def __call__(self, **request: Any) -> dict[str, Any]:
        number = len(self.requests)
        self.requests.append(request)
        if number >= len(self._answers):
            raise RefinesynthError(f"asked for answer {number + 1}, but only {len(self._answers)} were scripted")
        answer = self._answers[number]
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(answer, str) and "choices" in answer:
            return dict(answer)
        content = {"content": answer} if isinstance(answer, str) else dict(answer)
        reason = "tool_calls" if content.get("tool_calls") else "stop"
        message = {"role": "assistant", "content": None, **content}
        prompt_tokens, completion_tokens = len(str(request.get("messages", ""))) // 4, len(str(content)) // 4
        return envelope(
            f"scripted-{number}", request.get("model", "scripted"), message, reason, (prompt_tokens, completion_tokens)
        )
