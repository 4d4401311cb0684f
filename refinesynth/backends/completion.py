"""The shape of what completes a chat."""

from typing import Protocol


class Completion(Protocol):
    """A function that completes a chat: `litellm.acompletion`, the rehearsal, or another of that shape.

    It takes litellm's keyword arguments and returns an OpenAI chat completion, as a dict or as an object with these
    attributes. What it raises is sorted by `refinesynth.client.classify_error`.
    """

    async def __call__(self, **request: object) -> object: ...
