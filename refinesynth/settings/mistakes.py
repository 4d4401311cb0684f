"""Policy of mistakes: when the Player is privately asked for one, of which kind, and how it is to be repaired.

Natural mistakes teach most, but a strong player makes few; requested ones fill the gap. Only the DungeonMaster's flag
makes an action a mistake, and a request never enters the record.
"""

from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b
from random import Random
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field, model_validator

from refinesynth.trajectory import DungeonMasterTurn, MalformedTurn, MistakeKind, PlayerTurn, known_exchanges

_KINDS = tuple(MistakeKind)
_DETOUR = 1.4
"""Right actions per action of the shortest remaining way, in plays of strong models and of the rehearsal."""
_START_RATE, _RATE_RISE = 0.5, 0.7
"""Likelihood of a mistake at the beginning of a play, relative to an even draw, and its increase until the end: the
last turn reaches the goal, and natural mistakes, which count, come early."""
_KIND_CYCLE = (MistakeKind.PLACE, MistakeKind.LOGIC, MistakeKind.PLACE, MistakeKind.LOGIC, MistakeKind.PARAMETER)
_PROMPTED_TURNS = (1, 4)
"""Default player turns on which `prompted` asks."""

MAX_MISTAKES = 4
"""Mistakes that `spread` asks for in one trajectory, without those of a second try."""

RepairStyle = Literal["fresh", "again", "late", "give_up"]
"""`fresh`: a mistake. The others follow one: `again` is a second try that fails for another reason; `late` is a
working action that repairs nothing yet, so the mistake is understood a turn later; `give_up` leaves a wrong plan for
a reason."""

_LONG_REPAIRS: tuple[RepairStyle, ...] = ("again", "late", "give_up")


class MistakeRequest(NamedTuple):
    """Private request to the Player for its next turn."""

    kind: MistakeKind
    """Kind of the requested mistake; for `late` and `give_up`, of the one that was made."""
    style: RepairStyle = "fresh"


class Mistakes(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """A policy: a pure, deterministic function of the turns so far, the episode's index and seed, and the attempt.

    No policy asks for a fresh mistake before an action was accepted after the last one. Kinds are balanced over a run:
    their order rotates with the episode's index.
    """

    policy: Literal["spread", "natural", "prompted", "at_least"] = "spread"
    """`spread` distributes mistakes evenly over the whole play, in varying numbers; `at_least` is the paper's way."""
    mean: float = Field(default=2.0, ge=1, le=MAX_MISTAKES)
    """For `spread`: mean number of mistakes in plays (of `expected` actions, if the length is unknown) with any: 1
    to 4."""
    clean: float = Field(default=0.2, ge=0, le=1)
    """For `spread`: share of the trajectories in which no mistake is asked for."""
    chains: float = Field(default=0.3, ge=0, le=1)
    """For `spread`: share of the mistakes with a longer repair, see `RepairStyle`; each way is equally frequent."""
    expected: int = Field(default=8, ge=1)
    """For `spread`: expected right actions of a play whose length is unknown. A play twice as long has twice as many
    mistakes."""
    minimum: int = Field(default=2, ge=0)
    """For `at_least`: mistakes of a trajectory, natural ones included. Narrated play asks its Narrator for as many
    under every policy but `spread`."""
    turns: tuple[int, ...] = ()
    """For `prompted`: the player's turns, counted from 0, on which to ask. One on the repair of a mistake is put off
    to the turn after it; turn 0 to turn 1."""

    @model_validator(mode="before")
    @classmethod
    def _parse_text(cls, value: Any) -> Any:
        return _parse_policy(value) if isinstance(value, str) else value

    def ask(
        self,
        turns: Sequence[PlayerTurn | DungeonMasterTurn | MalformedTurn],
        *,
        episode: int,
        attempt: int = 1,
        seed: int = 0,
        length: int | None = None,
        remaining: Callable[[], int] | None = None,
        kinds: Callable[[], Collection[MistakeKind]] = lambda: _KINDS,
    ) -> MistakeRequest | None:
        """Return the request to the Player for its next turn, if any.

        Args:
            turns: Turns so far, with or without an opening observation.
            episode: Index of the episode in the run.
            attempt: From the second on, `at_least` asks at the first chance, without waiting for natural mistakes.
            seed: Seed of the episode.
            length: Right actions of the play, if they are known; `spread` then draws all turns alike. By default
                `expected`, with later turns likelier, since the play may end before them.
            remaining: Returns the right actions left to the goal, in an executed world. `spread` then distributes its
                mistakes evenly over them, and asks for none before the last action.
            kinds: Returns the possible kinds of mistakes, to which `spread` is limited.
        """
        # The kind of mistake of each answered player's turn, None for accepted ones.
        verdicts = [answer.mistake_kind for _, answer in known_exchanges(turns)]
        if self.policy == "spread":
            return self._spread(verdicts, episode=episode, seed=seed, length=length, remaining=remaining, kinds=kinds)
        turn_count = len(verdicts)
        if self.policy == "natural" or turn_count == 0 or verdicts[-1] is not None:
            return None
        if self.policy == "prompted":
            return None if _due(verdicts).isdisjoint(self.turns) else MistakeRequest(_order(verdicts, episode)[0])
        mistake_count = sum(kind is not None for kind in verdicts)
        # 0 or 1 more accepted turns before asking, so mistakes fall on different turns in different episodes.
        pause = blake2b(f"{episode}/{mistake_count}".encode(), digest_size=1).digest()[0] & 1
        overdue = _accepted_in_a_row(verdicts) - 1 - (pause if attempt == 1 else 0)
        if mistake_count >= self.minimum or overdue < 0:
            return None
        # A kind that did not come about, perhaps because this world cannot go wrong in that way, gives way to the next.
        return MistakeRequest(_order(verdicts, episode)[overdue % len(_KINDS)])

    def count(self, *, episode: int, seed: int) -> int:
        """Return the number of mistakes of a play (of `expected` actions, if its length is unknown): 0 in clean ones,
        else 1 to 4.

        For other policies `minimum`, for narrated play's Narrator.
        """
        if self.policy != "spread":
            return self.minimum
        rng = _make_rng(seed, episode, "count")
        if rng.random() < self.clean:
            return 0
        return 1 + sum(rng.random() < (self.mean - 1) / (MAX_MISTAKES - 1) for _ in range(MAX_MISTAKES - 1))

    def _spread(
        self,
        verdicts: Sequence[MistakeKind | None],
        *,
        episode: int,
        seed: int,
        length: int | None,
        remaining: Callable[[], int] | None,
        kinds: Callable[[], Collection[MistakeKind]],
    ) -> MistakeRequest | None:
        """Ask before right actions that are drawn evenly, and from then on until a mistake is made; where the remaining
        actions are known, each turn draws anew.
        """
        # Positions of mistakes that do not follow another.
        positions = [k for k, kind in enumerate(verdicts) if kind is not None and (k == 0 or verdicts[k - 1] is None)]
        accepted = _accepted_in_a_row(verdicts)
        rng = _make_rng(seed, episode, f"repair {len(positions)}")
        # `fresh` for a repair at once.
        style = rng.choice(_LONG_REPAIRS) if positions and rng.random() < self.chains else "fresh"
        if positions and accepted == 0:
            first, *later = verdicts[positions[-1] :]
            return None if first is None or later else _long_repair(style, first, _order(verdicts, episode), kinds)
        if positions and accepted == 1 and style == "late":
            return None
        steps, number = sum(kind is None for kind in verdicts), episode + len(positions)
        if remaining is None:
            slots = self._slots(steps, episode, seed, length)
            if len(positions) >= min(len(slots), MAX_MISTAKES):
                return None
            number += steps - slots[len(positions)]
        else:
            missing = self.count(episode=episode, seed=seed) - len(positions)
            if missing <= 0 or (distance := remaining()) <= 1:
                return None
            chance = (_START_RATE + _RATE_RISE * steps / (steps + distance)) * missing / (_DETOUR * (distance - 1))
            if _make_rng(seed, episode, "at", steps).random() >= chance:
                return None
        # At the beginning nothing is known of other places.
        return _fresh_mistake(number, {*kinds()} if verdicts else {*kinds()} - {MistakeKind.PLACE})

    def _slots(self, steps: int, episode: int, seed: int, length: int | None) -> list[int]:
        """Return the right actions, by number, before which a mistake stands."""
        span = length or self.expected
        count = min(self.count(episode=episode, seed=seed), span)
        slots: list[int] = []
        for start in range(0, steps + 1, span):
            rng = _make_rng(seed, episode, start)
            if length is not None:
                slots += sorted(rng.sample(range(start, start + span), count))
                continue
            # A weighted draw without replacement, after Efraimidis and Spirakis.
            weights = {start + offset: rng.random() ** (1 / (1 + offset)) for offset in range(span)}
            slots += sorted(sorted(weights, key=weights.__getitem__)[span - count :])
        return [slot for slot in slots if slot <= steps]


def _parse_policy(text: str) -> dict[str, Any]:
    """Return the fields of `spread`, `spread=2`, `natural`, `prompted`, `prompted=1,4` (player turns from 0) or
    `at_least=2`.
    """
    policy, _, numbers = text.strip().casefold().replace("-", "_").partition("=")
    parts = [number.strip() for number in numbers.split(",")] if numbers else []
    values = [int(part) if part.isdecimal() else -1 for part in parts]
    is_single = min(values, default=0) >= 0 and len(values) <= 1
    if policy == "spread" and is_single and all(1 <= mean <= MAX_MISTAKES for mean in values):
        return {"policy": policy, **({"mean": values[0]} if values else {})}
    if policy == "natural" and not values:
        return {"policy": policy}
    if policy == "prompted" and min(values, default=0) >= 0:
        return {"policy": policy, "turns": tuple(values) or _PROMPTED_TURNS}
    if policy == "at_least" and is_single:
        return {"policy": policy, **({"minimum": values[0]} if values else {})}
    raise ValueError(
        f"expected one of: spread, spread=2 (1 to {MAX_MISTAKES} mistakes on average), natural, prompted, prompted=1,4 (player turns, from 0), at_least=2"
    )


def spread(mean: float = 2.0, *, clean: float = 0.2, chains: float = 0.3) -> Mistakes:
    """The default: evenly over beginning, middle and end, with this mean; a share of the trajectories stays clean, and
    a share of the mistakes is repaired in several turns.
    """
    return Mistakes(policy="spread", mean=mean, clean=clean, chains=chains)


def natural() -> Mistakes:
    """Only the player model's own mistakes."""
    return Mistakes(policy="natural")


def prompted(*turns: int) -> Mistakes:
    """Ask on these turns of the player, counted from 0; by default on turns 1 and 4."""
    return Mistakes(policy="prompted", turns=turns or _PROMPTED_TURNS)


def at_least(minimum: int = 2) -> Mistakes:
    """Ask only if natural mistakes do not reach `minimum`, and accept no trajectory with fewer: the paper's way."""
    return Mistakes(policy="at_least", minimum=minimum)


def _accepted_in_a_row(verdicts: Sequence[MistakeKind | None]) -> int:
    """Return the player's accepted turns since the last mistake, or since the start."""
    return next((index for index, kind in enumerate(reversed(verdicts)) if kind is not None), len(verdicts))


def _due(verdicts: Sequence[MistakeKind | None]) -> set[int]:
    """Return the next turn, and the turns before it on which asking was not allowed."""
    turn = len(verdicts)
    due = {turn}
    while turn > 1 and verdicts[turn - 2] is not None:
        turn -= 1
        due.add(turn)
    return due | {0} if turn == 1 else due


def _order(verdicts: Sequence[MistakeKind | None], episode: int) -> list[MistakeKind]:
    """Return the kinds, those least made in this episode first; the run's rotation decides among equals."""
    start = episode % len(_KINDS)
    rotation = [*_KINDS[start:], *_KINDS[:start]]
    if episode // len(_KINDS) % 2:
        rotation = [rotation[0], *reversed(rotation[1:])]
    return sorted(rotation, key=verdicts.count)


def _long_repair(
    style: RepairStyle, first: MistakeKind, order: Sequence[MistakeKind], kinds: Callable[[], Collection[MistakeKind]]
) -> MistakeRequest | None:
    """Return a request for a longer repair, if any: a slip of form is understood at once, and is no plan."""
    if style == "again":
        other_kinds = {*kinds()} - {first}
        return next((MistakeRequest(kind, style) for kind in order if kind in other_kinds), None)
    return None if style == "fresh" or first is MistakeKind.PARAMETER else MistakeRequest(first, style)


def _fresh_mistake(number: int, kinds: Collection[MistakeKind]) -> MistakeRequest | None:
    """Return the fresh mistake with this number, of a possible kind; one in five is of form, which teaches least."""
    candidates = (_KIND_CYCLE[number % len(_KIND_CYCLE)], MistakeKind.PLACE, MistakeKind.LOGIC)
    return next((MistakeRequest(kind) for kind in candidates if kind in kinds), None)


def _make_rng(*names: object) -> Random:
    return Random(int.from_bytes(blake2b("/".join(map(str, names)).encode(), digest_size=8).digest()))
