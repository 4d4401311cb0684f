"""Access to LLMs: a pydantic-ai model over one completion function, such as `litellm.acompletion`."""

import os
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, cast
from weakref import ref

import anyio
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings

from refinesynth.async_contexts import stopped_clock
from refinesynth.backends.backend import Backend, Completion, OutputMode, Role, report
from refinesynth.backends.providers import key_variables, server_of, split_model
from refinesynth.chat.react import STOPS
from refinesynth.client import request_arguments
from refinesynth.client.budget.price_table import unknown
from refinesynth.client.budget.tracker import Price
from refinesynth.client.classify_error import ClassifiedError, ErrorCategory, classify_error
from refinesynth.client.completion_parsing import ReadCompletion, read_completion
from refinesynth.client.default_limits import bound_of, thinks_by_name
from refinesynth.client.failure_policy import FailurePolicy, PendingRequest, RequestCounts
from refinesynth.client.limiter.rate_limiter import Permit, RateLimiter, limiter_of
from refinesynth.client.request_arguments import (
    BOUND_NAMES,
    UnsupportedFeature,
    UnsupportedFeatures,
    bound_in,
    can_force_tools,
    has_bound,
    is_open,
    output_mode,
    profile_of,
    server_name,
    with_cache_marks,
)
from refinesynth.client.session import current_request
from refinesynth.client.token_usage import ESTIMATED, message_tokens, schema_tokens, with_estimates
from refinesynth.errors import NoTools, RefinesynthError

_STRICT_PROVIDERS = frozenset({"openai", "azure"})
"""Providers that accept the `strict` flag of a schema; others may reject it."""
_SEED_STEP = 0x9E3779B1
"""Added to the seed for each retry after a content fault: the same seed may give the same unusable answer."""
_SEED_RANGE = 2**31
_NOT_OF_EPISODE = frozenset({ErrorCategory.LOADING, ErrorCategory.RATE_LIMIT})
"""Faults after which a wait does not count as time of the episode."""
_FORM_NEUTRAL = frozenset({"temperature", "top_p", "max_tokens", "seed", "stop_sequences", "extra_headers"})
"""Settings that do not change the form of a request."""


@dataclass(slots=True)
class _Forms:
    """Forms of the requests with one parameters object."""

    requested: "ref[ModelRequestParameters]"
    prepared: dict[frozenset[UnsupportedFeature], ModelRequestParameters]
    """Omitted features to the prepared parameters."""
    schema_tokens: int | None = None
    """Estimated tokens of the schemas in a request with these parameters; None until the first request."""


class BackendModel(Model):
    """One backend for text or structured output, with retries and rate limits.

    Guarantees: a completion is neither cut off nor empty; its text holds no lone surrogates; requested JSON is strict
    if it can be repaired. The request's account records every paid completion, discarded ones included, and recalls
    completions that were paid for before. `FailurePolicy` turns errors into `EpisodeAbandoned` or `RunStopped`, without
    keys.

    Not supported: streaming, and message parts such as images, which raise `UserError`.
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
        counts: RequestCounts | None = None,
        unsupported: UnsupportedFeatures | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        """Create a model from a completion function and the price of its completions; sends nothing.

        `accepts_seed` is False for providers whose seed litellm rejects. All models with one server and key share a
        `limiter`; all models may share `counts` and `unsupported`. `sleep` waits between attempts.
        """
        self.backend = backend
        self._call = call
        self._accepts_seed = accepts_seed
        self._sleep = sleep
        self.limiter = limiter or limiter_of(backend)
        self.counts = RequestCounts() if counts is None else counts
        self._price = price
        self._buckets = self.limiter.buckets_of(backend)
        self._has_estimated = False
        """True after a response with missing or impossible usage."""
        self._uses_bounds = True
        """False once a completion had thoughts, which no default bound may cut, or a request rejected with its default
        bound succeeded without the bound."""
        self._thinks = thinks_by_name(backend)
        """True if thoughts are expected: many servers look for stop sequences in thoughts as well."""
        self._features = UnsupportedFeatures() if unsupported is None else unsupported
        # Looked up once, not for every request.
        self._server_name = server_name(backend)
        self._litellm_provider = split_model(backend.model)[0]
        self._server = server_of(backend)
        self._key_variables = key_variables(backend)
        self._forms: dict[int, _Forms] = {}
        """Id of a parameters object to its forms; a role, or a player of one script, reuses one object."""
        self._policy = FailurePolicy(backend, self.limiter)
        self._default_bounds = {role: bound_of(role, backend) for role in Role}
        names = ("temperature", "top_p", "max_tokens")
        settings = {name: value for name in names if (value := getattr(backend, name)) is not None}
        super().__init__(settings=cast("ModelSettings", settings) or None, profile=profile_of(backend))

    @property
    def model_name(self) -> str:
        return self.backend.model

    @property
    def system(self) -> str:
        """Provider by its name in litellm; `litellm` if only litellm can tell."""
        return self._litellm_provider or "litellm"

    @property
    def base_url(self) -> str | None:
        """Server; None if litellm chooses it."""
        return self._server

    def prepare_request(
        self, model_settings: ModelSettings | None, model_request_parameters: ModelRequestParameters
    ) -> tuple[ModelSettings | None, ModelRequestParameters]:
        """Choose an output mode that can express the schema and that the server accepts."""
        return self._prepare(model_settings, model_request_parameters, self.unsupported)

    def _prepare(
        self,
        model_settings: ModelSettings | None,
        requested: ModelRequestParameters,
        unsupported: frozenset[UnsupportedFeature],
    ) -> tuple[ModelSettings | None, ModelRequestParameters]:
        settings = {**(self.settings or {}), **(model_settings or {})}
        is_cacheable = _FORM_NEUTRAL.issuperset(settings)
        forms = self._forms_of(requested).prepared if is_cacheable else {}
        if (known := forms.get(unsupported)) is not None:
            return cast("ModelSettings", settings) or None, known
        parameters = requested
        if requested.output_mode == "auto":
            schemas = [tool.parameters_json_schema for tool in requested.output_tools]
            if requested.output_object is not None:
                schemas.append(requested.output_object.json_schema)
            mode = output_mode(self.backend, self.profile, unsupported, free_keys=any(map(is_open, schemas)))
            parameters = requested.with_default_output_mode(cast("Any", mode.value))
        prepared = super().prepare_request(model_settings, parameters)
        forms[unsupported] = prepared[1]
        return prepared

    def _forms_of(self, requested: ModelRequestParameters) -> "_Forms":
        """Return the forms of a parameters object, cached for the object's lifetime."""
        cache, key = self._forms, id(requested)
        if (forms := cache.get(key)) is None:
            # The callback runs before another object can get the id.
            forms = cache[key] = _Forms(ref(requested, lambda _: cache.pop(key, None)), {})
        return forms

    @property
    def unsupported(self) -> frozenset[UnsupportedFeature]:
        return self._features.of(self._server_name)

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones."""
        if (close := getattr(self._call, "aclose", None)) is not None:
            await close()

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Return one completion.

        Raises:
            EpisodeAbandoned: This request fails; others may succeed.
            RunStopped: The backend is unusable.
            UserError: A message or setting cannot be sent.
        """
        requested, policy = model_request_parameters, self._policy
        pending = PendingRequest(current_request(), answered_before=policy.answered)
        self.counts.begun += 1
        if self.backend.output_mode is not OutputMode.AUTO and not requested.function_tools:
            # Keep the output mode that the user chose. Function tools are no output mode.
            pending.may_omit -= {UnsupportedFeature.SCHEMA, UnsupportedFeature.TOOLS}
        role, without_bound = pending.context.role, False
        pending.default_bound = self._default_bounds[Role(role)] if role in pending.context.session.bounded else None
        form = await self._form(messages, model_settings, requested, pending)
        while True:
            request, parameters = form
            try:
                seeded = _reseeded(request, pending.faults[ErrorCategory.CONTENT])
                response = await self._answer(seeded, parameters, pending)
            except RefinesynthError:
                # Raised by our own completion functions, such as batches, already classified.
                raise
            except Exception as error:  # noqa: BLE001 - every error is classified
                fault = classify_error(error, self.backend)
            else:
                if pending.omitted:
                    await self._features.add(self.backend, pending.omitted)
                self._uses_bounds = self._uses_bounds and not without_bound
                return response
            if pending.default_bound is not None and self._may_be_of_bound(fault):
                # The user did not set the default bound: repeat the request without it.
                without_bound = fault.category is ErrorCategory.REJECTED
                pending.default_bound, wait = None, 0.0
            else:
                wait = policy.wait(fault, pending, request)
            if wait is None:
                break
            with stopped_clock() if fault.category in _NOT_OF_EPISODE else nullcontext():
                await self._sleep(wait)
            form = await self._form(messages, model_settings, requested, pending)
        # Outside of the handler: as its context, the server's error would show unredacted text.
        raise policy.error(fault, pending)

    def _may_be_of_bound(self, fault: ClassifiedError) -> bool:
        """Return True if a default bound may be the cause: rejected, beyond the context, or cutting thoughts."""
        if fault.category is ErrorCategory.REJECTED:
            return not fault.arguments or not BOUND_NAMES.isdisjoint(fault.arguments)
        may_be_cut = fault.category is ErrorCategory.CONTENT and not self._uses_bounds
        return may_be_cut or fault.category is ErrorCategory.CONTEXT

    async def _form(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        requested: ModelRequestParameters,
        pending: PendingRequest,
    ) -> tuple[dict[str, Any], ModelRequestParameters]:
        """Return the request in a form that the server accepts. Raises NoTools: it needs tools, and the server has none."""
        if requested.function_tools:
            if UnsupportedFeature.TOOLS in pending.omitted or not self.profile.get("supports_tools", True):
                # Recorded at once: no other form of the request can confirm the lack.
                await self._features.add(self.backend, frozenset({UnsupportedFeature.TOOLS}))
            if UnsupportedFeature.TOOLS in self.unsupported:
                raise NoTools(f"{self.backend.label} takes no tools, and is asked to call one of several")
        unsupported = self.unsupported | pending.omitted
        merged, parameters = self._prepare(settings, requested, unsupported)
        request = self._request(messages, merged or {}, parameters, unsupported)
        if not self._uses_bounds or has_bound(request):
            pending.default_bound = None
        if pending.default_bound is not None:
            request["max_tokens"] = pending.default_bound
        return request, parameters

    async def _answer(
        self, request: dict[str, Any], parameters: ModelRequestParameters, pending: PendingRequest
    ) -> ModelResponse:
        """Return a usable completion: recalled from the journal, or paid for now."""
        paid, policy = pending.context.recall(), self._policy
        if paid is not None:
            answer, cost = ReadCompletion.from_paid(paid), paid.cost_usd
        else:
            answer, cost = await self._send(request, parameters, pending)
            policy.note_answer(request, pending.context.role)
        if answer.thinking or answer.usage.output_reasoning_tokens:
            # Some providers hide the thoughts and report only their tokens.
            self._uses_bounds, self._thinks = False, True
        answer.check(max_tokens=bound_in(request))
        answer, artefact = answer.with_repaired_calls(parameters)
        parts = answer.parts(parameters)
        policy.usable = True
        policy.answered += paid is None
        usage = answer.usage
        if cost is not None:
            usage.cost = Decimal(str(cost))
        details = {"thinking_mark": answer.end_mark, "call_artefact": artefact} if answer.end_mark or artefact else None
        return ModelResponse(
            parts=parts,
            usage=usage,
            model_name=answer.model or self.model_name,
            provider_name=self.system,
            provider_response_id=answer.id,
            finish_reason="tool_call" if answer.calls else "stop",
            provider_details=details,
        )

    async def _send(
        self, request: dict[str, Any], parameters: ModelRequestParameters, pending: PendingRequest
    ) -> tuple[ReadCompletion, float | None]:
        """Send the request within rate limit and budget; journal the completion and return it with its price."""
        context, forms = pending.context, self._forms_of(parameters)
        if forms.schema_tokens is None:
            forms.schema_tokens = schema_tokens(request)
        prompt_tokens = message_tokens(request["messages"]) + forms.schema_tokens
        # Permit before reservation: a queued request must not reserve budget that others need.
        async with self.limiter.permit(
            priority=context.session.index,
            buckets=self._buckets,
            tokens=prompt_tokens,
            kind=(self.backend.model, context.role),
        ) as permit:
            with stopped_clock():
                reservation = await context.session.tracker.reserve(
                    prompt_tokens=prompt_tokens, max_tokens=bound_in(request), price=self._price
                )
            self.counts.retried += pending.attempt > 0
            pending.attempt += 1
            try:
                is_marked = self._litellm_provider == "anthropic" and context.session.id
                sent = with_cache_marks(request, context.role) if is_marked else request
                answer = await self._complete(sent, permit)
                cost = self._price(answer.usage)
            except BaseException:
                reservation.release()
                raise
        reservation.settle(answer.usage, cost)
        await context.keep(answer, cost, model=self.backend.model)
        return answer, cost

    async def _complete(self, request: dict[str, Any], permit: Permit) -> ReadCompletion:
        start = anyio.current_time()
        try:
            with anyio.fail_after(request["timeout"]):
                # The key is a temporary of the call: no local variable in a traceback holds it.
                raw = await self._call(**request, **self._key())
            answer = raw if isinstance(raw, ReadCompletion) else read_completion(raw, max_tokens=bound_in(request))
            answer = self._counted(answer, request)
        except RefinesynthError:
            raise
        except Exception as error:
            permit.failed(classify_error(error, self.backend))
            raise
        permit.answered(
            seconds=anyio.current_time() - start,
            output_tokens=answer.usage.output_tokens,
            billed=answer.usage.total_tokens,
        )
        return answer

    def _key(self) -> dict[str, str]:
        # The OpenAI client requires a key, even for servers that check none.
        default = {} if self._server is None else {"api_key": "none"}
        return next(({"api_key": key} for name in self._key_variables if (key := os.environ.get(name))), default)

    def _counted(self, answer: ReadCompletion, request: dict[str, Any]) -> ReadCompletion:
        """Return the completion with a usage; a missing or impossible usage is estimated, and logged once."""
        call_texts = [text for name, arguments, _ in answer.calls for text in (name, arguments)]
        usage = with_estimates(answer.usage, request, [answer.text, answer.thinking, *call_texts])
        if usage is answer.usage:
            return answer
        if ESTIMATED in usage.details and not self._has_estimated:
            self._has_estimated = True
            text = (
                f"{self.backend.label} reports no usage with its answers, or none that can be right; tokens are estimated "
                f"from the text, and costs and budget follow the estimate"
            )
            report("usage_estimated", self.backend, text)
        return replace(answer, usage=usage)

    def _request(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings,
        parameters: ModelRequestParameters,
        unsupported: frozenset[UnsupportedFeature],
    ) -> dict[str, Any]:
        profile: ModelProfile = self.profile
        strict = self._litellm_provider in _STRICT_PROVIDERS and self.backend.base_url is None
        sends_thinking = profile.get("openai_chat_send_back_thinking_parts") == "field"
        timeout = settings.get("timeout")
        request: dict[str, Any] = {
            **self.backend.extra,
            **request_arguments.forwarded_settings(settings),
            "model": self.backend.model,
            "messages": request_arguments.chat_messages(
                messages, parameters, thinking_field="reasoning_content" if sends_thinking else None
            ),
            "timeout": float(timeout) if isinstance(timeout, int | float) else self.backend.timeout,
        }
        if not (self._accepts_seed and self.backend.seed) or UnsupportedFeature.SEED in unsupported:
            request.pop("seed", None)
        # Other stop sequences, such as Inspect's, are the user's choice.
        if UnsupportedFeature.STOP in unsupported or (self._thinks and request.get("stop") == [*STOPS]):
            request.pop("stop", None)
        if UnsupportedFeature.STOP not in unsupported and (stop := self.backend.extra.get("stop")) is not None:
            request["stop"] = stop
        if tools := request_arguments.tools(parameters, strict=strict):
            request["tools"] = tools
            can_force = UnsupportedFeature.TOOL_CHOICE not in unsupported and can_force_tools(self.backend, profile)
            request["tool_choice"] = request_arguments.tool_choice(parameters, settings, forced=can_force)
            if (parallel := settings.get("parallel_tool_calls")) is not None:
                request["parallel_tool_calls"] = parallel
        if form := request_arguments.response_format(parameters, strict=strict):
            request["response_format"] = form
        if self._server is not None:
            request["api_base"] = self._server
        for name in (name for name, value in self.backend.extra.items() if value is None):
            request.pop(name, None)
        return request


def _reseeded(request: dict[str, Any], content_faults: int) -> dict[str, Any]:
    seed = request.get("seed")
    if seed is None or not content_faults:
        return request
    return {**request, "seed": (seed + content_faults * _SEED_STEP) % _SEED_RANGE}
