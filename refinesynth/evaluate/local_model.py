"""Native tool calls of local models, as the provider `local/`: prompts are those of training, to the token.

Inspect's own provider for transformers writes tools and calls in forms of its own (Qwen's as text, others without the
`function` object), on which no model was trained. It is used for the generation alone.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, cast

import orjson
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
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

from refinesynth.chat import thinking_in
from refinesynth.client.tool_calls import settle
from refinesynth.errors import InputError
from refinesynth.files.settings_file import read_settings
from refinesynth.text.json_reader import scrub
from refinesynth.train.labelled_conversation import ToolCall as Called
from refinesynth.train.labelled_conversation import Turn
from refinesynth.train.render import Renderer
from refinesynth.train.training_folder import CONFIG, PLAN
from refinesynth.trajectory import explain

PROVIDER: Final = "local"
_AS_IS: Final = "{{ messages[0]['content'] }}"
"""Chat template for a prompt that is one already."""
_ORDER: Final = ("type", "minimum", "maximum", "enum", "default")
"""Keys of a parameter's schema in training, whose order templates copy."""
_TASK: Final = "Find the mug."
_PROBE: Final = ToolInfo.model_validate(
    {"name": "take", "description": "take {item}", "parameters": {"properties": {"item": {"type": "string"}}}}
)


class TrainedAs(BaseModel):
    """Settings of `refinesynth train` that a player has to keep to; the defaults are for models of other origin."""

    form: Literal["react", "tools", "parallel_tools"] = "react"
    thought_as: Literal["content", "reasoning", "omit"] = "content"

    @classmethod
    def of(cls, model: str) -> "TrainedAs":
        """Settings in the `train.yaml` of a folder; raises InputError if it cannot be read or has other values.

        The form is `parallel_tools` if most tasks of the training allowed several calls, by its plan.
        """
        path = Path(model) / CONFIG
        try:
            found = cls.model_validate(read_settings(path)) if path.is_file() else cls()
        except ValidationError as error:
            raise InputError(f"{str(path)!r} is of another version: {explain(error)}; give --form react") from error
        with suppress(OSError, ValueError, LookupError, TypeError):  # no plan, or of an earlier version
            counts = orjson.loads((Path(model) / PLAN).read_bytes())["sizes"]["counts"]
            if found.form == "tools" and 2 * counts["parallel_tasks"] > counts["conversations"]:
                return found.model_copy(update={"form": "parallel_tools"})
        return found


def offered_tool(function: Mapping[str, Any]) -> ToolInfo:
    """A function of `chat.render_tools` as Inspect has it, with the definition itself where Inspect's loses a part of it."""
    tool = ToolInfo.model_validate(function["function"])
    if definition(tool) != function:
        tool.options = {"definition": dict(function)}
    return tool


def definition(tool: ToolInfo) -> dict[str, Any]:
    """A function as `chat.render_tools` has it."""
    if isinstance(known := (tool.options or {}).get("definition"), dict):
        return cast("dict[str, Any]", known)
    given = tool.parameters.model_dump(exclude_none=True, exclude={"additionalProperties"})
    for name, schema in given["properties"].items():
        given["properties"][name] = {key: schema[key] for key in _ORDER if key in schema} | schema
    return {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": given}}


def reasoning_of(message: ChatMessage) -> str:
    """Thoughts that stand beside a message's text."""
    parts = () if isinstance(message.content, str) else message.content
    return "\n\n".join(one.reasoning for one in parts if isinstance(one, ContentReasoning))


def turn_of(message: ChatMessage) -> Turn:
    """A message as training has it, without a label."""
    calls = (message.tool_calls or ()) if message.role == "assistant" else ()
    called = tuple(Called(one.id, one.function, one.arguments) for one in calls)
    answers = (message.tool_call_id or "") if message.role == "tool" else ""
    return Turn(message.role, message.text, None, called, answers, reasoning_of(message))


def read_message(text: str, tools: Sequence[ToolInfo]) -> ChatMessageAssistant:
    """A model's text as a message with its thoughts and calls; what holds a call that cannot be read stays text."""
    thinking, said, form = thinking_in(scrub(text))
    found = settle((), said, {one.name: tuple(one.parameters.properties) for one in tools}, others=True)
    given = [orjson.loads(arguments) for _, arguments, _ in found.calls]
    calls = None
    if found.calls and found.clear and all(isinstance(one, dict) for one in given):
        named = zip(found.calls, given, strict=True)
        calls, said = [ToolCall(f"call{at}0000", name, one) for at, ((name, *_), one) in enumerate(named)], found.text
    parts: list[Content] = [] if form is None else [ContentReasoning(reasoning=thinking)]
    return ChatMessageAssistant(content=[*parts, ContentText(text=said.strip())], tool_calls=calls)


class Prompter:
    """Writer of a local model's prompts, with its tokenizer and the settings of its training."""

    def __init__(self, tokenizer: Any, trained: TrainedAs) -> None:
        """Raises InputError: The chat template writes no tools, or calls that cannot be read back."""
        self._renderer = Renderer(tokenizer, thought_as=trained.thought_as)
        call = Called("call00000", _PROBE.name, {"item": "mug"})
        before = [Turn("user", _TASK, None)]
        prompt = self._renderer.prompt(before, [definition(_PROBE)])
        whole = self._renderer.prompt([*before, Turn("assistant", "It is there.", None, (call,))], [definition(_PROBE)])
        # As Inspect's provider decodes an answer.
        ids = tokenizer(whole.rpartition(_TASK)[2], add_special_tokens=False)["input_ids"]
        read = read_message(tokenizer.decode(ids, skip_special_tokens=True), [_PROBE]).tool_calls or []
        writes = _PROBE.description in prompt
        if not writes or [(one.function, one.arguments) for one in read] != [call[1:]]:
            lacks = "calls that cannot be read from the decoded text" if writes else "no tools"
            raise InputError(
                f"the chat template of this model writes {lacks}; give --form react, or serve the model with a tool parser "
                "and give --model vllm/NAME"
            )

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolInfo]) -> str:
        """The text behind which the model answers."""
        turns = [turn_of(message) for message in messages]
        functions = [definition(tool) for tool in tools]
        try:
            return self._renderer.prompt(turns, functions)
        except InputError:
            # Thoughts in a form that the template has no place for: a model may write anything.
            return self._renderer.prompt([turn._replace(thinking="") for turn in turns], functions)


@modelapi(name=PROVIDER)
class Local(ModelAPI):
    """A model of transformers. Arguments are those of Inspect's `hf/`, among them `model_path`."""

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
        own: dict[str, Any] = {"chat_template": _AS_IS, "tokenizer_call_args": {"add_special_tokens": False}}
        self._hf = get_model(f"hf/{model_name}", config=config, memoize=False, **{**settings, **own}).api

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002 - Inspect's own name
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """Answer behind the prompt of training."""
        del tool_choice
        prompt = self._prompter.prompt(input, tools)
        output = cast("ModelOutput", await self._hf.generate([ChatMessageUser(content=prompt)], [], "none", config))
        output.choices[0].message = read_message(output.completion, tools)
        output.completion = output.choices[0].message.text
        return output
