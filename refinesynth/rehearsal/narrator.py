"""Narrator of the rehearsal: both voices of a trajectory, continued after the verified turns."""

from collections.abc import Iterator, Sequence
from itertools import cycle, pairwise

from pydantic import JsonValue, ValidationError

from refinesynth.chat import render_task
from refinesynth.rehearsal import dungeon_master, player
from refinesynth.rehearsal.injected_faults import Luck
from refinesynth.rehearsal.injected_mistakes import wrong_value
from refinesynth.rehearsal.replayed_history import Exchange, Past
from refinesynth.rehearsal.unknown_scripts import improvise, judge_plainly
from refinesynth.settings.mistakes import MistakeRequest
from refinesynth.trajectory import DungeonMasterTurn, MalformedTurn, MistakeKind, PlayerTurn, Script, read_turn

_MOST_MISTAKES = 12

_MOST_EXCHANGES = 60

_STRANGE_EXCHANGES = 6
"""Number of actions in one answer for an unknown script."""

_KINDS = tuple(MistakeKind)

Spoken = PlayerTurn | DungeonMasterTurn


def tell(luck: Luck, script: JsonValue, verified: JsonValue, minimum: JsonValue) -> list[Spoken]:
    """Return the turns after `verified`; in a known scene, with at least `minimum` mistakes in all, up to 12."""
    before = [read_turn(item) for item in verified] if isinstance(verified, list) else []
    exchanges = tuple(_exchanges(before))
    position = dungeon_master.world_of(script)
    if position is None:
        return list(_strange(luck, script, exchanges))
    wanted = min(minimum, _MOST_MISTAKES) if isinstance(minimum, int) else 0
    missing = max(0, wanted - sum(exchange.refused for exchange in exchanges))
    if missing and luck.strikes("too_few_errors"):
        missing = luck.rng("too few").randrange(missing)
        luck = Luck(luck.digest, luck.faults.model_copy(update={"natural_mistake": 0.0}))
    last = before[-1] if before else None
    unanswered = last.action if isinstance(last, PlayerTurn) else None
    return list(_narrated(luck, Past.of(position, exchanges), unanswered, missing))


def _narrated(luck: Luck, past: Past, unanswered: str | None, missing: int) -> Iterator[Spoken]:
    if unanswered is not None:
        after = dungeon_master.answer(luck.turn(_MOST_EXCHANGES), past, unanswered)
        yield after
        past = past.and_then(Exchange(unanswered, after.observation, after.flagged))
        missing -= after.flagged
        if past.arrived:
            return
    due = _due(luck, past, missing)
    kinds = cycle(luck.rng("kinds").sample(_KINDS, len(_KINDS)))
    spoilt = luck.rng("spoilt").randrange(len(past.position.plan) or 1) if luck.strikes("wrong_parameters") else None
    steps = 0
    for number in range(_MOST_EXCHANGES):
        own = luck.turn(number)
        made = None if spoilt is None or steps < spoilt else wrong_value(own.rng("spoilt"), past)
        if made is not None:
            spoilt = None
            turn = player.confused(own, past, made)
            after = dungeon_master.waved(own, past, made.action)
        else:
            wanted = MistakeRequest(next(kinds)) if due and due[0] <= steps else None
            due = due if wanted is None else due[1:]
            turn = player.decide(own, past, wanted)
            after = dungeon_master.answer(own, past, turn.action)
            steps += not after.flagged
        yield turn
        yield after
        past = past.and_then(Exchange(turn.action, after.observation, after.flagged))
        if past.arrived and not after.flagged:
            return


def _due(luck: Luck, past: Past, missing: int) -> list[int]:
    """Return the number of steps before each mistake, spread over the rest of the plan but not the first turn."""
    steps = range(len(past.position.plan))
    if not past.exchanges and len(steps) > 1:
        steps = steps[1:]
    rng = luck.rng("due")
    chosen: list[int] = []
    while len(chosen) < missing:
        chosen.extend(rng.sample(steps or (0,), len(steps) or 1))
    return sorted(chosen[: max(missing, 0)])


def _strange(luck: Luck, script: JsonValue, exchanges: tuple[Exchange, ...]) -> Iterator[Spoken]:
    try:
        task = render_task(Script.from_llm(script))
    except (ValidationError, RecursionError):
        task = ""
    for number in range(_STRANGE_EXCHANGES):
        own = luck.turn(number)
        turn = improvise(own, task, exchanges)
        after = judge_plainly(own, script, exchanges, turn.action)
        yield turn
        yield after
        exchanges = (*exchanges, Exchange(turn.action, after.observation, after.flagged))


def _exchanges(turns: Sequence[Spoken | MalformedTurn]) -> Iterator[Exchange]:
    for turn, after in pairwise(turns):
        if isinstance(turn, PlayerTurn) and isinstance(after, DungeonMasterTurn):
            yield Exchange(turn.action, after.observation, after.flagged)
