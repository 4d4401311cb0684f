"""A tiny local model as a model of Inspect, see `Generating`.

Inspect's own provider waits two seconds for more before each batch that is not full, and looks for an answer once a
second; with models that take milliseconds, that is nearly all of the time.
"""

from pathlib import Path
from typing import Any

from inspect_ai.model import ChatMessage, GenerateConfig, ModelAPI, ModelOutput, ModelUsage, modelapi
from inspect_ai.tool import ToolChoice, ToolInfo

from bench.ablation.generating import Generating

NAME = "tiny"
"""Of the provider: `tiny/FOLDER`."""


class Tiny(ModelAPI):
    """Answers in batches."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        **_: Any,
    ) -> None:
        """`model_name` is the folder."""
        super().__init__(model_name, base_url, api_key, config=config or GenerateConfig())
        self._model = Generating(Path(model_name))

    def max_connections(self) -> int:
        """More than there are worlds: the batch is all of them."""
        return 10_000

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """One turn. Greedy where the temperature is 0."""
        del tools, tool_choice
        messages = [{"role": message.role, "content": message.text} for message in input]
        said = await self._model.say(messages, temperature=config.temperature or 0.0, most=config.max_tokens or 1)
        output = ModelOutput.from_content(self.model_name, said)
        output.usage = ModelUsage(
            input_tokens=1, output_tokens=1
        )  # Else Inspect counts with a vocabulary that it fetches.
        return output


@modelapi(name=NAME)
def tiny() -> type[ModelAPI]:
    """For `get_model("tiny/FOLDER")`."""
    return Tiny
