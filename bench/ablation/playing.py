"""Play held-out worlds with a model as the player and the rehearsal as the DungeonMaster: greedy, thirty actions."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from bench.ablation.speaking import ASSISTANT, END, USER
from bench.ablation.worlds import MOST_ACTIONS, answered, opening
from refinesynth.chat import parse_player, render_task
from refinesynth.rehearsal.memory import Past

_MOST_TOKENS = 64
"""Of one turn; the rehearsal's have about half of that."""


@dataclass
class Play:
    """One world being played."""

    name: str
    past: Past
    actions: int = 0
    refused: int = 0
    repeated: int = 0
    """Of the refused actions, those that had been refused before with nothing accepted in between."""
    progress: float = 0.0
    """The most that was reached, 0 to 1."""
    succeeded: bool = False
    said: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """What the model wrote and what came of it, to be looked at."""

    @classmethod
    def of(cls, name: str) -> "Play":
        """The world with this name, before the first action."""
        return cls(name, opening(name))

    @property
    def task(self) -> str:
        """The first user message."""
        return render_task(self.past.position.scene.script)

    @property
    def over(self) -> bool:
        return self.succeeded or self.actions >= MOST_ACTIONS

    def act(self, text: str) -> str:
        """What comes of a turn as the model wrote it; one without an action is itself taken for an action, and
        refused."""
        try:
            action = parse_player(text).action
        except ValueError:
            action = text
        before = self.past
        turn, self.past = answered(before, action)
        self.actions += 1
        self.refused += turn.flagged
        self.repeated += turn.flagged and action in before.wrong
        world = self.past.position.scene.world
        self.progress = max(self.progress, world.progress(self.past.position.state))
        self.succeeded = self.past.arrived
        self.said.append((text, turn.observation))
        return turn.observation


class Player:
    """A causal model that plays many worlds at once, each with its own context in one cache.

    Rows of different lengths share the cache: what a row has not said is masked, and its positions do not count it.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._user, self._assistant, self._end = (
            int(tokenizer.convert_tokens_to_ids(token)) for token in (USER, ASSISTANT, END)
        )

    @torch.inference_mode()
    def play(self, names: Sequence[str]) -> list[Play]:
        """All of these worlds, to their end."""
        plays = [Play.of(name) for name in names]
        context = _Context(self._model, len(plays))
        active: list[Play] = plays
        told = [play.task for play in plays]
        while active:
            context.read([self._heard(text) for text in told])
            written = self._write(context)
            told = [play.act(text) for play, text in zip(active, written, strict=True)]
            going = [at for at, play in enumerate(active) if not play.over]
            active, told = [active[at] for at in going], [told[at] for at in going]
            context.keep(going)
        return plays

    def _heard(self, text: str) -> list[int]:
        inner: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return [self._user, *inner, self._end, self._assistant]

    def _write(self, context: "_Context") -> list[str]:
        """One turn for each row; the end of the turn is read, too, if the model did not write it."""
        written: list[list[int]] = [[] for _ in range(context.rows)]
        writing = [True] * context.rows
        for at in range(_MOST_TOKENS):
            chosen = context.likeliest()
            last = at == _MOST_TOKENS - 1
            said = [
                [self._end if last else token] if open_ else [] for token, open_ in zip(chosen, writing, strict=True)
            ]
            for row, tokens in enumerate(said):
                written[row] += tokens
                writing[row] = writing[row] and tokens != [self._end]
            context.read(said)
            if not any(writing):
                break
        return [self._tokenizer.decode(tokens[:-1], skip_special_tokens=True) for tokens in written]


class _Context:
    """What each row has read so far: keys and values in buffers whose rows fill at their own pace.

    It is what the model takes for its cache, of which it asks `update` alone when positions and the whole mask are
    given.
    """

    def __init__(self, model: Any, rows: int) -> None:
        self._model = model
        self._device: torch.device = model.device
        self._lengths = torch.zeros(rows, dtype=torch.long, device=self._device)
        self._logits = torch.zeros(rows, model.config.vocab_size, device=self._device)
        self._buffers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """By layer, keys and values: (rows, heads, capacity, head size)."""
        self._slots = torch.zeros(rows, 0, dtype=torch.long, device=self._device)
        """(rows, width) Where the tokens that are being read go; the last place is for those that are none."""
        self._capacity = 0
        self._extent = 0

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self._lengths)

    def read(self, tokens: Sequence[Sequence[int]]) -> None:
        """Append these to each row; a row that gets none stays as it is."""
        width = max(map(len, tokens))
        ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in tokens], device=self._device)
        added = torch.tensor([len(row) for row in tokens], device=self._device)
        at = torch.arange(width, device=self._device)
        positions = self._lengths[:, None] + at
        self._extent = int((self._lengths + added).max())
        self._reserve(self._extent + 1)
        self._slots = torch.where(at < added[:, None], positions, self._capacity - 1)
        # A query sees what its row holds up to itself; one that is none sees whatever there is, which is nobody's
        # business.
        seen = torch.arange(self._extent, device=self._device) <= positions[:, :, None]
        mask = torch.where(seen[:, None], 0.0, torch.finfo(torch.float32).min).to(self._model.dtype)
        found = self._model.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=self, use_cache=True
        )
        last = found.last_hidden_state[torch.arange(self.rows, device=self._device), (added - 1).clamp(min=0)]
        self._logits = torch.where(added[:, None] > 0, self._model.lm_head(last).float(), self._logits)
        self._lengths = self._lengths + added

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What a layer attends to, once these (rows, heads, width, head size) are there too."""
        if layer not in self._buffers:
            shape = (keys.shape[0], keys.shape[1], self._capacity, keys.shape[3])
            self._buffers[layer] = keys.new_zeros(shape), values.new_zeros(shape)
        row = torch.arange(self.rows, device=self._device)[:, None]
        for buffer, new in zip(self._buffers[layer], (keys, values), strict=True):
            buffer[row, :, self._slots] = new.transpose(1, 2)
        held, told = self._buffers[layer]
        return held[:, :, : self._extent], told[:, :, : self._extent]

    def likeliest(self) -> list[int]:
        """The next token of each row."""
        return [int(token) for token in self._logits.argmax(-1)]

    def keep(self, rows: Sequence[int]) -> None:
        """Forget all other rows."""
        if len(rows) == self.rows:
            return
        index = torch.tensor(list(rows), dtype=torch.long, device=self._device)
        self._lengths, self._logits = self._lengths[index], self._logits[index]
        for layer, (keys, values) in self._buffers.items():
            self._buffers[layer] = keys[index], values[index]

    def _reserve(self, capacity: int) -> None:
        if capacity <= self._capacity:
            return
        room = max(capacity, 2 * self._capacity) - self._capacity
        self._capacity += room
        for layer, (keys, values) in self._buffers.items():
            spare = keys.new_zeros(*keys.shape[:2], room, keys.shape[3])
            self._buffers[layer] = torch.cat([keys, spare], dim=2), torch.cat([values, spare], dim=2)
