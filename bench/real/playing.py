"""Plays of a model from many starts at once, in the words of training and evaluation.

What the plays of a world have in common is read once. Then every step feeds each play one token: one that it was told,
or the one that it wrote last. No play waits for the others' turns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from os.path import commonprefix
from pathlib import Path
from random import Random
from typing import Any, cast

import torch
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM, AutoTokenizer, masking_utils
from transformers.cache_utils import Cache, DynamicLayer

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
_SPARE = 128
"""Tokens for which keys and values get room in advance."""


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
    dtype: torch.dtype | None = None,
    rows: int | None = None,
) -> list[dict[str, Any]]:
    """Play from every start, so many at once; the outcomes in the order of the starts.

    By default in bf16 on a GPU and in fp32 on a CPU: few of them compute in bf16, and on the others it takes thrice as long.
    """
    dtype = dtype or (torch.float32 if device == "cpu" else torch.bfloat16)
    folder = unpack_gguf(str(model))
    tokenizer: Any = cast("Any", AutoTokenizer).from_pretrained(folder)
    # On a CPU the library's own attention copies keys and values for each head, which takes most of the time.
    attention = "grouped" if device == "cpu" else "sdpa"
    loaded: Any = cast("Any", AutoModelForCausalLM).from_pretrained(folder, dtype=dtype, attn_implementation=attention)
    loaded = loaded.to(device).eval()
    plays = [Play(start, tokenizer, seed) for start in starts]
    length = {one.script.digest: 0 for one in plays}
    for one in plays:
        length[one.script.digest] = max(length[one.script.digest], len(one.told))
    by_length = sorted(plays, key=lambda one: (length[one.script.digest], one.script.digest))
    rows = rows or _ROWS[device]
    for at in range(0, len(plays), rows):
        _play(loaded, by_length[at : at + rows])
    return [one.outcome() for one in plays]


@torch.inference_mode()
def _play(model: Any, plays: list[Play]) -> None:
    """Play all of them at once. What the plays of a world begin with is read once."""
    worlds = [list(same) for _, same in groupby(plays, key=lambda one: one.script.digest)]
    begins = [list(commonprefix([one.told[:-1] for one in same])) for same in worlds]  # noqa: RUF071 - tokens are compared
    longest = max(map(len, begins))
    # Shape (plays, slots): 1 where a slot holds a token of the play. The common beginnings are padded on the left.
    held = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in begins], device=model.device)
    fed = torch.tensor([[0] * (longest - len(one)) + one for one in begins], device=model.device)
    positions = (held.cumsum(1) - 1).clamp(min=0)
    cache = Cache(layers=[_GrowingLayer() for _ in range(model.config.num_hidden_layers)])
    model(input_ids=fed, attention_mask=held, position_ids=positions, cache=cache, use_cache=True, logits_to_keep=1)
    rows = [at for at, same in enumerate(worlds) for _ in same]
    for at, one in zip(rows, plays, strict=True):
        del one.told[: len(begins[at])]
    while plays:
        chosen = torch.tensor(rows, device=model.device)
        if rows != list(range(len(held))):
            cache.batch_select_indices(chosen)
        fed = torch.tensor([[one.told.pop(0)] for one in plays], device=model.device)
        held = torch.cat([held[chosen], torch.ones_like(fed)], 1)
        positions = positions[chosen, -1:] + 1
        given = {"input_ids": fed, "attention_mask": held, "position_ids": positions, "cache": cache}
        logits = model(**given, use_cache=True, logits_to_keep=1).logits[:, -1]
        best: list[int] = logits.argmax(-1).tolist()
        for at, one in enumerate(plays):
            if not one.told:
                one.write(one.choose(logits[at]) if one.sampled else best[at])
        rows = [at for at, one in enumerate(plays) if not one.over]
        plays = [plays[at] for at in rows]


class _GrowingLayer(DynamicLayer):
    """Keys and values with room for the next tokens: `DynamicLayer` copies all of them for each token."""

    _room: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> Any:
        """Append states of shape (plays, heads, tokens, width), and return all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        begin = self.get_seq_length()
        end = begin + key_states.shape[-2]
        if self._room is None or end > self._room[0].shape[-2]:
            rows, heads, width = *key_states.shape[:2], key_states.shape[-1]
            room = key_states.new_empty(2, rows, heads, end + _SPARE, width)
            self._room = room[0], room[1]
            if self.keys is not None and self.values is not None and begin:
                self._room[0][:, :, :begin], self._room[1][:, :, :begin] = self.keys, self.values
        self._room[0][:, :, begin:end], self._room[1][:, :, begin:end] = key_states, value_states
        self.keys, self.values = self._room[0][:, :, :end], self._room[1][:, :, :end]
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        super().batch_select_indices(indices)
        self._room = None


def _grouped_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention in which the heads of a group share keys and values without copies of them; query is of shape
    (plays, heads, tokens, width).
    """
    del module
    plays, heads, tokens, width = query.shape
    groups = key.shape[1]
    packed = (query * scaling).reshape(plays, groups, heads // groups * tokens, width)
    scores = (packed @ key.transpose(-1, -2)).view(plays, groups, heads // groups, tokens, -1)
    if attention_mask is not None:
        scores = scores + attention_mask[:, :, None]
    shares = scores.softmax(-1, dtype=torch.float32).to(value.dtype).view(plays, groups, -1, key.shape[2])
    return (shares @ value).view(plays, heads, tokens, width).transpose(1, 2).contiguous(), None


cast("Any", AttentionInterface).register("grouped", _grouped_attention)
cast("Any", AttentionMaskInterface).register("grouped", cast("Any", masking_utils).eager_mask)
