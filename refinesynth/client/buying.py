"""How a completion is bought: in its turn, within the budget, and kept before anyone uses it."""

import logging
from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
from pydantic_ai.usage import RequestUsage

from refinesynth.backends.backend import Backend
from refinesynth.backends.completion import Completion
from refinesynth.backends.providers import key_of, server_of
from refinesynth.client.account import Account, Price, Unused
from refinesynth.client.affinity import CacheWatch, with_affinity
from refinesynth.client.answers import Answer, read_answer
from refinesynth.client.bills import ESTIMATED, completed
from refinesynth.client.budget.estimates import UNBOUNDED_ANSWER
from refinesynth.client.classify_error import classify_error
from refinesynth.client.hedging import Hedging, Sending
from refinesynth.client.limiter.permit import Permit
from refinesynth.client.limiter.rate_headers import headers_of
from refinesynth.client.limiter.rate_limiter import RateLimiter
from refinesynth.client.limiter.token_buckets import TokenBuckets
from refinesynth.client.watch import Call, CallStage
from refinesynth.errors import RefinesynthError
from refinesynth.journal.values import FIRST_UNUSED, SECOND_UNUSED

_LOG = logging.getLogger("refinesynth.backends")


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
        self._estimates = False
        """True if an answer came without its usage."""
        self._hedging = Hedging() if backend.hedge else None

    async def buy(self, request: dict[str, Any], account: Account, call: Call) -> tuple[Answer, float | None]:
        """The completion and its price in US dollars, None where that is unknown.

        Raises:
            RunStopped: The budget does not pay for it.
            StorageError: It could not be kept.
            Exception: What the completion function raises.
        """
        kind = (self._backend.model, account.role)
        send = partial(self._send, request, account, kind)
        call.enter(CallStage.TURN)
        with Sending(call) as first, Sending() as second:
            cancelled: BaseException | None = None
            try:
                if self._hedging is None:
                    await send(first)
                else:
                    await self._hedging.race(send, first, second, kind=kind)
            except anyio.get_cancelled_exc_class() as error:
                if first.answer is None and second.answer is None:
                    raise
                # While the other one was broken off: what was answered is paid for, and kept.
                cancelled = error
            used, other = (second, first) if first.answer is None else (first, second)
            if (answer := used.answer) is None:
                raise first.error or RuntimeError("a request ended with neither answer nor error")
            cost = self._price(answer.usage)
            used.settle(answer.usage, cost)
            name = FIRST_UNUSED if used is second else SECOND_UNUSED
            unused = self._unused(other, name, answer.usage, request.get("max_tokens"))
        self._cache.note(account.role, answer.usage)
        await account.keep(answer, cost, model=self._backend.model, unused=unused)
        if cancelled is not None:
            raise cancelled
        return answer, cost

    async def _send(self, request: dict[str, Any], account: Account, kind: Hashable, sending: Sending) -> None:
        """Send it in its turn, once there is money for it."""
        prompt_tokens, max_tokens = _rough_tokens(request), request.get("max_tokens")
        async with self._limiter.permit(
            priority=account.priority, buckets=self._buckets, tokens=prompt_tokens, kind=kind
        ) as permit:
            # The turn may have come from the other of two requests, which was answered.
            await anyio.lowlevel.checkpoint_if_cancelled()
            with anyio.fail_after(sending.patience):
                reservation = await account.reserve(
                    prompt_tokens=prompt_tokens, max_tokens=max_tokens, price=self._price
                )
            sending.goes_out(reservation)
            sending.answer = await self._complete(with_affinity(request, self._backend, account), permit)

    def _unused(self, sending: Sending, name: str, used: RequestUsage, max_tokens: int | None) -> Unused | None:
        """What the other of two requests has cost, at worst if it was cancelled; None if it was not sent, or failed."""
        if sending.answer is not None:
            usage = sending.answer.usage
        elif sending.under_way:
            worst = max_tokens or max(UNBOUNDED_ANSWER, used.output_tokens)
            usage = RequestUsage(input_tokens=used.input_tokens, output_tokens=worst)
        else:
            return None
        cost = self._price(usage)
        sending.settle(usage, cost, assumed=sending.answer is None)
        return Unused(usage, cost, name)

    async def _complete(self, request: dict[str, Any], permit: Permit) -> Answer:
        """One completion; its outcome is reported to the limiter."""
        began = anyio.current_time()
        try:
            with anyio.fail_after(request["timeout"]):
                raw = await self._call(**request, **self._key())
            answer = self._counted(read_answer(raw), request)
        except RefinesynthError:
            raise
        except Exception as error:
            permit.failed(classify_error(error, self._backend), headers=headers_of(error))
            raise
        seconds = anyio.current_time() - began
        if self._hedging is not None:
            self._hedging.note(permit.kind, seconds)
        permit.answered(
            seconds=seconds,
            output_tokens=answer.usage.output_tokens,
            billed=answer.usage.total_tokens,
            headers=headers_of(raw),
        )
        return answer

    def _counted(self, answer: Answer, request: dict[str, Any]) -> Answer:
        """The answer with a usage by which a budget holds; that it was not reported is said once."""
        called = [text for name, arguments, _ in answer.calls for text in (name, arguments)]
        usage = completed(answer.usage, request, [answer.text, answer.thinking, *called])
        if ESTIMATED in usage.details and not self._estimates:
            self._estimates = True
            text = (
                f"{self._backend.label} reports no usage with its answers, or none that can be right; tokens are estimated "
                f"from the text, and costs and budget follow the estimate"
            )
            facts = {"event": "usage_estimated", "backend": self._backend.label, "text": text}
            _LOG.warning("%s", text, extra={"facts": facts})
        return replace(answer, usage=usage)

    def _key(self) -> dict[str, str]:
        """The key as an argument, made for each call: no frame of a traceback holds it then."""
        if (key := key_of(self._backend)) is not None:
            return {"api_key": key}
        # The OpenAI client insists on a key, even for servers that look at none.
        return {} if server_of(self._backend) is None else {"api_key": "none"}


def _rough_tokens(request: dict[str, Any]) -> float:
    """Tokens of a prompt, at four characters each: enough for a rate limit."""
    return sum(len(message["content"] or "") for message in request["messages"]) / 4
