"""How a completion is bought: in its turn, within the budget, and kept before anyone uses it."""

from typing import Any

import anyio

from refinesynth.backends.backend import Backend
from refinesynth.backends.completion import Completion
from refinesynth.backends.providers import key_of, server_of
from refinesynth.client.account import Account, Price
from refinesynth.client.affinity import CacheWatch, with_affinity
from refinesynth.client.answers import Answer, read_answer
from refinesynth.client.classify_error import classify_error
from refinesynth.client.limiter.permit import Permit
from refinesynth.client.limiter.rate_headers import headers_of
from refinesynth.client.limiter.rate_limiter import RateLimiter
from refinesynth.client.limiter.token_buckets import TokenBuckets
from refinesynth.client.watch import Call, CallStage
from refinesynth.errors import RefinesynthError


class Buyer:
    """Buys completions of one backend, none of them paid for before."""

    def __init__(self, backend: Backend, *, call: Completion, price: Price, limiter: RateLimiter) -> None:
        """See `LiteLLMModel`."""
        self._backend = backend
        self._call = call
        self._price = price
        self._limiter = limiter
        self._buckets = TokenBuckets(
            requests_per_minute=backend.requests_per_minute,
            tokens_per_minute=backend.tokens_per_minute,
            longest_wait=backend.longest_wait,
        )
        self._cache = CacheWatch(backend)

    async def buy(self, request: dict[str, Any], account: Account, call: Call) -> tuple[Answer, float | None]:
        """The completion and its price in US dollars, None where that is unknown.

        Raises:
            RunStopped: The budget does not pay for it.
            StorageError: It could not be kept.
            Exception: What the completion function raises.
        """
        prompt_tokens, max_tokens = _rough_tokens(request), request.get("max_tokens")
        kind = (self._backend.model, account.role)
        call.enter(CallStage.TURN)
        async with self._limiter.permit(
            priority=account.priority, buckets=self._buckets, tokens=prompt_tokens, kind=kind
        ) as permit:
            reservation = await account.reserve(prompt_tokens=prompt_tokens, max_tokens=max_tokens, price=self._price)
            call.attempt += 1
            call.enter(CallStage.ANSWER)
            try:
                answer = await self._complete(with_affinity(request, self._backend, account), permit)
            except BaseException:
                reservation.release()
                raise
        cost = self._price(answer.usage)
        reservation.settle(answer.usage, cost)
        self._cache.note(account.role, answer.usage)
        await account.keep(answer, cost, model=self._backend.model)
        return answer, cost

    async def _complete(self, request: dict[str, Any], permit: Permit) -> Answer:
        """One completion; its outcome is reported to the limiter."""
        began = anyio.current_time()
        try:
            with anyio.fail_after(request["timeout"]):
                raw = await self._call(**request, **self._key())
            answer = read_answer(raw)
        except RefinesynthError:
            raise
        except Exception as error:
            permit.failed(classify_error(error, self._backend), headers=headers_of(error))
            raise
        permit.answered(
            seconds=anyio.current_time() - began,
            output_tokens=answer.usage.output_tokens,
            billed=answer.usage.total_tokens,
            headers=headers_of(raw),
        )
        return answer

    def _key(self) -> dict[str, str]:
        """The key as an argument, made for each call: no frame of a traceback holds it then."""
        if (key := key_of(self._backend)) is not None:
            return {"api_key": key}
        # The OpenAI client insists on a key, even for servers that look at none.
        return {} if server_of(self._backend) is None else {"api_key": "none"}


def _rough_tokens(request: dict[str, Any]) -> float:
    """Tokens of a prompt, at four characters each: enough for a rate limit."""
    return sum(len(message["content"] or "") for message in request["messages"]) / 4
