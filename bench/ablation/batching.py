"""A tiny local model as a model of Inspect: whoever waits is answered in one batch, at once.

Inspect's own provider waits two seconds for more before each batch that is not full, and looks for an answer once a
second; with models that take milliseconds, that is nearly all of the time.
"""

from asyncio import Future, get_running_loop
from pathlib import Path
from typing import Any, cast

import anyio
import torch
from inspect_ai.model import ChatMessage, GenerateConfig, ModelAPI, ModelOutput, ModelUsage, modelapi
from inspect_ai.tool import ToolChoice, ToolInfo

NAME = "tiny"
"""Of the provider: `tiny/FOLDER`."""

_PAUSE = 0.02
"""Seconds without another request after which those that wait are a batch."""


class Tiny(ModelAPI):
    """Generates for all that wait, until each has ended its turn."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        **_: Any,
    ) -> None:
        """`model_name` is the folder."""
        from transformers import AutoModelForCausalLM, AutoTokenizer

        super().__init__(model_name, base_url, api_key, config=config or GenerateConfig())
        folder = Path(model_name)
        self.tokenizer: Any = cast("Any", AutoTokenizer).from_pretrained(folder)
        self.tokenizer.padding_side = "left"
        self.model: Any = cast("Any", AutoModelForCausalLM).from_pretrained(folder)
        self._waiting: list[tuple[str, Future[str]]] = []

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
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        future: Future[str] = get_running_loop().create_future()
        self._waiting.append((text, future))
        mine = len(self._waiting)
        while mine == 1 and not future.done():
            # The first one generates for those that came since, when no more come.
            known = len(self._waiting)
            await anyio.sleep(_PAUSE)
            if len(self._waiting) == known:
                batch, self._waiting = self._waiting, []
                self._answer(batch, config)
        said = await future
        output = ModelOutput.from_content(self.model_name, said)
        output.usage = ModelUsage(
            input_tokens=1, output_tokens=1
        )  # Else Inspect counts with a vocabulary that it fetches.
        return output

    @torch.inference_mode()
    def _answer(self, batch: list[tuple[str, "Future[str]"]], config: GenerateConfig) -> None:
        given = self.tokenizer([text for text, _ in batch], return_tensors="pt", padding=True, add_special_tokens=False)
        written = self.model.generate(
            input_ids=given.input_ids,
            attention_mask=given.attention_mask,
            max_new_tokens=config.max_tokens,
            do_sample=bool(config.temperature),
            temperature=config.temperature or None,
            top_k=0 if config.temperature else None,
        )
        ends = given.input_ids.shape[1]
        for row, (_, future) in zip(written, batch, strict=True):
            future.set_result(self.tokenizer.decode(row[ends:], skip_special_tokens=True))


@modelapi(name=NAME)
def tiny() -> type[ModelAPI]:
    """For `get_model("tiny/FOLDER")`."""
    return Tiny
