"""The base model of a seed: pretrained on clean play until it looks things up.

A plain loop instead of `Trainer`: it draws its data as it goes, without end, and stops by what the model can do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, cast

import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from bench.ablation.speaking import ASSISTANT, END, USER, save_untrained, trained_tokenizer
from refinesynth.chat import Message, to_messages
from refinesynth.settings.mistakes import Mistakes, spread
from refinesynth.trajectory import Trajectory

ENOUGH = 0.95
"""Share of clean plays in which all is looked up right, at which pretraining ends."""

_HELD_OUT = 128
"""Plays that are looked at."""
_EVERY = 100
"""Steps between looks."""
_BATCH, _RATE, _WARMUP = 16, 2e-3, 50
WIDTH, LAYERS = 96, 3


Draw = Callable[[str, Mistakes | None, int], Trajectory]
"""The play with this name and episode number, clean with None."""


@dataclass(frozen=True)
class Base:
    """What came of a pretraining."""

    folder: Path
    look_up: float
    """Share of held-out clean plays that are right, see `looked_up`."""
    steps: int


def pretrained(
    folder: Path,
    draw: Draw,
    names: Sequence[str],
    *,
    seed: int,
    most: int,
    falls_after: int | None = None,
    sentences: Sequence[str] = (),
) -> Base:
    """Train from random weights until 95 % of clean plays are right, at most so many steps, and save.

    The learning rate stays, or falls with the root of the steps after so many. The tokenizer is the same for all seeds: of the words of plays, clean ones and others, of these names and sentences.
    """
    torch.set_num_threads(1)
    plays = (draw(f"words {at}", spread(), at) for at in range(300))
    texts = (message.content for one in plays for message in to_messages(one))
    tokenizer = trained_tokenizer(chain(texts, sentences), names=names)
    save_untrained(tokenizer, folder, seed=seed, width=WIDTH, layers=LAYERS)
    model: Any = cast("Any", AutoModelForCausalLM).from_pretrained(folder)
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    numbers, right, step = count(), 0.0, 0
    while right < ENOUGH and step < most:
        step += 1
        fallen = 1.0 if falls_after is None else min(1.0, (falls_after / step) ** 0.5)
        optimizer.param_groups[0]["lr"] = _RATE * min(1.0, step / _WARMUP) * fallen
        ids, trained = _batch(tokenizer, [_clean(draw, f"seed {seed} base {next(numbers)}") for _ in range(_BATCH)])
        logits = model(input_ids=ids).logits[:, :-1]
        losses = cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        weights = trained[:, 1:].flatten()
        loss: Any = (losses * weights).sum() / weights.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % _EVERY == 0:
            right = looked_up(model, tokenizer, draw)
    model.save_pretrained(folder)
    return Base(folder, right, step)


def _clean(draw: Draw, name: str) -> list[Message]:
    return to_messages(draw(name, None, 0))


def _batch(tokenizer: Any, plays: list[list[Message]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids, padded at the end, and 1.0 where a token gives loss; both of shape (plays, tokens)."""
    rows = [_tokens(tokenizer, messages) for messages in plays]
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([row + [0] * (longest - len(row)) for row, _ in rows])
    trained = torch.tensor([row + [0.0] * (longest - len(row)) for _, row in rows])
    return ids, trained


def _tokens(tokenizer: Any, messages: list[Message]) -> tuple[list[int], list[float]]:
    ids: list[int] = []
    trained: list[float] = []
    for message in messages:
        head = tokenizer.convert_tokens_to_ids(ASSISTANT if message.role == "assistant" else USER)
        body = tokenizer(f"{message.content}{END}", add_special_tokens=False).input_ids
        ids += [head, *body]
        trained += [0.0, *[float(message.loss)] * len(body)]
    return ids, trained


@torch.inference_mode()
def looked_up(model: Any, tokenizer: Any, draw: Draw) -> float:
    """Share of held-out clean plays of which every token of every turn would be written as it is, greedily: that takes
    looking up where the thing is, and what each verb is called here.
    """
    ids, trained = _batch(tokenizer, [_clean(draw, f"look up {at}") for at in range(_HELD_OUT)])
    right = model(input_ids=ids).logits[:, :-1].argmax(-1) == ids[:, 1:]
    return float((right | (trained[:, 1:] == 0)).all(1).float().mean())
