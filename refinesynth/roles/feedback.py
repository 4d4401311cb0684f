"""What a model is told about an answer that cannot be used: one plain sentence.

pydantic-ai would wrap it in a frame, explain the frame in a system message, and send the whole invalid answer back with it.
"""

from collections.abc import Sequence

from pydantic import ValidationError
from pydantic_ai.messages import ModelRequestPart, ModelResponse, ToolReturnPart, UserPromptPart

from refinesynth.jsontext import scrub
from refinesynth.roles.forms import called
from refinesynth.trajectory import explain

_MOST_CHARACTERS = 500


def in_words(problem: Exception) -> str:
    """What is wrong with an answer, fit to be sent back to the model that gave it."""
    return explain(problem) if isinstance(problem, ValidationError) else str(problem)


def shortened(problem: str) -> str:
    """The same as one line of a message, fit for any file."""
    text = scrub(" ".join(problem.split()))
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


def feedback(response: ModelResponse, problem: str) -> Sequence[ModelRequestPart]:
    """What goes back: the result of each tool call there is, else a user's message."""
    told = f"This answer cannot be used: {problem}"
    calls = called(response)
    if not calls:
        return [UserPromptPart(told)]
    return [ToolReturnPart(call.tool_name, told, tool_call_id=call.tool_call_id, outcome="retried") for call in calls]
