"""Players that need no model, to compare with: a random one, the first valid action, and the oracle.

Each is a model name, `control/random`, so that it stands in logs and tables as models do.
"""

from collections.abc import Awaitable, Callable
from hashlib import blake2b
from random import Random

from inspect_ai.model import (
    ChatMessage,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    modelapi,
)
from inspect_ai.solver import TaskState
from inspect_ai.tool import ToolChoice, ToolInfo

from refinesynth.chat import render_player
from refinesynth.evaluate.pool import Episode
from refinesynth.trajectory import PlayerTurn

PROVIDER = "control"
CONTROLS = ("random", "first", "oracle")
"""Uniform over the valid actions; the first of them; the known solution of a grounded world."""

Act = Callable[[list[ChatMessage], Episode], Awaitable[ModelOutput]]
"""Who acts, the model that is evaluated or a control: the next message after these, which end with a user message."""


def control_of(state: TaskState) -> Act | None:
    """The control that this sample is to be played by; None if it is a model's."""
    if state.model.api.rpartition("/")[2] != PROVIDER:
        return None
    name = state.model.name
    seed = int.from_bytes(blake2b(f"{state.sample_id}/{state.epoch}".encode(), digest_size=8).digest())
    return {"random": _Random(seed), "first": _first, "oracle": _Oracle()}[name]


class _Random:
    """The same choices for the same sample and epoch."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    async def __call__(self, _: list[ChatMessage], episode: Episode) -> ModelOutput:
        valid = await episode.valid_actions()
        return _acting("random", self._random.choice(valid) if valid else None)


async def _first(_: list[ChatMessage], episode: Episode) -> ModelOutput:
    return _acting("first", next(iter(await episode.valid_actions()), None))


class _Oracle:
    """The solution is asked for once, before the first action; an action that slipped is taken again."""

    def __init__(self) -> None:
        self._left: list[str] | None = None
        self._taken: list[str] = []

    async def __call__(self, _: list[ChatMessage], episode: Episode) -> ModelOutput:
        if self._left is None:
            self._left = list(await episode.solution() or ())
        elif episode.slipped:
            self._left[:0] = self._taken[-1:]
        self._taken = self._left[:1]
        del self._left[:1]
        return _acting("oracle", self._taken[0] if self._taken else None)


def _acting(name: str, action: str | None) -> ModelOutput:
    """The action as a player's message; an empty output where there is none to take."""
    if action is None:
        return ModelOutput(model=f"{PROVIDER}/{name}")
    message = render_player(PlayerTurn(thought="This is a control, which does not think.", action=action))
    return ModelOutput.from_content(f"{PROVIDER}/{name}", message)


@modelapi(name=PROVIDER)
class Control(ModelAPI):
    """The name of a control; the agent loop acts itself, as a model cannot see an environment's valid actions."""

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
        """Never asked by our own tasks."""
        del input, tools, tool_choice, config
        raise ValueError(f"{PROVIDER}/{self.model_name} plays refinesynth's own tasks alone; it writes no text")
