"""The shape of what completes a chat."""

from typing import Protocol

NO_REASON = "null"
"""The finish reason of an answer whose server gives none, which counts as broken off."""


class Completion(Protocol):
    """A function that completes a chat: `litellm.acompletion`, the rehearsal, or another of that shape.

    It takes litellm's keyword arguments and returns an OpenAI chat completion, as a dict or as an object with these
    attributes. It need give no `finish_reason`: an answer without one is whole. What it raises is sorted by `refinesynth.client.classify_error`.
    """

    async def __call__(self, **request: object) -> object: ...
