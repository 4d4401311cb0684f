"""Plays of a model from many starts at once, in the words of training and evaluation.

Every step feeds each play one token: one that it was told, or the one that it wrote last. No play waits for the others'
turns, and behind the first message there is no padding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from refinesynth.chat import parse_player, render_turns
from refinesynth.environments import GroundedEnvironment
from refinesynth.evaluate.episode_counts import EpisodeStep, counts
from refinesynth.files.gguf import unpack_gguf
from refinesynth.trajectory import Draft, DungeonMasterTurn, PlayerTurn

MOST_ACTIONS = 15
"""Of a play; from a model's own mistake, behind it."""
MOST_TOKENS = 96
"""Of a turn; no right one is longer."""
STUCK = 4
"""Times in a row that the same action is refused, or that no action is written; then the play is over."""
_ROWS = {"cpu": 32, "cuda": 128}
"""Plays at once; 128 take about 6 GB of keys and values."""


class Play:
    """One play, as text, as tokens and in its world."""

    def __init__(self, start: Mapping[str, Any], tokenizer: Any, seed: int) -> None:
        draft = Draft.model_validate({"script": start["script"], "turns": start["before"]})
        before = [turn for turn in draft.turns if isinstance(turn, PlayerTurn | DungeonMasterTurn)]
        self.kind = str(start["kind"])
        self.script = draft.script
        self.world = GroundedEnvironment(draft.script, steps=MOST_ACTIONS)
        self.world.reset(before=before)
        self.messages = [{"role": one.role, "content": one.content} for one in render_turns(draft.script, before)]
        self.sampled = self.kind in {"own", "sampled"}
        """Of `own` until the model's first mistake; from there on it plays greedily, as from all other starts."""
        acted = [turn.action for turn in before if isinstance(turn, PlayerTurn)]
        self.moves: list[EpisodeStep] = [EpisodeStep(action, failed=True, in_history=True) for action in acted[-1:]]
        self.written = 0
        self._random = Random(f"{seed} {self.script.digest}")
        self._tokenizer = tokenizer
        self._text = self._rendered()
        self.told: list[int] = self._ids(self._text)
        """Tokens that it reads next."""
        self.turn: list[int] = []
        """Tokens of its turn so far."""

    @property
    def stuck(self) -> bool:
        last = [(move.action, move.failed) for move in self.moves[-STUCK:]]
        return len(last) == STUCK and last[0][1] and len(set(last)) == 1

    @property
    def over(self) -> bool:
        return self.world.done or self.stuck

    def choose(self, logits: torch.Tensor) -> int:
        """The next token, of logits of shape (vocabulary,); sampled at temperature 1 from its own draws."""
        if not self.sampled:
            return int(logits.argmax())
        shares = logits.float().softmax(-1).cumsum(-1)
        return min(int(torch.searchsorted(shares, self._random.random() * float(shares[-1]))), len(shares) - 1)

    def write(self, token: int) -> None:
        """Take a token of the model; its last one ends the turn, and the world answers."""
        if token != self._tokenizer.eos_token_id:
            self.turn.append(token)
            if len(self.turn) < MOST_TOKENS:
                self.told = [token]
                return
        self.written += len(self.turn)
        said = self._tokenizer.decode(self.turn, skip_special_tokens=True)
        # The token that ends the turn is not fed yet: it is the first one of what the template writes behind it.
        behind = len(self._text) + len(said)
        last = self.turn if token != self._tokenizer.eos_token_id else []
        self.messages += [{"role": "assistant", "content": said}, {"role": "user", "content": self._answer(said)}]
        self._text, self.turn = self._rendered(), []
        if self._text[behind - len(said) : behind] != said:
            raise RuntimeError("the chat template changes what a player wrote; such a model cannot be played here")
        self.told = [*last[-1:], *self._ids(self._text[behind:])]

    def _answer(self, said: str) -> str:
        before = self.world.mistakes
        observation = self.world.reply(said)
        try:
            action = parse_player(said).action
        except ValueError:
            action = ""
        self.moves.append(EpisodeStep(action, failed=self.world.mistakes > before))
        if self.kind == "own" and self.sampled and action and self.moves[-1].failed:
            self.sampled = False
            self.moves = [self.moves[-1]._replace(in_history=True)]
            self.world.steps = self.world.taken + MOST_ACTIONS
        return observation

    def _rendered(self) -> str:
        return self._tokenizer.apply_chat_template(self.messages, tokenize=False, add_generation_prompt=True)

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer(text, add_special_tokens=False).input_ids

    def outcome(self) -> dict[str, Any]:
        """Success, and the turns behind failures."""
        own = [(move.action, move.failed) for move in self.moves]
        found = counts(self.moves)
        return {
            "kind": self.kind,
            "world": self.script.digest[:12],
            "success": self.world.success,
            "progress": round(self.world.progress, 3),
            "erred": not self.sampled if self.kind == "own" else None,
            "at once": own[0][0] == own[1][0] if len(own) > 1 and self.moves[0].in_history else None,
            "stuck": self.stuck,
            "longest loop": max((len(list(same)) for (_, failed), same in groupby(own) if failed), default=0),
            "tokens": self.written,
            **{key: value for key, value in asdict(found).items() if key != "steps_to_recover"},
        }


def play(
    model: Path,
    starts: Sequence[Mapping[str, Any]],
    *,
    seed: int,
    device: str,
    dtype: torch.dtype = torch.bfloat16,
    rows: int | None = None,
) -> list[dict[str, Any]]:
    """Play from every start, so many at once; the outcomes in the order of the starts."""
    folder = unpack_gguf(str(model))
    tokenizer: Any = cast("Any", AutoTokenizer).from_pretrained(folder)
    # On a CPU the library's own attention copies keys and values for each head, which takes most of the time.
    attention = "eager" if device == "cpu" else "sdpa"
    loaded: Any = cast("Any", AutoModelForCausalLM).from_pretrained(folder, dtype=dtype, attn_implementation=attention)
    loaded = loaded.to(device).eval()
    plays = [Play(start, tokenizer, seed) for start in starts]
    by_length, rows = sorted(plays, key=lambda one: len(one.told)), rows or _ROWS[device]
    for at in range(0, len(plays), rows):
        _play(loaded, by_length[at : at + rows])
    return [one.outcome() for one in plays]


@torch.inference_mode()
def _play(model: Any, plays: list[Play]) -> None:
    cache, longest = DynamicCache(config=model.config), max(len(one.told) for one in plays)
    # Shape (plays, slots): 1 where a slot holds a token of the play. The first messages are padded at their beginning.
    held = torch.tensor([[0] * (longest - len(one.told)) + [1] * len(one.told) for one in plays], device=model.device)
    fed = torch.tensor([[0] * (longest - len(one.told)) + one.told for one in plays], device=model.device)
    positions = (held.cumsum(1) - 1).clamp(min=0)
    for one in plays:
        one.told = []
    while plays:
        given = {"input_ids": fed, "attention_mask": held, "position_ids": positions, "cache": cache}
        logits = model(**given, use_cache=True, logits_to_keep=1).logits[:, -1]
        best: list[int] = logits.argmax(-1).tolist()
        for at, one in enumerate(plays):
            if not one.told:
                one.write(one.choose(logits[at]) if one.sampled else best[at])
        going = [at for at, one in enumerate(plays) if not one.over]
        if len(going) < len(plays):
            rows = torch.tensor(going, device=model.device, dtype=torch.long)
            plays, held, positions = [plays[at] for at in going], held[rows], positions[rows]
            if plays:
                cache.batch_select_indices(rows)
        fed = torch.tensor([[one.told.pop(0)] for one in plays], device=model.device)
        held = torch.cat([held, torch.ones_like(held[:, :1])], 1)
        positions = positions[:, -1:] + 1
