"""What the roles have in common: an agent with a typed output, asked once, with bounded retries and calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson
import pydantic_ai
from pydantic import ValidationError
from pydantic_ai import Agent, ModelRetry, StructuredDict
from pydantic_ai.exceptions import ContentFilterError, ToolRetryError, UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.usage import RunUsage, UsageLimits

from refinesynth.errors import EpisodeAbandoned
from refinesynth.jsontext import scrub
from refinesynth.roles.feedback import in_words
from refinesynth.trajectory import explain

# It would draw on the terminal at the first agent's run; only the command line prints.
pydantic_ai.BANNER_ENABLED = False

_Output = TypeVar("_Output")

_MOST_CHARACTERS = 500


class InvalidAnswer(EpisodeAbandoned):
    """A model's answer stayed invalid although it was told what is wrong; another attempt may do better."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the answer stayed invalid: {problem}")
        self.problem = problem
        """What was wrong with the last answer."""


class CallsSpent(EpisodeAbandoned):
    """The completions that the episode may ask for are used up."""


@dataclass
class Calls:
    """How many completions have been asked for, and how many may be; shared by the roles of one episode."""

    most: int | None = None
    """None sets no bound."""
    usage: RunUsage = field(default_factory=RunUsage)

    @property
    def spent(self) -> bool:
        """Whether no further completion may be asked for."""
        return self.most is not None and self.usage.requests >= self.most


def structured(
    *, schema: dict[str, Any], name: str, instructions: str, answers: int, check: Callable[[object], object]
) -> Agent[object, dict[str, Any]]:
    """An agent that answers with an object of `schema`, in whichever way its model does structured output.

    What `check` refuses with a `ValidationError` or `ValueError` goes back to the model in words, `answers` times at most.
    """
    agent = Agent(
        output_type=StructuredDict(schema, name=name), instructions=instructions, retries={"output": answers}, name=name
    )

    @agent.output_validator
    def _checked(answer: dict[str, Any]) -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        try:
            orjson.dumps(answer)  # what cannot be written could not be kept: too deep, an integer beyond 64 bits
            check(answer)
        except ValidationError as error:
            raise ModelRetry(explain(error)) from error
        except (ValueError, TypeError, RecursionError) as error:
            raise ModelRetry(str(error)) from error
        return answer

    return agent


async def ask(
    agent: Agent[object, _Output], request: str, *, model: Model, calls: Calls, history: Sequence[ModelMessage] = ()
) -> _Output:
    """One answer of `agent` to `request`.

    Raises:
        InvalidAnswer: Every answer was invalid; the message says what was wrong with the last.
        CallsSpent: Another completion would be one too many.
        EpisodeAbandoned: The model refuses to answer this, or cannot.
        RunStopped: The model cannot be used at all.
    """
    try:
        result = await agent.run(
            request,
            model=model,
            message_history=list(history),
            usage=calls.usage,
            usage_limits=UsageLimits(request_limit=calls.most),
        )
    except UsageLimitExceeded:
        raise CallsSpent(f"the {calls.most} completions that an episode may ask for are used up") from None
    except ContentFilterError as error:
        raise EpisodeAbandoned(f"{model.model_name} refused to answer: {_shortened(error)}") from error
    except UnexpectedModelBehavior as error:
        raise InvalidAnswer(_shortened(error.__cause__ or error)) from error
    return result.output


def _shortened(error: BaseException) -> str:
    problem = in_words(error.tool_retry.content) if isinstance(error, ToolRetryError) else str(error)
    text = scrub(" ".join(problem.split()))
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
