"""Check of what a backend can do: the first request of each role, asked in every form that there is.

The rehearsal plays the episode around it, so that each role is asked something real and no answer is needed to go on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, ThinkingPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from refinesynth.backends import Backend, Completion, OutputMode, Role
from refinesynth.chat import parse_player
from refinesynth.client import close_models, open_model
from refinesynth.client.bills import ESTIMATED
from refinesynth.client.lacks import Lack, Lacks
from refinesynth.client.session import Account, charged_to
from refinesynth.client.wire import output_mode, profile_of
from refinesynth.episode.episode import play_episode
from refinesynth.episode.plays import find
from refinesynth.episode.preview import settings_of
from refinesynth.errors import EpisodeAbandoned, RunStopped
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.roles.forms import called, said
from refinesynth.text.jsontext import read_json
from refinesynth.trajectory import Persona

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
    """One request, and what became of it."""

    role: Role
    form: str
    """An output mode, `text`, or `calls` for a player that calls its actions."""
    problem: str | None = None
    """None where there was an answer to use."""
    refused: bool = False
    """True if there was no answer at all."""
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


@dataclass(frozen=True)
class BackendCheck:
    """Findings about a backend."""

    backend: Backend
    probes: Sequence[Probe]
    lacks: frozenset[Lack]

    @property
    def mode(self) -> OutputMode | None:
        """The first mode in which every role gave an answer to use; None if there is none."""
        return next((mode for mode in MODES if not self.problems(mode)), None)

    @property
    def playable(self) -> bool:
        """Return whether a run can be played with it."""
        return self.mode is not None and not self.problems(TEXT)

    @property
    def settings(self) -> tuple[str, ...]:
        """Settings to pass to `--set`."""
        found = () if self.mode in {None, self._by_itself()} else (f"output_mode={self.mode}",)
        if Lack.SEED in self.lacks:
            found += ("seed=false",)
        if any("max_tokens" in (probe.problem or "") for probe in self.probes):
            found += (f"max_tokens={_A_SCRIPT}",)
        return found

    def problems(self, form: str) -> list[Probe]:
        """Reasons why requests in this form gave no usable answer."""
        return [probe for probe in self.probes if probe.form == form and probe.problem]

    def _by_itself(self) -> OutputMode:
        """The mode that a run comes to where nothing is set: from the usual one down to the first that is taken."""
        usual = output_mode(self.backend, profile_of(self.backend), frozenset())
        if self.backend.output_mode is not OutputMode.AUTO:
            return usual
        down = MODES[MODES.index(usual) :]
        return next((mode for mode in down if not any(one.refused for one in self.problems(mode))), MODES[-1])


async def check_backend(
    backend: Backend,
    persona: Persona,
    *,
    play: str = "live",
    call: Completion | None = None,
    on_probe: Callable[[Probe], object] = lambda _: None,
) -> BackendCheck:
    """Ask each role's first request in every form: in live play 8 requests. `on_probe` is told of each as it ends, and not
    of those that stop the check.

    Raises:
        RunStopped: It cannot be asked at all: key, model, address, quota.
        ConfigurationError: It needs a key and no variable holds one, or there is no such play.
    """
    lacks, probes = Lacks(), list[Probe]()
    # What bounds the backend's answers would cut the rehearsal's off, and the roles behind it would not be asked.
    around = backend.model_copy(update={"max_tokens": None})
    patient = backend.model_copy(update={"retries": min(backend.retries, _RETRIES), "content_retries": 0})
    asked = {
        mode: open_model(patient.model_copy(update={"output_mode": mode}), call=call, lacks=lacks) for mode in MODES
    }
    try:
        for form in ("react", "tools"):
            settings = settings_of(play, player_form=form)
            models: dict[Role, Model] = {}
            for role in find(play).roles(settings):
                models[role] = rehearsed = open_model(around, call=_PERFECT)
                if form == "react" or role is Role.PLAYER:
                    models[role] = _Probing(rehearsed, role, asked, probes, on_probe)
            if form == "react" or Role.PLAYER in models:
                await play_episode(persona, index=0, settings=settings, models=models)
    finally:
        await close_models(asked.values())
    return BackendCheck(backend, probes, lacks.of(backend))


class _Probing(WrapperModel):
    """Answers as the rehearsal does; what it is asked first, it asks the backend as well."""

    def __init__(
        self,
        wrapped: Model,
        role: Role,
        asked: Mapping[OutputMode, Model],
        probes: list[Probe],
        on_probe: Callable[[Probe], object],
    ) -> None:
        super().__init__(wrapped)
        self._role = role
        self._asked = asked
        self._probes = probes
        self._on_probe = on_probe
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
            stopped: RunStopped | None = None
            held = list[Probe]()
            with charged_to(Account()):
                for form, model in self._forms(model_request_parameters):
                    try:
                        probe = await self._probe(form, model, messages, model_settings, model_request_parameters)
                    except RunStopped as error:
                        stopped = stopped or error
                        probe = Probe(role=self._role, form=form, problem=str(error), refused=True)
                    self._probes.append(probe)
                    # One that may be the reason to stop waits, so that it is not said twice.
                    if stopped is None:
                        self._on_probe(probe)
                    else:
                        held.append(probe)
            # A server that answers anything at all is there; over some forms it may break.
            if stopped is not None and all(probe.refused for probe in self._probes):
                raise stopped
            for probe in held:
                self._on_probe(probe)
        return await self.wrapped.request(messages, model_settings, model_request_parameters)

    def _forms(self, parameters: ModelRequestParameters) -> Sequence[tuple[str, Model]]:
        if parameters.output_object is not None:
            return [(mode.value, model) for mode, model in self._asked.items()]
        return [(CALLS if parameters.function_tools else TEXT, self._asked[OutputMode.TOOL])]

    async def _probe(
        self,
        form: str,
        model: Model,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> Probe:
        try:
            response = await model.request(messages, settings, parameters)
        except EpisodeAbandoned as refusal:
            return Probe(role=self._role, form=form, problem=str(refusal), refused=True)
        problem: str | None = None
        details = response.provider_details or {}
        try:
            _read(response, parameters)
        except (ValueError, RecursionError) as error:
            problem = f"answers, but not in this form: {error}"
        return Probe(
            role=self._role,
            form=form,
            problem=problem,
            prompt_tokens=response.usage.input_tokens,
            cached_tokens=response.usage.cache_read_tokens,
            estimated=ESTIMATED in response.usage.details,
            thought=response.usage.output_reasoning_tokens > 0
            or any(isinstance(part, ThinkingPart) for part in response.parts),
            mark=details.get("thinking_mark"),
            artefact=details.get("call_artefact"),
        )


def _read(response: ModelResponse, parameters: ModelRequestParameters) -> None:
    """Return whether an answer has the form that was asked for; not whether a rule would accept it.

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
