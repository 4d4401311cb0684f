"""A model that answers from a list and remembers what it was asked, in the shed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.profiles import ModelProfile
from samples import SHED, SHED_GROUNDED, dm, player

from refinesynth.prompts import Examples, Prompts
from refinesynth.prompts.data_blocks import read_blocks
from refinesynth.trajectory import Draft, DungeonMasterTurn, PlayerTurn


def said(turn: PlayerTurn | DungeonMasterTurn) -> str:
    """The turn as its role's model would answer in live play."""
    if isinstance(turn, PlayerTurn):
        return f"Thought: {turn.thought}\nAction: {turn.action}"
    return orjson.dumps(turn.model_dump(mode="json", exclude={"role"})).decode()


def as_json(value: object) -> str:
    return orjson.dumps(value, default=lambda item: item.model_dump(mode="json")).decode()


@dataclass
class Asked:
    """One request as it went out."""

    instructions: str | None
    chat: list[tuple[str, str]]
    info: AgentInfo

    @property
    def blocks(self) -> dict[str, Any]:
        return read_blocks(self.chat[-1][1])


Answer = str | Exception | Callable[[Asked], str]


@dataclass
class Scripted:
    """A model whose answers are given one after another; the last is given again and again."""

    answers: Iterable[Answer]
    mode: str = "native"
    asked: list[Asked] = field(default_factory=list[Asked])

    def __post_init__(self) -> None:
        self._left = list(self.answers)
        profile = ModelProfile(
            default_structured_output_mode=self.mode,  # type: ignore[typeddict-item]
            supports_json_schema_output=True,
        )
        self.model = FunctionModel(self._answer, profile=profile, model_name="scripted")

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        chat = [turn for message in messages for turn in _plain(message)]
        told = [info.instructions, *(text for role, text in chat if role == "system")]
        instructions = "\n\n".join(filter(None, told)) or None
        asked = Asked(instructions, [turn for turn in chat if turn[0] != "system"], info)
        self.asked.append(asked)
        answer = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        if isinstance(answer, Exception):
            raise answer
        return ModelResponse(parts=[TextPart(answer if isinstance(answer, str) else answer(asked))])


def _plain(message: ModelMessage) -> list[tuple[str, str]]:
    turns: list[tuple[str, str]] = []
    for part in message.parts:
        if isinstance(part, ToolCallPart):
            continue
        assert isinstance(part, UserPromptPart | TextPart | SystemPromptPart | ToolReturnPart), f"foreign part {part!r}"
        assert isinstance(part.content, str)
        role = "user" if isinstance(message, ModelRequest) else "assistant"
        turns.append(("system" if isinstance(part, SystemPromptPart) else role, part.content))
    return turns


PROMPTS = Prompts(
    examples=Examples(
        scripts=(SHED,),
        trajectories=(Draft(script=SHED, turns=(player("open box"), dm("It opens. Task Succeed"))),),
        grounded=(SHED_GROUNDED,),
    )
)
