"""Plays of a policy in worlds: token ids as they were drawn, which of them it drew, and how likely they were.

All plays are one batch whose keys and values are kept from turn to turn: to read each play anew for each of its turns
would be most of the time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from transformers import DynamicCache

from refinesynth.chat import Message, render_turns
from refinesynth.environments import GroundedEnvironment

MOST_TOKENS = 24
"""Of one turn; no right one is longer."""


@dataclass
class Rollout:
    """One play as a policy reads and writes it. Lists are of one length, a value for each token."""

    world: GroundedEnvironment
    ids: list[int] = field(default_factory=list[int])
    drawn: list[bool] = field(default_factory=list[bool])
    """Whether the policy wrote the token: then it gives loss, and else it is context."""
    logprobs: list[float] = field(default_factory=list[float])
    """Of each drawn token, when it was drawn; 0 for context."""

    def read(self, ids: Sequence[int]) -> None:
        """Context."""
        self.ids += ids
        self.drawn += [False] * len(ids)
        self.logprobs += [0.0] * len(ids)

    def write(self, token: int, logprob: float) -> None:
        """A token of the policy."""
        self.ids.append(token)
        self.drawn.append(True)
        self.logprobs.append(logprob)


def play(model: Any, tokenizer: Any, worlds: Sequence[GroundedEnvironment]) -> list[Rollout]:
    """Play each world to its end at temperature 1, from where its last play began.

    What was drawn stays as it was drawn: a turn is not read as text and made into other tokens before the next one.
    """
    rollouts, batch = [Rollout(world) for world in worlds], _Batch(model, len(worlds))
    for world in worlds:
        world.reset(before=world.before)
    told = [_asked(tokenizer, render_turns(world.script, world.before)) for world in worlds]
    while any(told):
        for one, ids in zip(rollouts, told, strict=True):
            one.read(ids)
        before = [len(one.ids) for one in rollouts]
        batch.write(rollouts, told, end=tokenizer.eos_token_id)
        told = [_answer(tokenizer, one, one.ids[at:]) for one, at in zip(rollouts, before, strict=True)]
    return rollouts


def _answer(tokenizer: Any, one: Rollout, turn: list[int]) -> list[int]:
    """What the policy reads after its turn; nothing where that was the last one, or it took none."""
    if one.world.done:
        return []
    observation = one.world.reply(tokenizer.decode(turn, skip_special_tokens=True))
    cut = [] if turn[-1] == tokenizer.eos_token_id else [tokenizer.eos_token_id]
    return [] if one.world.done else [*cut, *_asked(tokenizer, [Message("user", observation, loss=False)])]


def _asked(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """Messages before the policy's turn, and the header of its turn. The template writes each message by itself."""
    asked = [{"role": one.role, "content": one.content} for one in messages]
    return tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=True, return_dict=False)


class _Batch:
    """What a model has read of several plays, each in its own length."""

    def __init__(self, model: Any, plays: int) -> None:
        self._model = model
        self._cache = DynamicCache(config=model.config)
        self._seen = torch.zeros(plays, 0, dtype=torch.long)
        """(plays, slots of the cache): 1 where a slot holds a token of the play, 0 where it is padding."""

    def write(self, rollouts: Sequence[Rollout], told: Sequence[list[int]], *, end: int) -> None:
        """Read what each play was told, and draw its next turn up to the end-of-turn token; plays that were told nothing
        have ended."""
        likely, going = self._read(told), [bool(ids) for ids in told]
        for _ in range(MOST_TOKENS):
            tokens: list[int] = cast("Any", torch.multinomial(likely.exp(), 1)[:, 0]).tolist()
            for at, one in enumerate(rollouts):
                if going[at]:
                    one.write(tokens[at], float(likely[at, tokens[at]]))
            likely = self._read([[token] if on else [] for token, on in zip(tokens, going, strict=True)])
            going = [on and token != end for token, on in zip(tokens, going, strict=True)]
            if not any(going):
                break

    @torch.inference_mode()
    def _read(self, rows: Sequence[list[int]]) -> Any:
        """Log-probabilities of the token behind what is read: (plays, vocabulary), of no meaning where that is nothing."""
        counts = torch.tensor([len(row) for row in rows])
        longest = int(counts.max())
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        slots = torch.arange(longest)
        positions = self._seen.sum(1, keepdim=True) + slots
        self._seen = torch.cat([self._seen, (slots < counts[:, None]).long()], 1)
        given = {"attention_mask": self._seen, "position_ids": positions, "cache": self._cache}
        logits = self._model(input_ids=ids, use_cache=True, **given).logits
        return logits[torch.arange(len(rows)), (counts - 1).clamp(min=0)].log_softmax(-1)
