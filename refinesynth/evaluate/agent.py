"""Agent loop: an episode in which an environment replaces the DungeonMaster, in the chat form of training."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from math import inf
from random import Random
from typing import Any

from inspect_ai.model import (
    ChatMessage,
    ChatMessageUser,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    get_model,
    get_model_info,
    modelapi,
)
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import ToolChoice, ToolInfo

from refinesynth.evaluate.chat_form import FORMS, ReactForm
from refinesynth.evaluate.environment_pool import EnvironmentFault, EnvironmentPool, Episode
from refinesynth.evaluate.environments.environment import Instance, Start
from refinesynth.evaluate.episode_counts import EpisodeStep, counts
from refinesynth.text.formatting import scrub
from refinesynth.trajectory import PlayerTurn

PROVIDER = "control"
CONTROLS = ("random", "first", "oracle")
"""Uniform over the valid actions; the first valid action; the solution that the environment gives."""

Act = Callable[[list[ChatMessage], Episode, ReactForm], Awaitable[ModelOutput]]
"""Function that returns the next message of the model or control, after the last user or tool message."""


def control_of(state: TaskState) -> Act | None:
    """The control that plays this sample; None for a model."""
    if state.model.api.rpartition("/")[2] != PROVIDER:
        return None
    # The seed makes choices reproducible for each sample and epoch.
    seed = int.from_bytes(blake2b(f"{state.sample_id}/{state.epoch}".encode(), digest_size=8).digest())
    return _Control(state.model.name, Random(seed))


class _Control:
    """Control that plays valid actions, or the solution; a slipped action of the solution is played again."""

    def __init__(self, name: str, random: Random) -> None:
        self._name, self._random = name, random
        self._remaining: list[str] | None = None
        self._last: list[str] = []

    async def __call__(self, _: list[ChatMessage], episode: Episode, form: ReactForm) -> ModelOutput:
        if self._name == "oracle":
            action = await self._next_action(episode)
        else:
            valid = await episode.valid_actions()
            action = (self._random.choice(valid) if self._name == "random" else valid[0]) if valid else None
        name = f"{PROVIDER}/{self._name}"
        if action is None:
            return ModelOutput(model=name)
        message = form.message(PlayerTurn(thought="This is a control, which does not think.", action=action))
        message.model = name
        return ModelOutput.from_message(message)

    async def _next_action(self, episode: Episode) -> str | None:
        if self._remaining is None:
            self._remaining = list(await episode.solution() or ())
        elif episode.slipped:
            self._remaining[:0] = self._last
        self._last, self._remaining = self._remaining[:1], self._remaining[1:]
        return next(iter(self._last), None)


@modelapi(name=PROVIDER)
class BaselineModel(ModelAPI):
    """Name of a control. The agent loop chooses its actions, because a model does not get the valid actions."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
    ) -> None:
        if model_name not in CONTROLS:
            raise ValueError(f"there is no control {model_name!r}; expected one of {', '.join(CONTROLS)}")
        super().__init__(model_name, base_url, api_key, [], config or GenerateConfig())

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002 - Inspect's own name
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """Raise ValueError; the agent loop never calls it."""
        del input, tools, tool_choice, config
        raise ValueError(f"{PROVIDER}/{self.model_name} plays refinesynth's own tasks alone; it writes no text")


RESULT = "episode"
"""Key of an episode's result in the store."""

MAX_ACTION = 10_000
"""Most characters of an action that are passed to an environment."""

_NOT_EXECUTED = "Not executed: the task has ended."
"""Reply to a call after the one that ended the task, or beyond the step limit."""


@dataclass
class EpisodeResult:
    moves: list[EpisodeStep] = field(default_factory=list[EpisodeStep])
    progress: float = 0.0
    success: bool = False
    stopped: str = ""
    """`done`, `steps`, `context` (full window), `environment` (failed twice), `no action` (empty output)."""
    measures: Mapping[str, float] = field(default_factory=dict[str, float])


def first_message(start: Start, form: ReactForm) -> str:
    """First user message: task and first observation."""
    return "\n\n".join(filter(None, [form.task(), start.observation]))


def _opening(start: Start, form: ReactForm) -> Iterator[ChatMessage]:
    yield ChatMessageUser(content=scrub(first_message(start, form)))
    for turn in start.history:
        message = form.message(PlayerTurn(thought=turn.thought, action=turn.action))
        yield message
        yield from form.answers(message, turn.observation)


@solver
def player(
    pool: EnvironmentPool,
    instances: Mapping[str, Instance],
    *,
    steps: int,
    form: str = "react",
) -> Solver:
    """Play the instance of each sample, which is in `instances` by the sample's id."""
    chat_form = FORMS.get(form, ReactForm)

    async def solve(state: TaskState, generate: Generate) -> TaskState:  # noqa: ARG001 - Inspect's own signature
        async with pool.episode(instances[str(state.sample_id)]) as episode:
            outcome = await _attempt(state, episode, chat_form, steps=steps)
        state.completed = True
        result: dict[str, Any] = {
            "success": float(outcome.success),
            "progress": outcome.progress,
            "stopped": outcome.stopped,
            "measures": dict(outcome.measures),
            "counts": asdict(counts(outcome.moves)),
            "faults": list(episode.faults),
        }
        state.store.set(RESULT, result)
        return state

    return solve


async def _attempt(state: TaskState, episode: Episode, form: type[ReactForm], *, steps: int) -> EpisodeResult:
    """Play an episode; if the environment fails, play it once more from the beginning in a new process."""
    result = EpisodeResult()
    for _ in range(2):
        result = EpisodeResult()
        try:
            start = await episode.reset()
            chat = form(start)
            state.messages = list(_opening(start, chat))
            result.moves += [EpisodeStep(turn.action, turn.refused, in_history=True) for turn in start.history[-1:]]
            await _play(state, episode, control_of(state) or _model, chat, result, steps=steps)
        except EnvironmentFault:
            result.stopped = "environment"
        else:
            break
    return result


async def _play(
    state: TaskState, episode: Episode, act: Act, chat: ReactForm, result: EpisodeResult, *, steps: int
) -> None:
    # Context window in tokens. Beyond it, transformers does not stop but generates useless text.
    info, remaining = get_model_info(str(state.model)), steps
    window = (info and info.context_length) or inf
    while remaining > 0:
        output = _writable(await act(state.messages, episode, chat))
        state.output = output
        if output.empty:
            result.stopped = "no action"
            return
        if output.stop_reason == "model_length" or (output.usage and output.usage.total_tokens > window):
            result.stopped = "context"
            return
        state.messages.append(output.message)
        try:
            actions = chat.read(output.message)
        except ValueError as error:
            # A message without an action costs a step, like a refused action.
            result.moves.append(EpisodeStep("", failed=True))
            remaining, problem = remaining - 1, str(error)
            state.messages += chat.answers(
                output.message, f"{problem[0].upper()}{problem[1:]}.", marks=[{"refused": True}]
            )
            continue
        answers: list[tuple[str, dict[str, Any]]] = []
        for action in (action[:MAX_ACTION] for action in actions[:remaining]):
            step = await episode.step(action)
            result.moves.append(EpisodeStep(action, failed=step.refused))
            result.progress = max(result.progress, step.progress)
            result.success, result.measures = step.success, step.measures
            answers.append((step.observation, {"refused": step.refused, "progress": round(step.progress, 4)}))
            if step.done:
                result.stopped = "done"
                break
        remaining -= len(answers)
        answers += [(_NOT_EXECUTED, {})] * (len(actions) - len(answers))
        state.messages += chat.answers(
            output.message, *(text for text, _ in answers), marks=[marks for _, marks in answers]
        )
        if result.stopped:
            return
    result.stopped = "steps"


def _writable(output: ModelOutput) -> ModelOutput:
    """The output without lone surrogates, which logs cannot store."""
    if output.choices and scrub(output.completion) != output.completion:
        output.message.content = scrub(output.completion)
        output.completion = scrub(output.completion)
    return output


async def _model(messages: list[ChatMessage], _: Episode, form: ReactForm) -> ModelOutput:
    return await get_model().generate(messages, form.tools)
