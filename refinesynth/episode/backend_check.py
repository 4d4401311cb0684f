"""Check of a backend: the first request of each role, in every answer form.

The rehearsal backend plays the episode around these requests, so each role gets a realistic request and the check does
not depend on earlier answers.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import anyio
from pydantic_ai.messages import ModelMessage, ModelResponse, ThinkingPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from refinesynth.async_contexts import deadline
from refinesynth.backends import Backend, OutputMode, Role
from refinesynth.chat import parse_player
from refinesynth.client import close_models, open_model
from refinesynth.client.default_limits import bound_of, server_facts_of
from refinesynth.client.request_arguments import (
    UnsupportedFeature,
    UnsupportedFeatures,
    chat_messages,
    output_mode,
    profile_of,
    server_name,
)
from refinesynth.client.session import RequestContext, Session, charged_to
from refinesynth.client.token_usage import message_tokens
from refinesynth.episode.episode import play_episode
from refinesynth.episode.play import EpisodeSettings, judged
from refinesynth.episode.plays import find
from refinesynth.episode.prompt_preview import settings_of
from refinesynth.errors import ConfigurationError, EpisodeAbandoned, RunStopped
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.roles.actor import plain_text, tool_calls_of
from refinesynth.roles.script_writer import read_grounded
from refinesynth.rules.rule import rejects
from refinesynth.text.json_reader import read_json
from refinesynth.trajectory import Persona, Script, explain

MODES = (OutputMode.NATIVE, OutputMode.TOOL, OutputMode.PROMPTED)
"""Output modes, from the one with the best results to the one that every model supports."""
CALLS = "calls"
TEXT = "text"
_REHEARSAL = Rehearsal(Faults.none())
_RETRIES = 2
_SUFFICIENT_TOKENS = 8000
"""Value of `max_tokens` that is enough for every answer, in tokens."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One request and its result."""

    role: Role
    form: str
    """An output mode, `text`, or `calls` for a player that calls its actions."""
    problem: str | None = None
    """Reason why the answer is not usable; None for a usable answer."""
    refused: bool = False
    """True if there was no answer."""
    refusal: str | None = None
    """Reason why the script rules refuse the script of a usable answer."""
    seconds: float = 0.0
    usage: RequestUsage = field(default_factory=RequestUsage)
    """Its details name `ESTIMATED` if the server reported no usage."""
    has_reasoning: bool = False
    """True if the answer contains reasoning."""
    thinking_mark: str | None = None
    """Marker at the end of reasoning that the server left in the answer's text, such as `</think>`."""
    artefact: str | None = None
    """Repairs of tool calls that the server's parser damaged."""


OnBegin = Callable[[Role, str, int, int | None], object]
"""Callback before a request: role, form, prompt tokens, and the most tokens of the answer (None without a limit)."""

_Request = tuple[list[ModelMessage], ModelSettings | None, ModelRequestParameters]


@dataclass
class BackendCheck:
    """Check of a backend; its results are complete once `run` has returned."""

    backend: Backend
    on_begin: OnBegin
    on_probe: Callable[[Probe], object]
    """Called at the end of each request, except for one that stops the check."""
    probes: list[Probe] = field(default_factory=list[Probe])
    features: UnsupportedFeatures = field(default_factory=UnsupportedFeatures)

    @property
    def unsupported(self) -> frozenset[UnsupportedFeature]:
        """Features that the server lacks."""
        return self.features.of(server_name(self.backend))

    @property
    def mode(self) -> OutputMode | None:
        """First mode with a usable answer for every role, preferably with a script that the rules accept."""
        usable = [mode for mode in MODES if self._in_form(mode) and not self.problems(mode)]
        with_accepted_script = [mode for mode in usable if not any(probe.refusal for probe in self._in_form(mode))]
        return next(iter([*with_accepted_script, *usable]), None)

    @property
    def playable(self) -> bool:
        """True if the checked roles can play a run."""
        structured = any(self._in_form(mode) for mode in MODES)
        return bool(self.probes) and (self.mode is not None or not structured) and not self.problems(TEXT)

    @property
    def settings(self) -> tuple[str, ...]:
        """Settings to pass to `--set`."""
        settings = () if self.mode in {None, self._default_mode()} else (f"output_mode={self.mode}",)
        if UnsupportedFeature.SEED in self.unsupported:
            settings += ("seed=false",)
        if any("max_tokens" in (probe.problem or "") for probe in self.probes):
            settings += (f"max_tokens={_SUFFICIENT_TOKENS}",)
        return settings

    def _in_form(self, form: str | None) -> list[Probe]:
        return [probe for probe in self.probes if probe.form == form]

    def problems(self, form: str) -> list[Probe]:
        """Requests in this form without a usable answer."""
        return [probe for probe in self._in_form(form) if probe.problem]

    def _default_mode(self) -> OutputMode:
        """Mode of a run with this backend as it is: the configured one, else the usual one or the next that the server
        accepts.
        """
        default = output_mode(self.backend, profile_of(self.backend), frozenset())
        if self.backend.output_mode is not OutputMode.AUTO:
            return default
        fallbacks = MODES[MODES.index(default) :]
        return next((mode for mode in fallbacks if not any(probe.refused for probe in self.problems(mode))), MODES[-1])

    async def run(self, persona: Persona, *, play: str = "live", roles: Collection[str] = ()) -> None:
        """Send the first request of each role, or of `roles`, in every form. Live play has 8 requests.

        Raises:
            RunStopped: The backend cannot be used: key, model, address or quota.
            ConfigurationError: No variable holds the required key, or a role is unknown.
            InputError: The play is unknown.
        """
        backend, play_roles = self.backend, find(play).roles(settings_of(play))
        if unknown := [role for role in roles if role not in {*play_roles}]:
            names = ", ".join(role.value for role in play_roles)
            raise ConfigurationError(f"{unknown[0]!r} is no role of this check; give one or more of {names}")
        # The backend's own token limit would cut off the rehearsal's answers, and later roles would get no request.
        unbounded = backend.model_copy(update={"max_tokens": None})
        probed = backend.model_copy(update={"retries": min(backend.retries, _RETRIES), "content_retries": 0})
        models = {
            mode: open_model(probed.model_copy(update={"output_mode": mode}), lacks=self.features) for mode in MODES
        }
        try:
            context = (await server_facts_of(backend)).context
            for form in ("react", "tools"):
                settings, first = settings_of(play, player_form=form), dict[Role, _Request]()
                recording = {
                    role: _FirstRequest(open_model(unbounded, call=_REHEARSAL), role, first) for role in play_roles
                }
                await play_episode(persona, index=0, settings=settings, models=recording)
                for role, request in first.items():
                    if (form == "react" or role is Role.PLAYER) and (not roles or role in roles):
                        await self._ask(role, request, models, context, settings)
        finally:
            await close_models(models.values())

    async def _ask(
        self,
        role: Role,
        request: _Request,
        models: Mapping[OutputMode, Model],
        context: int | None,
        settings: EpisodeSettings,
    ) -> None:
        messages, _, parameters = request
        forms = {CALLS if parameters.function_tools else TEXT: models[OutputMode.TOOL]}
        if parameters.output_object is not None:
            forms = {mode.value: model for mode, model in models.items()}
        prompt = message_tokens(chat_messages(messages, parameters))
        max_tokens = bound_of(role, self.backend) or (None if context is None else max(context - prompt, 0))
        stopped: RunStopped | None = None
        unreported = list[Probe]()
        for form, model in forms.items():
            self.on_begin(role, form, prompt, max_tokens)
            try:
                probe = await self._probe(Probe(role=role, form=form), model, request, settings)
            except RunStopped as error:
                stopped = stopped or error
                probe = Probe(role=role, form=form, problem=str(error), refused=True)
            self.probes.append(probe)
            # Probes after a failure that may stop the check are reported later, to avoid a second report.
            if stopped is None:
                self.on_probe(probe)
            else:
                unreported.append(probe)
        # A server with at least one answer is reachable; some forms may still fail.
        if stopped is not None and all(probe.refused for probe in self.probes):
            raise stopped
        for probe in unreported:
            self.on_probe(probe)

    async def _probe(self, probe: Probe, model: Model, request: _Request, settings: EpisodeSettings) -> Probe:
        """Return the probe with the result of its request."""
        began, role, timeout = anyio.current_time(), probe.role, self.backend.timeout
        session = Session(id="check", seed=0, bounded=frozenset(Role))
        with charged_to(RequestContext(session, role.value)), deadline(timeout) as limit:
            try:
                response = await model.request(*request)
            except EpisodeAbandoned as refusal:
                return replace(probe, problem=str(refusal), refused=True)
        if limit.passed:
            late = f"gave no answer within {timeout:g} s; --set timeout=SECONDS waits longer"
            return replace(probe, problem=late, refused=True)
        problem = refusal = None
        details, usage = response.provider_details or {}, response.usage
        try:
            answer = _read(response, request[2])
            refusal = _refusal(answer, settings) if role is Role.SCRIPT_WRITER else None
        except (ValueError, RecursionError) as error:
            problem = f"answers, but not in this form: {explain(error)}"
        return replace(
            probe,
            problem=problem,
            refusal=refusal,
            seconds=anyio.current_time() - began,
            usage=usage,
            has_reasoning=usage.output_reasoning_tokens > 0
            or any(isinstance(part, ThinkingPart) for part in response.parts),
            thinking_mark=details.get("thinking_mark"),
            artefact=details.get("call_artefact"),
        )


class _FirstRequest(WrapperModel):
    """Model that keeps its first request."""

    def __init__(self, wrapped: Model, role: Role, first: dict[Role, _Request]) -> None:
        super().__init__(wrapped)
        self._role, self._requests = role, first

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        self._requests.setdefault(self._role, ([*messages], model_settings, model_request_parameters))
        return await self.wrapped.request(messages, model_settings, model_request_parameters)


def _refusal(answer: object, settings: EpisodeSettings) -> str | None:
    """Return the reason why the script rules refuse a script; None if they accept it. Raises ValueError: this is no
    script.
    """
    play = find(settings.play)
    script = read_grounded(answer) if play.executed else Script.from_llm(answer)
    verdict = judged(script, settings.script_rules, play.needs())
    return next((violation.message for violation in verdict.violations if rejects(violation)), None)


def _read(response: ModelResponse, parameters: ModelRequestParameters) -> object:
    """Return the object in a structured answer; None for text and tool calls.

    Raises:
        ValueError, RecursionError: The answer does not have the requested form.
    """
    calls = tool_calls_of(response)
    if parameters.function_tools:
        offered = {tool.name for tool in parameters.function_tools}
        if not any(call.tool_name in offered for call in calls):
            raise ValueError("it calls none of the functions")
    elif parameters.output_object is None:
        if not parse_player(plain_text(response)).thought:
            raise ValueError("there is no thought")
    else:
        found: Any = calls[0].args_as_dict() if calls else read_json(plain_text(response))
        if not isinstance(found, dict):
            raise ValueError("it is a list, not an object")
        required = parameters.output_object.json_schema.get("required", [])
        if missing := [name for name in required if name not in found]:
            raise ValueError(f"the object has no {missing[0]!r}")
        return cast("dict[str, Any]", found)
    return None
