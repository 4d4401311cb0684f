"""Check of what a backend can do: the first request of each role, asked in every form that there is.

The rehearsal plays the episode around it, so that each role is asked something real and no answer is needed to go on.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
from pydantic import ValidationError
from pydantic_ai.messages import ModelMessage, ModelResponse, ThinkingPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from refinesynth.backends import Backend, OutputMode, Role
from refinesynth.chat import parse_player
from refinesynth.client import close_models, open_model
from refinesynth.client.default_limits import bound_of, facts_of
from refinesynth.client.request_arguments import chat_messages, output_mode, profile_of
from refinesynth.client.session import RequestContext, Session, charged_to, deadline
from refinesynth.client.token_usage import ESTIMATED
from refinesynth.client.unsupported_features import UnsupportedFeature, UnsupportedFeatures
from refinesynth.episode.episode import play_episode
from refinesynth.episode.play import EpisodeSettings, judged
from refinesynth.episode.plays import find
from refinesynth.episode.prompt_preview import prompt_tokens, settings_of
from refinesynth.errors import ConfigurationError, EpisodeAbandoned, RunStopped
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.roles.output_forms import called, said
from refinesynth.roles.script_writer import read_grounded
from refinesynth.rules.rule import rejects
from refinesynth.text.json_reader import read_json
from refinesynth.trajectory import Persona, Script, explain

MODES = (OutputMode.NATIVE, OutputMode.TOOL, OutputMode.PROMPTED)
"""From the one that a model is best at to the one that every model has."""
CALLS = "calls"
TEXT = "text"
_PERFECT = Rehearsal(Faults.none())
_RETRIES = 2
_A_SCRIPT = 8000
"""Tokens of an answer that are enough."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One request and its result."""

    role: Role
    form: str
    """An output mode, `text`, or `calls` for a player that calls its actions."""
    problem: str | None = None
    """None where there was an answer to use."""
    refused: bool = False
    """True if there was no answer at all."""
    refusal: str | None = None
    """Reason for which the script rules refuse the script in a usable answer."""
    seconds: float = 0.0
    answer_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    estimated: bool = False
    """True if the usage was not reported, and is estimated."""
    thought: bool = False
    """True if the model thought before it answered."""
    mark: str | None = None
    """The one that ends thoughts which the server left in the text of the answer, such as `</think>`."""
    artefact: str | None = None
    """Repairs of what the server's tool parser did to the calls."""


@dataclass
class BackendCheck:
    """Findings about a backend, complete once `check_backend` has returned."""

    backend: Backend
    probes: list[Probe] = field(default_factory=list[Probe])
    known: UnsupportedFeatures = field(default_factory=UnsupportedFeatures)

    @property
    def lacks(self) -> frozenset[UnsupportedFeature]:
        """Features that the server lacks."""
        return self.known.of(self.backend)

    @property
    def mode(self) -> OutputMode | None:
        """The first mode in which every role gave an answer to use, if possible with a script that the rules accept."""
        usable = [mode for mode in MODES if self._asked(mode) and not self.problems(mode)]
        sound = [mode for mode in usable if not any(probe.refusal for probe in self._asked(mode))]
        return next(iter([*sound, *usable]), None)

    @property
    def playable(self) -> bool:
        """True if a run can be played with it, as far as it was asked."""
        structured = any(self._asked(mode) for mode in MODES)
        return bool(self.probes) and (self.mode is not None or not structured) and not self.problems(TEXT)

    @property
    def settings(self) -> tuple[str, ...]:
        """Settings to pass to `--set`."""
        found = () if self.mode in {None, self._by_itself()} else (f"output_mode={self.mode}",)
        if UnsupportedFeature.SEED in self.lacks:
            found += ("seed=false",)
        if any("max_tokens" in (probe.problem or "") for probe in self.probes):
            found += (f"max_tokens={_A_SCRIPT}",)
        return found

    def _asked(self, form: str | None) -> list[Probe]:
        return [probe for probe in self.probes if probe.form == form]

    def problems(self, form: str) -> list[Probe]:
        """Requests in this form that gave no usable answer."""
        return [probe for probe in self._asked(form) if probe.problem]

    def _by_itself(self) -> OutputMode:
        """The mode that a run comes to where nothing is set: from the usual one down to the first that is taken."""
        usual = output_mode(self.backend, profile_of(self.backend), frozenset())
        if self.backend.output_mode is not OutputMode.AUTO:
            return usual
        down = MODES[MODES.index(usual) :]
        return next((mode for mode in down if not any(one.refused for one in self.problems(mode))), MODES[-1])


OnBegin = Callable[[Role, str, int, int | None], object]
"""Told of a request before it is sent: role, form, tokens of the prompt, most tokens of the answer or None."""


async def check_backend(
    found: BackendCheck,
    persona: Persona,
    *,
    play: str = "live",
    roles: Collection[str] = (),
    on_begin: OnBegin,
    on_probe: Callable[[Probe], object],
) -> None:
    """Ask the first request of each role, or of `roles`, in every form, into `found`: in live play 8 requests.

    `on_probe` is told of each request's end, but not of those that stop the check.

    Raises:
        RunStopped: It cannot be asked at all: key, model, address, quota.
        ConfigurationError: It needs a key and no variable holds one, or there is no such play or role.
    """
    backend, asked_roles = found.backend, find(play).roles(settings_of(play))
    known = [role.value for role in asked_roles]
    if wrong := [role for role in roles if role not in known]:
        raise ConfigurationError(f"{wrong[0]!r} is no role of this check; give one or more of {', '.join(known)}")
    # What bounds the backend's answers would cut the rehearsal's off, and the roles behind it would not be asked.
    around = backend.model_copy(update={"max_tokens": None})
    patient = backend.model_copy(update={"retries": min(backend.retries, _RETRIES), "content_retries": 0})
    asked = {mode: open_model(patient.model_copy(update={"output_mode": mode}), lacks=found.known) for mode in MODES}
    check = _Check(found, asked, (await facts_of(backend)).context, on_begin, on_probe)
    try:
        for form in ("react", "tools"):
            settings = settings_of(play, player_form=form)
            models: dict[Role, Model] = {role: open_model(around, call=_PERFECT) for role in asked_roles}
            for role in models if form == "react" else models.keys() & {Role.PLAYER}:
                if not roles or role in roles:
                    models[role] = _Probing(models[role], role, check, settings)
            if any(isinstance(model, _Probing) for model in models.values()):
                await play_episode(persona, index=0, settings=settings, models=models)
    finally:
        await close_models(asked.values())


@dataclass(frozen=True)
class _Check:
    """Context that all probes of a check share."""

    found: BackendCheck
    asked: Mapping[OutputMode, Model]
    context: int | None
    on_begin: OnBegin
    on_probe: Callable[[Probe], object]


class _Probing(WrapperModel):
    """Answers as the rehearsal does; what it is asked first, it asks the backend as well."""

    def __init__(self, wrapped: Model, role: Role, check: _Check, settings: EpisodeSettings) -> None:
        super().__init__(wrapped)
        self._role = role
        self._check = check
        self._episode = settings
        self._first = True

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """The rehearsal's answer."""
        if self._first:
            self._first = False
            await self._ask(messages, model_settings, model_request_parameters)
        return await self.wrapped.request(messages, model_settings, model_request_parameters)

    async def _ask(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> None:
        check, asked = self._check, self._check.asked
        forms = {CALLS if parameters.function_tools else TEXT: asked[OutputMode.TOOL]}
        if parameters.output_object is not None:
            forms = {mode.value: model for mode, model in asked.items()}
        stopped: RunStopped | None = None
        held = list[Probe]()
        session = Session(id="check", seed=0, bounded=frozenset(Role))
        with charged_to(RequestContext(session, self._role.value)):
            for form, model in forms.items():
                try:
                    probe = await self._probe(form, model, messages, settings, parameters)
                except RunStopped as error:
                    stopped = stopped or error
                    probe = Probe(role=self._role, form=form, problem=str(error), refused=True)
                check.found.probes.append(probe)
                # One that may be the reason to stop waits, so that it is not said twice.
                if stopped is None:
                    check.on_probe(probe)
                else:
                    held.append(probe)
        # A server that answers anything at all is there; over some forms it may break.
        if stopped is not None and all(probe.refused for probe in check.found.probes):
            raise stopped
        for probe in held:
            check.on_probe(probe)

    async def _probe(
        self,
        form: str,
        model: Model,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> Probe:
        backend, role = self._check.found.backend, self._role
        prompt = prompt_tokens({"messages": chat_messages(messages, parameters)})
        left = None if self._check.context is None else max(self._check.context - prompt, 0)
        self._check.on_begin(role, form, prompt, bound_of(role, backend) or left)
        began = anyio.current_time()
        with deadline(backend.timeout) as limit:
            try:
                response = await model.request(messages, settings, parameters)
            except EpisodeAbandoned as refusal:
                return Probe(role=role, form=form, problem=str(refusal), refused=True)
        if limit.passed:
            late = f"gave no answer within {backend.timeout:g} s; --set timeout=SECONDS waits longer"
            return Probe(role=role, form=form, problem=late, refused=True)
        problem = refusal = None
        details, usage = response.provider_details or {}, response.usage
        try:
            answer = _read(response, parameters)
            refusal = self._refusal(answer) if role is Role.SCRIPT_WRITER else None
        except (ValueError, RecursionError) as error:
            wrong = explain(error) if isinstance(error, ValidationError) else error
            problem = f"answers, but not in this form: {wrong}"
        return Probe(
            role=role,
            form=form,
            problem=problem,
            refusal=refusal,
            seconds=anyio.current_time() - began,
            answer_tokens=usage.output_tokens,
            prompt_tokens=usage.input_tokens,
            cached_tokens=usage.cache_read_tokens,
            estimated=ESTIMATED in usage.details,
            thought=usage.output_reasoning_tokens > 0 or any(isinstance(part, ThinkingPart) for part in response.parts),
            mark=details.get("thinking_mark"),
            artefact=details.get("call_artefact"),
        )

    def _refusal(self, answer: object) -> str | None:
        """Return why the script rules refuse a script; None if they accept it. Raises ValueError: it is no script."""
        play = find(self._episode.play)
        script = read_grounded(answer) if play.executed else Script.from_llm(answer)
        verdict = judged(script, self._episode.script_rules, play.needs())
        return next((violation.message for violation in verdict.violations if rejects(violation)), None)


def _read(response: ModelResponse, parameters: ModelRequestParameters) -> object:
    """Return the object in an answer of the form that was asked for, None where it is text or a call.

    Raises:
        ValueError, RecursionError: It has not.
    """
    calls = called(response)
    if parameters.function_tools:
        offered = {tool.name for tool in parameters.function_tools}
        if not any(call.tool_name in offered for call in calls):
            raise ValueError("it calls none of the functions")
    elif parameters.output_object is None:
        if not parse_player(said(response)).thought:
            raise ValueError("there is no thought")
    else:
        found: Any = calls[0].args_as_dict() if calls else read_json(said(response))
        if not isinstance(found, dict):
            raise ValueError("it is a list, not an object")
        required = parameters.output_object.json_schema.get("required", [])
        if missing := [name for name in required if name not in found]:
            raise ValueError(f"the object has no {missing[0]!r}")
        return cast("dict[str, Any]", found)
    return None
