"""Chat of an episode in the form of training: thought and action as text, or the action as a native tool call.

For native tool calls of local models, the provider `local/` renders prompts that equal those of training to the token.
Inspect's own provider for transformers renders tools and calls in other forms (Qwen's as text, others without the
`function` object), on which no model was trained. It is used for the generation only.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, cast

import orjson
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    ChatMessageUser,
    Content,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    get_model,
    modelapi,
)
from inspect_ai.tool import ToolCall, ToolChoice, ToolInfo
from pydantic import BaseModel, ValidationError

from refinesynth.actions.calls import Call, call_of, text_of
from refinesynth.actions.patterns import pattern_of
from refinesynth.chat import parse_player, render_player, render_task, render_tool_task, render_tools, thinking_in
from refinesynth.client.tool_calls import repair_calls
from refinesynth.errors import InputError
from refinesynth.evaluate.environments.environment import Start
from refinesynth.files.settings_file import read_settings
from refinesynth.text.formatting import scrub
from refinesynth.text.thinking import split_thinking
from refinesynth.train.labelled_conversation import ToolCall as Called
from refinesynth.train.labelled_conversation import Turn
from refinesynth.train.render import Renderer
from refinesynth.train.training_folder import CONFIG, PLAN
from refinesynth.trajectory import ActionSpec, PlayerTurn, Script, explain


def script_of(start: Start) -> Script:
    """Script from which the first message and the functions are rendered, as in training."""
    actions = tuple(
        ActionSpec.model_validate({**vars(action), "pattern": action.pattern or pattern_of(action.name)})
        for action in start.actions
    )
    return Script(
        introduction=start.introduction, environment={}, goal=start.goal, completion_conditions=(), actions=actions
    )


class ReactForm:
    """Chat of one attempt, with thought and action as text."""

    def __init__(self, start: Start) -> None:
        self._script = script_of(start)
        self.tools: list[ToolInfo] = []
        """Functions that each request offers to the model."""

    def task(self) -> str:
        """The task, with which the first message begins."""
        return render_task(self._script)

    def message(self, turn: PlayerTurn) -> ChatMessageAssistant:
        """A turn as the player's message."""
        return ChatMessageAssistant(content=scrub(render_player(turn)))

    def read(self, message: ChatMessageAssistant) -> list[str]:
        """The actions of a player's message; raises ValueError without any, with a message for the model."""
        # The text may begin with the model's thinking, which may contain actions that it does not take.
        return [parse_player(split_thinking(message.text).text).action]

    def answers(
        self, message: ChatMessageAssistant, *texts: str, marks: Sequence[Mapping[str, Any]] = ({},)
    ) -> list[ChatMessage]:
        """Messages with the environment's replies to a player's message: one text per action, or one for all."""
        del message
        pairs = zip(texts, marks, strict=True)
        return [ChatMessageUser(content=scrub(text), metadata=dict(mark) or None) for text, mark in pairs]


class ToolForm(ReactForm):
    """Chat with actions as tool calls and thoughts as text, in the form of `chat.render_tool_turns`."""

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self._turn_number = 1 if start.observation else 0
        self.tools = [offered_tool(tool) for tool in render_tools(self._script)]

    def task(self) -> str:
        return render_tool_task(self._script)

    def message(self, turn: PlayerTurn) -> ChatMessageAssistant:
        name, arguments = call_of(self._script, scrub(turn.action))
        return ChatMessageAssistant(content=scrub(turn.thought), tool_calls=[ToolCall("", name, dict(arguments))])

    def read(self, message: ChatMessageAssistant) -> list[str]:
        if not message.tool_calls:
            raise ValueError("no function is called; call one function, which is your action")
        return [*map(self._action, message.tool_calls)]

    def _action(self, call: ToolCall) -> str:
        if call.parse_error is not None:
            raise ValueError(f"the call cannot be read: {call.parse_error}")
        if not (action := text_of(self._script, Call(call.function, call.arguments)).strip()):
            raise ValueError("the call says nothing; call one of the functions")
        return action

    def answers(
        self, message: ChatMessageAssistant, *texts: str, marks: Sequence[Mapping[str, Any]] = ({},)
    ) -> list[ChatMessage]:
        """Reply to each call. As in training, the id of a call has the number of its turn."""
        if not message.tool_calls:
            self._turn_number += 2
            return super().answers(message, *texts, marks=marks)
        if len(texts) == 1:
            texts, marks = texts * len(message.tool_calls), [*marks] * len(message.tool_calls)
        results: list[ChatMessage] = []
        for call, text, mark in zip(message.tool_calls, texts, marks, strict=True):
            call.id, name, self._turn_number = f"call{self._turn_number:05d}", call.function, self._turn_number + 2
            metadata = dict(mark) or None
            results.append(ChatMessageTool(content=scrub(text), tool_call_id=call.id, function=name, metadata=metadata))
        return results


class ParallelToolForm(ToolForm):
    """Chat with tool calls whose task allows several calls in a message."""

    def task(self) -> str:
        return render_tool_task(self._script, parallel=True)


FORMS = {"tools": ToolForm, "parallel_tools": ParallelToolForm}
"""Forms of native tool calls by name."""


LOCAL: Final = "local"
"""Name of the provider."""
_AS_IS: Final = "{{ messages[0]['content'] }}"
"""Chat template that returns a rendered prompt unchanged."""
_KEY_ORDER: Final = ("type", "minimum", "maximum", "enum", "default")
"""Order of the keys of a parameter's schema in training; chat templates copy it."""
_PROBE_TASK: Final = "Find the mug."
_PROBE: Final = ToolInfo.model_validate(
    {"name": "take", "description": "take {item}", "parameters": {"properties": {"item": {"type": "string"}}}}
)


class TrainedAs(BaseModel):
    """Settings of `refinesynth train` that prompts have to follow; the defaults are for models of other origin."""

    form: Literal["react", "tools", "parallel_tools"] = "react"
    thought_as: Literal["content", "reasoning", "omit"] = "content"

    @classmethod
    def of(cls, model: str) -> "TrainedAs":
        """Read the `train.yaml` of a folder; raises InputError if it cannot be read or has other values.

        The form is `parallel_tools` if most tasks of the training allowed several calls, by its plan.
        """
        path = Path(model) / CONFIG
        try:
            trained = cls.model_validate(read_settings(path)) if path.is_file() else cls()
        except ValidationError as error:
            raise InputError(f"{str(path)!r} is of another version: {explain(error)}; give --form react") from error
        with suppress(OSError, ValueError, LookupError, TypeError):  # no plan, or of an earlier version
            counts = orjson.loads((Path(model) / PLAN).read_bytes())["sizes"]["counts"]
            if trained.form == "tools" and 2 * counts["parallel_tasks"] > counts["conversations"]:
                return trained.model_copy(update={"form": "parallel_tools"})
        return trained


def offered_tool(function: Mapping[str, Any]) -> ToolInfo:
    """Inspect's form of a function of `chat.render_tools`, with its definition if Inspect's form loses a part of it."""
    tool = ToolInfo.model_validate(function["function"])
    if definition(tool) != function:
        tool.options = {"definition": dict(function)}
    return tool


def definition(tool: ToolInfo) -> dict[str, Any]:
    """Definition of a function in the form of `chat.render_tools`."""
    if isinstance(stored := (tool.options or {}).get("definition"), dict):
        return cast("dict[str, Any]", stored)
    parameters = tool.parameters.model_dump(exclude_none=True, exclude={"additionalProperties"})
    for name, schema in parameters["properties"].items():
        parameters["properties"][name] = {key: schema[key] for key in _KEY_ORDER if key in schema} | schema
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


def reasoning_of(message: ChatMessage) -> str:
    """Reasoning parts of a message, which are separate from its text."""
    parts = () if isinstance(message.content, str) else message.content
    return "\n\n".join(part.reasoning for part in parts if isinstance(part, ContentReasoning))


def turn_of(message: ChatMessage) -> Turn:
    """Convert a message to a turn of training, without a label."""
    calls = (message.tool_calls or ()) if message.role == "assistant" else ()
    tool_calls = tuple(Called(call.id, call.function, call.arguments) for call in calls)
    answers = (message.tool_call_id or "") if message.role == "tool" else ""
    return Turn(message.role, message.text, None, tool_calls, answers, reasoning_of(message))


def read_message(text: str, tools: Sequence[ToolInfo]) -> ChatMessageAssistant:
    """Parse a model's text into a message with reasoning and calls; text with an unreadable call stays text."""
    thinking, answer, form = thinking_in(scrub(text))
    read = repair_calls((), answer, {tool.name: tuple(tool.parameters.properties) for tool in tools}, unknown=True)
    arguments_of_calls = [orjson.loads(arguments) for _, arguments, _ in read.calls]
    calls = None
    if read.calls and read.is_clear and all(isinstance(item, dict) for item in arguments_of_calls):
        pairs = zip(read.calls, arguments_of_calls, strict=True)
        calls, answer = [ToolCall(f"call{n}0000", name, args) for n, ((name, *_), args) in enumerate(pairs)], read.text
    parts: list[Content] = [] if form is None else [ContentReasoning(reasoning=thinking)]
    return ChatMessageAssistant(content=[*parts, ContentText(text=answer.strip())], tool_calls=calls)


class Prompter:
    """Renderer of a local model's prompts, with its tokenizer and the settings of its training."""

    def __init__(self, tokenizer: Any, trained: TrainedAs) -> None:
        """Check the chat template; raises InputError if it renders no tools, or calls that cannot be read back."""
        self._renderer = Renderer(tokenizer, thought_as=trained.thought_as)
        call = Called("call00000", _PROBE.name, {"item": "mug"})
        history = [Turn("user", _PROBE_TASK, None)]
        prompt = self._renderer.prompt(history, [definition(_PROBE)])
        rendered = self._renderer.prompt(
            [*history, Turn("assistant", "It is there.", None, (call,))], [definition(_PROBE)]
        )
        # Inspect's provider decodes completions in the same way.
        ids = tokenizer(rendered.rpartition(_PROBE_TASK)[2], add_special_tokens=False)["input_ids"]
        parsed = read_message(tokenizer.decode(ids, skip_special_tokens=True), [_PROBE]).tool_calls or []
        has_tools = _PROBE.description in prompt
        if not has_tools or [(item.function, item.arguments) for item in parsed] != [call[1:]]:
            unsupported = "calls that cannot be read from the decoded text" if has_tools else "no tools"
            raise InputError(
                f"the chat template of this model writes {unsupported}; give --form react, or serve the model with a tool parser "
                "and give --model vllm/NAME"
            )

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolInfo]) -> str:
        """Render messages and tools as the prompt."""
        turns = [turn_of(message) for message in messages]
        functions = [definition(tool) for tool in tools]
        try:
            return self._renderer.prompt(turns, functions)
        except InputError:
            # The template cannot render the model's reasoning, which may have any form.
            return self._renderer.prompt([turn._replace(thinking="") for turn in turns], functions)


@modelapi(name=LOCAL)
class Local(ModelAPI):
    """Model of transformers. Arguments are those of Inspect's `hf/`, such as `model_path`."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        **settings: Any,
    ) -> None:
        """Open the model; raises InputError for a chat template without tools."""
        from transformers import AutoTokenizer

        config = config or GenerateConfig()
        super().__init__(model_name, base_url, api_key, [], config)
        path = str(settings.get("model_path") or model_name)
        tokenizer = cast("Any", AutoTokenizer).from_pretrained(settings.get("tokenizer_path") or path)
        self._prompter = Prompter(tokenizer, TrainedAs.of(path))
        # The template writes all special tokens of a prompt itself.
        overrides: dict[str, Any] = {"chat_template": _AS_IS, "tokenizer_call_args": {"add_special_tokens": False}}
        self._hf = get_model(f"hf/{model_name}", config=config, memoize=False, **{**settings, **overrides}).api

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002 - Inspect's own name
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """Generate a message from the prompt of training."""
        del tool_choice
        prompt = self._prompter.prompt(input, tools)
        output = cast("ModelOutput", await self._hf.generate([ChatMessageUser(content=prompt)], [], "none", config))
        output.choices[0].message = read_message(output.completion, tools)
        output.completion = output.choices[0].message.text
        return output
