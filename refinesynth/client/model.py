"""The port to LLMs: a pydantic-ai model over one completion function, `litellm.acompletion` unless another is given."""

from decimal import Decimal
from typing import Any, cast

import anyio
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings

from refinesynth.backends.backend import Backend
from refinesynth.backends.completion import Completion
from refinesynth.backends.providers import key_of, server_of, split
from refinesynth.client import wire
from refinesynth.client.account import Account, Price, current_account
from refinesynth.client.answers import Answer, read_answer
from refinesynth.client.budget.price_table import unknown
from refinesynth.client.classify_error import Fault, FaultKind, FaultStep, classify_error
from refinesynth.client.limiter.endpoints import limiter_of
from refinesynth.client.limiter.permit import Permit
from refinesynth.client.limiter.rate_headers import headers_of
from refinesynth.client.limiter.rate_limiter import RateLimiter
from refinesynth.client.limiter.token_buckets import TokenBuckets
from refinesynth.client.retry import GaveUp, Sleep, retry
from refinesynth.client.watch import Call, Calls, CallStage
from refinesynth.client.wire import forces_tools, is_open, mode_for_open_schema, profile_of
from refinesynth.errors import (
    BackendError,
    EpisodeAbandoned,
    EpisodeDoubtful,
    EpisodeLost,
    RefinesynthError,
    RunStopped,
)

_STRICT = frozenset({"openai", "azure"})
"""Providers that know the `strict` flag of a schema; others may refuse it."""
_FRUITLESS = 5
"""Requests that gave nothing, before any that gave an answer to use, after which the settings are at fault and not the
prompts."""
_TO_LOOK_AT = {FaultKind.REJECTED: "output_mode and extra", FaultKind.CONTENT: "max_tokens, output_mode and extra"}
"""Kinds of fault that settings can bring about at every request, with the settings."""
_DOUBTFUL = 5
"""Requests in a row, without an answer to any, that must seem to say that no episode can go on, where none says it for
sure."""
_SEED_STEP = 0x9E3779B1
"""Added to the seed when an answer is asked for again, lest the same empty answer come back."""
_SEEDS = 2**31
_FORMLESS = frozenset({"temperature", "top_p", "max_tokens", "seed", "extra_headers"})
"""Settings that leave the form of a request alone."""
_FORMS = 64
"""Most forms that are kept: roles have few, others may make one for each request."""


class LiteLLMModel(Model):
    """One backend, asked for text or structured output, with its retries and rate limits inside.

    Guarantees: what comes back is neither cut off nor empty; its text holds no lone surrogates; JSON that was asked for
    is strict where it could be repaired; every completion that was paid for is kept in the request's account, also
    those that were then thrown away, and one that was paid for before is not asked for again. Errors are sorted by
    `sorting` into `EpisodeAbandoned` and `RunStopped`, without keys.

    Not promised: streaming, and parts other than text, tool calls and thinking, which raise `UserError`.
    """

    unsupported_settings = frozenset({"top_k"})

    def __init__(
        self,
        backend: Backend,
        *,
        call: Completion,
        price: Price = unknown,
        accepts_seed: bool = True,
        limiter: RateLimiter | None = None,
        calls: Calls | None = None,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        """Nothing is sent yet.

        Args:
            backend: What to ask, and how.
            call: The completion function.
            price: What a completion costs.
            accepts_seed: Whether requests may carry a seed; litellm refuses it for providers that have none.
            limiter: Says when a request may go; shared by all models on one server and key. One of its own if None.
            calls: Where the requests in flight are listed.
            sleep: Waits between attempts.
        """
        self.backend = backend
        self._call = call
        self._price = price
        self._accepts_seed = accepts_seed
        self._sleep = sleep
        self.limiter = limiter or limiter_of(backend)
        self.calls = Calls() if calls is None else calls
        self._buckets = TokenBuckets(
            requests_per_minute=backend.requests_per_minute,
            tokens_per_minute=backend.tokens_per_minute,
            longest_wait=backend.longest_wait,
        )
        self._prepared: dict[int, tuple[ModelRequestParameters, ModelRequestParameters]] = {}
        """What requests ask for, and what became of it here: the roles have one object each for all their requests."""
        self._answered = 0
        self._fruitless = 0
        self._usable = False
        """Whether any answer could be used so far."""
        self._doubtful = 0
        own: dict[str, Any] = {
            "temperature": backend.temperature,
            "top_p": backend.top_p,
            "max_tokens": backend.max_tokens,
        }
        settings = {name: value for name, value in own.items() if value is not None}
        super().__init__(settings=cast("ModelSettings", settings) or None, profile=profile_of(backend))

    @property
    def model_name(self) -> str:
        """The litellm model string."""
        return self.backend.model

    @property
    def system(self) -> str:
        """The provider, as litellm calls it, `litellm` where only litellm knows it."""
        return split(self.backend.model)[0] or "litellm"

    @property
    def base_url(self) -> str | None:
        """The server asked, None if litellm chooses it."""
        return server_of(self.backend)

    def prepare_request(
        self, model_settings: ModelSettings | None, model_request_parameters: ModelRequestParameters
    ) -> tuple[ModelSettings | None, ModelRequestParameters]:
        """As every model does, after choosing another output mode for schemas that the usual one cannot express."""
        settings = {**(self.settings or {}), **(model_settings or {})}
        lasting = _FORMLESS.issuperset(settings)
        known = self._prepared.get(id(model_request_parameters)) if lasting else None
        if known is not None:
            return cast("ModelSettings", settings) or None, known[1]
        parameters = model_request_parameters
        mode = mode_for_open_schema(self.backend)
        if mode is not None and parameters.output_mode == "auto" and _asks_for_free_keys(parameters):
            parameters = parameters.with_default_output_mode(cast("Any", mode.value))
        prepared = super().prepare_request(model_settings, parameters)
        if lasting and len(self._prepared) < _FORMS:
            # The key's object is kept too: another one of that id cannot come about.
            self._prepared[id(model_request_parameters)] = (model_request_parameters, prepared[1])
        return prepared

    async def aclose(self) -> None:
        """Close the connections; they open again when they are needed."""
        if (close := getattr(self._call, "aclose", None)) is not None:
            await close()

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """One answer.

        Raises:
            EpisodeAbandoned: This request cannot be answered; others can.
            RunStopped: Nothing can be asked of this backend.
            UserError: A message or setting that cannot be sent.
        """
        settings, parameters = self.prepare_request(model_settings, model_request_parameters)
        request = self._request(messages, settings or {}, parameters)
        account = current_account()
        answered_before = self._answered
        with self.calls.begun(
            model=self.backend.label,
            role=account.role,
            episode=account.episode,
            index=account.priority,
            timeout=request["timeout"],
        ) as call:

            async def attempt(content_faults: int) -> ModelResponse:
                return await self._ask(_reseeded(request, content_faults), parameters, account, call)

            async def back_off(seconds: float) -> None:
                call.enter(CallStage.BACKOFF)
                await self._sleep(seconds)

            try:
                return await retry(
                    attempt, self.backend, met=lambda: self.limiter.met, excuses=self.limiter.excuses, sleep=back_off
                )
            except GaveUp as gave_up:
                final = self._verdict(gave_up, others_answered=self._answered > answered_before)
        # Outside of the handler: an exception that hangs on this one would carry the server's own words.
        raise final

    async def _ask(
        self, request: dict[str, Any], parameters: ModelRequestParameters, account: Account, call: Call
    ) -> ModelResponse:
        paid = account.recall()
        if paid is not None:
            answer, cost = Answer.from_paid(paid), paid.cost_usd
        else:
            answer, cost = await self._buy(request, account, call)
        answer.check(max_tokens=request.get("max_tokens"))
        self._usable = True
        usage = answer.usage
        if cost is not None:
            usage.cost = Decimal(str(cost))
        return ModelResponse(
            parts=answer.parts(parameters),
            usage=usage,
            model_name=answer.model or self.model_name,
            provider_name=self.system,
            provider_response_id=answer.id,
            finish_reason="tool_call" if answer.calls else "stop",
        )

    async def _buy(self, request: dict[str, Any], account: Account, call: Call) -> tuple[Answer, float | None]:
        """A completion that was not paid for before, and its price; it is kept before anyone uses it."""
        prompt_tokens, max_tokens = _rough_tokens(request), request.get("max_tokens")
        kind = (self.model_name, account.role)
        call.enter(CallStage.TURN)
        async with self.limiter.permit(
            priority=account.priority, buckets=self._buckets, tokens=prompt_tokens, kind=kind
        ) as permit:
            reservation = await account.reserve(prompt_tokens=prompt_tokens, max_tokens=max_tokens, price=self._price)
            call.attempt += 1
            call.enter(CallStage.ANSWER)
            try:
                answer = await self._complete(request, permit)
            except BaseException:
                reservation.release()
                raise
        cost = self._price(answer.usage)
        reservation.settle(answer.usage, cost)
        self._answered += 1
        self._doubtful = 0
        await account.keep(answer, cost, model=self.model_name)
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
            permit.failed(classify_error(error, self.backend), headers=headers_of(error))
            raise
        permit.answered(
            seconds=anyio.current_time() - began,
            output_tokens=answer.usage.output_tokens,
            billed=answer.usage.total_tokens,
            headers=headers_of(raw),
        )
        return answer

    def _request(
        self, messages: list[ModelMessage], settings: ModelSettings, parameters: ModelRequestParameters
    ) -> dict[str, Any]:
        profile: ModelProfile = self.profile
        strict = split(self.backend.model)[0] in _STRICT and self.backend.base_url is None
        thinking_back = profile.get("openai_chat_send_back_thinking_parts") == "field"
        request: dict[str, Any] = {
            **self.backend.extra,
            **wire.passed_on(settings),
            "model": self.backend.model,
            "messages": wire.chat_messages(
                messages, parameters, thinking_field="reasoning_content" if thinking_back else None
            ),
            "timeout": self._timeout(settings),
        }
        if not self._accepts_seed:
            request.pop("seed", None)
        if tools := wire.tools(parameters, strict=strict):
            request["tools"] = tools
            request["tool_choice"] = wire.tool_choice(parameters, settings, forced=forces_tools(self.backend, profile))
            if (parallel := settings.get("parallel_tool_calls")) is not None:
                request["parallel_tool_calls"] = parallel
        json_mode = profile.get("supports_json_object_output", False)
        if form := wire.response_format(parameters, strict=strict, json_mode=json_mode):
            request["response_format"] = form
        if (server := server_of(self.backend)) is not None:
            request["api_base"] = server
        return request

    def _key(self) -> dict[str, str]:
        """The key as an argument, made for each call: no frame of a traceback holds it then."""
        if (key := key_of(self.backend)) is not None:
            return {"api_key": key}
        # The OpenAI client insists on a key, even for servers that look at none.
        return {} if server_of(self.backend) is None else {"api_key": "none"}

    def _timeout(self, settings: ModelSettings) -> float:
        asked = settings.get("timeout")
        return float(asked) if isinstance(asked, int | float) else self.backend.timeout

    def _verdict(self, gave_up: GaveUp, *, others_answered: bool) -> BackendError:
        fault = gave_up.fault
        if fault.page is not None and not self.limiter.met:
            return RunStopped(_no_api(self.backend, fault.page))
        if fault.step is FaultStep.STOP:
            return self._stop_or_abandon(fault)
        if fault.step is FaultStep.RETRY:
            message = f"{fault.message} (after {gave_up.attempts} attempts)"
            if fault.kind is FaultKind.CONTENT:
                return self._abandoned_or_hopeless(message, fault)
            if others_answered:
                return EpisodeLost(message)
            return _stopped(f"{message}{self._outlook(fault)}")
        return self._abandoned_or_hopeless(fault.message, fault)

    def _abandoned_or_hopeless(self, message: str, fault: Fault) -> BackendError:
        """One episode is given up, or all are: where the first requests of a backend give nothing to use, none will."""
        if fault.kind in _TO_LOOK_AT and not self._usable:
            self._fruitless += 1
            if self._fruitless >= _FRUITLESS:
                return _stopped(
                    f"{message}; so it was with each of the first {self._fruitless} requests, so the settings must be "
                    f"wrong: look at {_TO_LOOK_AT[fault.kind]} of the backend"
                )
            if fault.kind is FaultKind.REJECTED:
                return EpisodeDoubtful(message)
        return EpisodeAbandoned(message)

    def _stop_or_abandon(self, fault: Fault) -> BackendError:
        """One answer that only seems to say that no episode can go on may echo its prompt; several in a row do not."""
        if not fault.certain and self._answered:
            self._doubtful += 1
            if self._doubtful < _DOUBTFUL:
                return EpisodeAbandoned(fault.message)
        return _stopped(fault.message)

    def _outlook(self, fault: Fault) -> str:
        if fault.kind is FaultKind.DEFECT:
            return ""
        if fault.kind is FaultKind.UNREACHED and not self.limiter.met:
            return "; check that the server is running and its address right"
        return "; it stays down, try again later"


def _no_api(backend: Backend, page: str) -> str:
    server = server_of(backend)
    where = "its address" if server is None else f"base_url ({server})"
    usually = "" if server is not None and server.rstrip("/").endswith("/v1") else ", which mostly ends in /v1"
    return (
        f"{backend.label} is asked at an address where no completion API is: a web page came back, {page!r}. Check {where}{usually}, "
        f"and whether a login or a proxy stands in between."
    )


def _stopped(message: str) -> RunStopped:
    # A sentence: where the run is kept is said after it.
    return RunStopped(message if message.endswith((".", "!", "?")) else f"{message}.")


def _asks_for_free_keys(parameters: ModelRequestParameters) -> bool:
    schemas = [tool.parameters_json_schema for tool in parameters.output_tools]
    if parameters.output_object is not None:
        schemas.append(parameters.output_object.json_schema)
    return any(is_open(schema) for schema in schemas)


def _reseeded(request: dict[str, Any], content_faults: int) -> dict[str, Any]:
    seed = request.get("seed")
    if seed is None or not content_faults:
        return request
    return {**request, "seed": (seed + content_faults * _SEED_STEP) % _SEEDS}


def _rough_tokens(request: dict[str, Any]) -> float:
    """Tokens of a prompt, at four characters each: enough for a rate limit."""
    return sum(len(message["content"] or "") for message in request["messages"]) / 4
