"""Per-episode view of the models: session id, seeds, costs, completion cache and deadline.

A digest, equal in every process, identifies a request. A context variable holds the current request of a task, because
pydantic-ai's `Model.request` has no parameter for it.
"""

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol

import anyio
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from refinesynth.backends.backend import Role
from refinesynth.chat.react import with_former_instructions
from refinesynth.client import token_usage
from refinesynth.client.budget.tracker import BudgetTracker, EpisodeTracker, UsageCounter
from refinesynth.client.completion_parsing import ReadCompletion
from refinesynth.client.token_usage import usage_of
from refinesynth.errors import NoTools
from refinesynth.journal.journal_values import DIGEST_SIZE, ESTIMATED, PaidCompletion, model_of
from refinesynth.outcome import Cost

SESSION_HEADER = "x-session-id"
"""Header by which a router sends an episode to the server that caches its prefix."""


class CompletionCache(Protocol):
    """Paid completions of one episode, of this process and earlier ones."""

    @property
    def had_finished(self) -> bool:
        """True if the episode had finished in an earlier process and is made again from its paid completions."""
        ...

    def recall(self, role: str, step: int, digest: bytes) -> PaidCompletion | None:
        """Return the earlier answer to this request."""
        ...

    async def keep(self, *paid: PaidCompletion) -> None:
        """Commit completions in one transaction."""
        ...


@dataclass(eq=False)
class Session:
    """State of one episode that its models use.

    Seeds depend only on the session's seed, the role and the number of its requests: an episode sends the same seeds
    whatever else runs.
    """

    id: str = ""
    """Episode id; empty for requests of no episode."""
    seed: int = 0
    index: int = 0
    """Position of the persona; requests with a smaller index go first."""
    memory: CompletionCache | None = None
    """Cache of paid completions; None for no cache."""
    tracker: BudgetTracker | EpisodeTracker = field(default_factory=BudgetTracker)
    bounded: frozenset[Role] = frozenset()
    """Roles whose completions get the default bound of `default_limits.bound_of`."""
    _spent: UsageCounter = field(default_factory=UsageCounter)
    attempt: int = 0
    """Scripts and drafts begun so far."""
    answered_by: dict[str, str] = field(default_factory=dict[str, str])
    """Role to the names of the models that answered it, in order, such as a model and its fallback."""
    salvaged: Counter[str] = field(default_factory=Counter[str])
    """Number of repairs that made an answer usable, by kind."""
    _requests: Counter[str] = field(default_factory=Counter[str])
    _steps: Counter[str] = field(default_factory=Counter[str])

    def model(self, role: Role, model: Model) -> "SessionModel":
        return SessionModel(model, session=self, role=role)

    def next_seed(self, role: Role) -> int:
        """Return the seed of the role's next request, from 0 to 2**31 - 1."""
        text = f"{self.seed}/{role}/{self._requests[role]}"
        self._requests[role] += 1
        return int.from_bytes(blake2b(text.encode(), digest_size=4).digest()) >> 1

    def take_back_seed(self, role: Role) -> None:
        """Free the seed of the role's last request for the next one."""
        self._requests[role] -= 1

    @property
    def spent(self) -> Cost:
        """Cost of all completions, discarded ones included."""
        return self._spent.spent()

    def step(self, role: str) -> int:
        """Return the number of the role's completions, recalled ones included."""
        return self._steps[role]

    def enter(self, role: str, usage: RequestUsage, cost_usd: float | None) -> None:
        self._steps[role] += 1
        self._spent.enter(usage, cost_usd)

    def credit(self, role: str, model: str) -> None:
        earlier_models = self.answered_by.get(role)
        if earlier_models is None:
            self.answered_by[role] = model
        elif model not in earlier_models.split(", "):
            self.answered_by[role] = f"{earlier_models}, {model}"


class SessionModel(WrapperModel):
    """Model that adds session and seed to each request, and counts it."""

    def __init__(self, wrapped: Model, *, session: Session, role: Role) -> None:
        super().__init__(wrapped)
        self.session = session
        self.role = role

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Return one completion of the wrapped model, which recalls paid completions from the session's memory."""
        settings = ModelSettings(**(model_settings or {}))
        settings["seed"] = self.session.next_seed(self.role)
        settings["extra_headers"] = {**settings.get("extra_headers", {}), SESSION_HEADER: self.session.id}
        digest = digest_of(messages, model_request_parameters)
        steps_before = self.session.step(self.role)
        with charged_to(RequestContext(self.session, self.role.value, digest)):
            try:
                response = await self.wrapped.request(messages, settings, model_request_parameters)
            except NoTools:
                # The request without tools gets the same seed as with a server known to lack tools from the start.
                self.session.take_back_seed(self.role)
                raise
        if self.session.step(self.role) == steps_before:
            # Only a `BackendModel` counts its completions itself.
            cost = None if response.usage.cost is None else float(response.usage.cost)
            self.session.enter(self.role, response.usage, cost)
        return response


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One request of one role of one episode; all its completions count, discarded ones included."""

    session: Session = field(default_factory=Session)
    role: str = ""
    digest: bytes = b""
    """Digest of the request by `digest_of`."""

    def recall(self) -> PaidCompletion | None:
        """Return and count the next completion of this request from the cache; None if the cache has none."""
        session, role = self.session, self.role
        if session.memory is None:
            return None
        paid = session.memory.recall(role, session.step(role), self.digest)
        if paid is not None:
            session.enter(role, usage_of(paid), paid.cost_usd)
            session.credit(role, model_of(paid.model))
        return paid

    async def keep(self, completion: ReadCompletion, cost_usd: float | None, *, model: str) -> None:
        """Count and commit a completion; a cancellation of the caller does not interrupt the commit."""
        session, role, usage = self.session, self.role, completion.usage
        step = session.step(role)
        session.enter(role, usage, cost_usd)
        session.credit(role, model)
        if session.memory is None:
            return
        paid = PaidCompletion(
            episode=session.id,
            index=session.index,
            attempt=session.attempt,
            role=role,
            step=step,
            digest=self.digest,
            model=f"{model}{ESTIMATED}" if token_usage.ESTIMATED in usage.details else model,
            answer=completion.to_json(),
            cost_usd=cost_usd,
            input_tokens=usage.input_tokens,
            cached_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
        )
        with anyio.CancelScope(shield=True):
            await session.memory.keep(paid)


_current: ContextVar[RequestContext] = ContextVar("account", default=RequestContext())  # noqa: B039 - frozen


def current_request() -> RequestContext:
    """Return the context of this task's current request."""
    return _current.get()


@contextmanager
def charged_to(context: RequestContext) -> Generator[None]:
    """Charge the requests of this task to `context` while the context lasts."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


def digest_of(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> bytes:
    """Return a digest of the messages' texts and the name of the output.

    The digest excludes seed, model, server, schemas and sampling, which a run's configuration holds, and ids and
    thoughts, which a provider generates. Reworded instructions count in their first wording.
    """
    # Lengths keep ("a", "bc") apart from ("ab", "c").
    joined = "".join([f"{len(text)}:{text}" for text in _texts(messages, parameters)])
    return blake2b(joined.encode("utf-8", "surrogatepass"), digest_size=DIGEST_SIZE).digest()


def _texts(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> Iterator[str]:
    if parameters.output_object is not None:
        yield f"output {parameters.output_object.name}"
    for tool in parameters.output_tools:
        yield f"output {tool.name}"
    if parameters.instruction_parts is not None:
        for part in parameters.instruction_parts:
            yield _instructions(part.content)
    for message in messages:
        if isinstance(message, ModelRequest):
            yield from _request_texts(message, with_instructions=parameters.instruction_parts is None)
            continue
        yield "response"
        for part in message.parts:
            if isinstance(part, TextPart):
                yield part.content
            elif isinstance(part, ToolCallPart):
                yield part.tool_name
                yield part.args_as_json_str()


_instructions = lru_cache(maxsize=16)(with_former_instructions)
"""First wording of instructions; cached, because all requests of a role repeat them."""


def _request_texts(message: ModelRequest, *, with_instructions: bool) -> Iterator[str]:
    yield f"request {with_former_instructions(message.instructions or '') if with_instructions else ''}"
    for part in message.parts:
        yield part.part_kind
        if isinstance(part, SystemPromptPart):
            yield with_former_instructions(part.content)
        elif isinstance(part, UserPromptPart):
            yield with_former_instructions(part.content) if isinstance(part.content, str) else repr(part.content)
        elif isinstance(part, ToolReturnPart):
            yield part.model_response_str()
        elif isinstance(part, RetryFeedbackPart):
            yield part.model_response()
