"""Narrator of the rehearsal: both voices of a trajectory, continued after the verified turns."""

from collections.abc import Iterator
from itertools import cycle

from pydantic import JsonValue, ValidationError

from refinesynth.chat import render_task
from refinesynth.rehearsal import dungeon_master, player
from refinesynth.rehearsal.injected_faults import Draws
from refinesynth.rehearsal.injected_mistakes import wrong_value
from refinesynth.rehearsal.replayed_history import Exchange, History
from refinesynth.rehearsal.unknown_scripts import improvise, judge_form
from refinesynth.settings.mistakes import MistakeRequest
from refinesynth.trajectory import DungeonMasterTurn, MistakeKind, PlayerTurn, Script, read_turn
from refinesynth.trajectory.turns import answered_turns

_MAX_MISTAKES = 12

_MAX_EXCHANGES = 60

_UNKNOWN_EXCHANGES = 6
"""Number of actions in one answer for an unknown script."""

_KINDS = tuple(MistakeKind)

NarratedTurn = PlayerTurn | DungeonMasterTurn


def narrate_turns(draws: Draws, script: JsonValue, verified: JsonValue, minimum: JsonValue) -> list[NarratedTurn]:
    """Return the turns after `verified`; in a known scene, with at least `minimum` mistakes in all, up to 12."""
    turns = [read_turn(item) for item in verified] if isinstance(verified, list) else []
    exchanges = tuple(
        Exchange(turn.action, answer.observation, answer.flagged) for _, turn, answer in answered_turns(turns)
    )
    position = dungeon_master.position_of(script)
    if position is None:
        return list(_narrate_unknown(draws, script, exchanges))
    wanted = min(minimum, _MAX_MISTAKES) if isinstance(minimum, int) else 0
    missing = max(0, wanted - sum(exchange.refused for exchange in exchanges))
    if missing and draws.has_fault("too_few_errors"):
        missing = draws.rng("too few").randrange(missing)
        draws = Draws(draws.digest, draws.faults.model_copy(update={"natural_mistake": 0.0}))
    last = turns[-1] if turns else None
    unanswered = last.action if isinstance(last, PlayerTurn) else None
    return list(_narrated(draws, History.of(position, exchanges), unanswered, missing))


def _narrated(draws: Draws, history: History, unanswered: str | None, missing: int) -> Iterator[NarratedTurn]:
    if unanswered is not None:
        answer = dungeon_master.answer(draws.for_turn(_MAX_EXCHANGES), history, unanswered)
        yield answer
        history = history.with_exchange(Exchange(unanswered, answer.observation, answer.flagged))
        missing -= answer.flagged
        if history.is_done:
            return
    due = _due(draws, history, missing)
    kinds = cycle(draws.rng("kinds").sample(_KINDS, len(_KINDS)))
    plan = history.position.plan
    fault = draws.rng("spoilt").randrange(len(plan) or 1) if draws.has_fault("wrong_parameters") else None
    steps = 0
    for number in range(_MAX_EXCHANGES):
        turn_draws = draws.for_turn(number)
        mistake = None if fault is None or steps < fault else wrong_value(turn_draws.rng("spoilt"), history)
        if mistake is not None:
            fault = None
            turn = player.mistaken_turn(turn_draws, history, mistake)
            answer = dungeon_master.accept_unknown(turn_draws, history, mistake.action)
        else:
            wanted = MistakeRequest(next(kinds)) if due and due[0] <= steps else None
            due = due if wanted is None else due[1:]
            turn = player.decide(turn_draws, history, wanted)
            answer = dungeon_master.answer(turn_draws, history, turn.action)
            steps += not answer.flagged
        yield turn
        yield answer
        history = history.with_exchange(Exchange(turn.action, answer.observation, answer.flagged))
        if history.is_done and not answer.flagged:
            return


def _due(draws: Draws, history: History, missing: int) -> list[int]:
    """Return the number of steps before each mistake, spread over the rest of the plan but not the first turn."""
    steps = range(len(history.position.plan))
    if not history.exchanges and len(steps) > 1:
        steps = steps[1:]
    rng = draws.rng("due")
    chosen: list[int] = []
    while len(chosen) < missing:
        chosen.extend(rng.sample(steps or (0,), len(steps) or 1))
    return sorted(chosen[: max(missing, 0)])


def _narrate_unknown(draws: Draws, script: JsonValue, exchanges: tuple[Exchange, ...]) -> Iterator[NarratedTurn]:
    try:
        task = render_task(Script.from_llm(script))
    except (ValidationError, RecursionError):
        task = ""
    for number in range(_UNKNOWN_EXCHANGES):
        turn_draws = draws.for_turn(number)
        turn = improvise(turn_draws, task, exchanges)
        answer = judge_form(turn_draws, script, exchanges, turn.action)
        yield turn
        yield answer
        exchanges = (*exchanges, Exchange(turn.action, answer.observation, answer.flagged))
