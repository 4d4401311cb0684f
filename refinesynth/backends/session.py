"""One episode's view of its models: the same session id on every request, seeds of its own, and a ledger."""

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from refinesynth.backends.metering import metered_by
from refinesynth.backends.role import Role
from refinesynth.trajectory import Usage

SESSION_HEADER = "x-session-id"
"""Header by which a router in front of several servers keeps an episode where its prefix is cached."""


@dataclass(frozen=True)
class Spent:
    """What was used and paid."""

    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    """US dollars; None as soon as the price of one completion is unknown."""

    def __add__(self, other: "Spent") -> "Spent":
        known = self.cost_usd is not None and other.cost_usd is not None
        return Spent(
            usage=self.usage + other.usage,
            cost_usd=(self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
        )


@dataclass
class Ledger:
    """Every completion of an episode, thrown-away answers included, per role."""

    by_role: dict[Role, Spent] = field(default_factory=dict[Role, Spent])

    @property
    def usage(self) -> Usage:
        """Of all roles together."""
        return self._total.usage

    @property
    def cost_usd(self) -> float | None:
        """US dollars for all roles together; None where the price of one completion is unknown."""
        return self._total.cost_usd

    def enter(self, role: Role, usage: RequestUsage, cost_usd: float | None) -> None:
        """Add one completion."""
        one = Usage(
            requests=1,
            input_tokens=usage.input_tokens,
            cached_tokens=usage.cache_read_tokens,
            output_tokens=usage.output_tokens,
        )
        self.by_role[role] = self.by_role.get(role, Spent()) + Spent(usage=one, cost_usd=cost_usd)

    @property
    def _total(self) -> Spent:
        return sum((self.by_role[role] for role in Role if role in self.by_role), Spent())


@dataclass
class Session:
    """One episode, as its models see it.

    Seeds follow from the session's seed, the role and how many requests that role has made, so the same episode sends
    the same seeds whatever else runs at the time.
    """

    id: str
    seed: int
    ledger: Ledger = field(default_factory=Ledger)
    _requests: Counter[Role] = field(default_factory=Counter[Role])

    def model(self, role: Role, model: Model) -> "SessionModel":
        """`model` as this episode's `role`."""
        return SessionModel(model, session=self, role=role)

    def next_seed(self, role: Role) -> int:
        """The seed of the role's next request, from 0 to 2**31 - 1."""
        text = f"{self.seed}/{role}/{self._requests[role]}"
        self._requests[role] += 1
        return int.from_bytes(blake2b(text.encode(), digest_size=4).digest()) >> 1


class SessionModel(WrapperModel):
    """A model that marks each request with its session, gives it a seed, and enters it in the session's ledger."""

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
        """One answer, as the wrapped model gives it."""
        settings = ModelSettings(**(model_settings or {}))
        settings["seed"] = self.session.next_seed(self.role)
        settings["extra_headers"] = {**settings.get("extra_headers", {}), SESSION_HEADER: self.session.id}
        entered = 0

        def enter(usage: RequestUsage, cost_usd: float | None) -> None:
            nonlocal entered
            entered += 1
            self.session.ledger.enter(self.role, usage, cost_usd)

        with metered_by(enter):
            response = await self.wrapped.request(messages, settings, model_request_parameters)
        if not entered:
            # Not a model of ours: what it says of itself is all there is.
            enter(response.usage, None if response.usage.cost is None else float(response.usage.cost))
        return response
