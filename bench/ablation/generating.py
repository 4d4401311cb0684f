"""A tiny local model that whoever waits is answered by in one batch, at once."""

from asyncio import Future, get_running_loop
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import torch

_PAUSE = 0.02
"""Seconds without another request after which those that wait are a batch."""


class Generating:
    """Generates for all that wait, until each has ended its turn."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer: Any = cast("Any", AutoTokenizer).from_pretrained(folder)
        self.tokenizer.padding_side = "left"
        self.model: Any = cast("Any", AutoModelForCausalLM).from_pretrained(folder)
        self._waiting: list[tuple[str, Future[str]]] = []

    async def say(self, messages: Sequence[Mapping[str, str]], *, temperature: float, most: int) -> str:
        """The next turn, of at most so many tokens; greedy where the temperature is 0."""
        text = self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        future: Future[str] = get_running_loop().create_future()
        self._waiting.append((text, future))
        mine = len(self._waiting)
        while mine == 1 and not future.done():
            # The first one generates for those that came since, when no more come.
            known = len(self._waiting)
            await anyio.sleep(_PAUSE)
            if len(self._waiting) == known:
                batch, self._waiting = self._waiting, []
                self._answer(batch, temperature=temperature, most=most)
        return await future

    @torch.inference_mode()
    def _answer(self, batch: "list[tuple[str, Future[str]]]", *, temperature: float, most: int) -> None:
        given = self.tokenizer([text for text, _ in batch], return_tensors="pt", padding=True, add_special_tokens=False)
        written = self.model.generate(
            input_ids=given.input_ids,
            attention_mask=given.attention_mask,
            max_new_tokens=most,
            do_sample=bool(temperature),
            temperature=temperature or None,
            top_k=0 if temperature else None,
        )
        ends = given.input_ids.shape[1]
        for row, (_, future) in zip(written, batch, strict=True):
            if not future.done():
                future.set_result(self.tokenizer.decode(row[ends:], skip_special_tokens=True))
