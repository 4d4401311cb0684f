"""A model that answers from a list and remembers what it was asked, and small values to play with."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.profiles import ModelProfile

from refinesynth.prompts import Examples, Prompts
from refinesynth.prompts.blocks import read_blocks
from refinesynth.trajectory import ActionSpec, Draft, DungeonMasterTurn, PlayerTurn, Script

SCRIPT = Script(
    introduction="You stand in the shed. There are a box and a bench.",
    environment={"shed": {"box": {"open": False, "contents": ["key"]}, "bench": {}}},
    goal="Put the key on the bench.",
    completion_conditions=("the key is on the bench",),
    actions=(
        ActionSpec(
            name="open {thing}",
            description="Opens it.",
            pattern=r"^open (?P<thing>[a-z]+)$",
            parameters={"thing": ("box", "window")},
        ),
        ActionSpec(name="take {thing}", pattern=r"^take (?P<thing>[a-z]+)$", parameters={"thing": ("key", "saw")}),
        ActionSpec(
            name="put {thing} on {place}",
            pattern=r"^put (?P<thing>[a-z]+) on (?P<place>[a-z]+)$",
            parameters={"thing": ("key", "saw"), "place": ("bench",)},
        ),
    ),
)


GROUNDED = Script.model_validate(
    {
        **SCRIPT.model_dump(mode="json", exclude={"environment", "actions"}),
        "environment": {
            "player": {"holding": []},
            "things": {"box": {"open": False}, "bench": {"open": True}},
            "inside": {"box": ["key"], "bench": []},
        },
        "actions": [
            {
                **SCRIPT.actions[0].model_dump(mode="json"),
                "requires": [
                    {"condition": "thing in visible", "kind": "place", "hint": "There is no {thing} here."},
                    {"condition": "!state.things[thing].open", "kind": "logic", "hint": "The {thing} is open already."},
                ],
                "effects": [{"op": "set", "path": "/things/{thing}/open", "value": True}],
                "reveals": "The {thing} opens. In it you see {state:/inside/{thing}}.",
            },
            {
                **SCRIPT.actions[1].model_dump(mode="json"),
                "requires": [
                    {"condition": "thing in visible", "kind": "place", "hint": "There is no {thing} here."},
                    {
                        "condition": "!(thing in state.player.holding)",
                        "kind": "logic",
                        "hint": "You hold the {thing} already.",
                    },
                    {
                        "condition": "thing in state.inside.box",
                        "kind": "logic",
                        "hint": "The {thing} is not in the box.",
                    },
                ],
                "effects": [
                    {"op": "move", "from_path": "/inside/box", "path": "/player/holding", "value": "{thing}"},
                ],
                "reveals": "You hold the {thing}.",
            },
            {
                **SCRIPT.actions[2].model_dump(mode="json"),
                "requires": [
                    {"condition": "thing in state.player.holding", "kind": "logic", "hint": "You hold no {thing}."},
                ],
                "effects": [
                    {"op": "move", "from_path": "/player/holding", "path": "/inside/{place}", "value": "{thing}"},
                ],
                "reveals": "The {thing} lies on the {place}.",
            },
        ],
        "rulebook": {
            "goal": ["'key' in state.inside.bench"],
            "sights": [
                {"path": "/things"},
                {"path": "/player/holding"},
                {"path": "/inside/{each}", "each": "/things", "when": "state.things[each].open"},
            ],
            "solution": ["open box", "take key", "put key on bench"],
        },
    }
)
"""The same with a rulebook. The key is hidden until the box is open; there is neither a saw nor a window."""


def act(action: str, thought: str = "That should help.") -> PlayerTurn:
    return PlayerTurn(thought=thought, action=action)


def tell(observation: str, error: str | None = None, thought: str = "The box is there.") -> DungeonMasterTurn:
    return DungeonMasterTurn(
        thought=thought,
        observation=observation,
        parameter_error=error == "parameter",
        place_error=error == "place",
        logic_error=error == "logic",
    )


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
        assert isinstance(part, UserPromptPart | TextPart | SystemPromptPart), f"foreign part {part!r}"
        assert isinstance(part.content, str)
        role = "user" if isinstance(message, ModelRequest) else "assistant"
        turns.append(("system" if isinstance(part, SystemPromptPart) else role, part.content))
    return turns


PROMPTS = Prompts(
    examples=Examples(
        scripts=(SCRIPT,),
        trajectories=(Draft(script=SCRIPT, turns=(act("open box"), tell("It opens. Task Succeed"))),),
        grounded=(GROUNDED,),
    )
)
