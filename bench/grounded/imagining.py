"""A DungeonMaster that keeps the world in its head, as well as language models are known to, and a player who believes
it.

Both play in worlds that can be executed, so that afterwards it is known which of its verdicts were wrong.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from random import Random
from typing import Any, cast

from pydantic import JsonValue

from refinesynth.errors import Inapplicable
from refinesynth.rules.actions import SUCCESS
from refinesynth.trajectory import Draft, DungeonMasterTurn, MistakeKind, PlayerTurn
from refinesynth.world import Ruling, World, ground_actions, plan, world_of

FEW_CHANGES = (0.22, 0.50)
"""Share of the steps that change one or two facts and that the better models simulate right (EnvSimBench): from, to."""

FEW = 2

MANY_CHANGES = 0.20
"""The same of steps that change more: at most this."""

CALLED_WRONG = 9 / 50
"""Turns that were right, of those that a strong model called wrong, by human judgement (paper, appendix)."""

CALLED_RIGHT = 3 / 50
"""Turns that were wrong, of those that it called right."""

MOST_ACTIONS = 40
"""Actions at which a play is given up."""

SLIPS = 0.3
"""How often the player does something that it could know to be wrong; what mistakes are made of."""

_PLANNED = 150
"""States that the player looks on from at most when it makes a plan."""


@dataclass(frozen=True)
class Believed:
    """What a DungeonMaster makes of an action."""

    ruling: Ruling
    """As it is told."""
    state: JsonValue
    """The world as it is kept in mind from then on."""


Judge = Callable[[Random, World, JsonValue, str], Believed]
"""A DungeonMaster: what comes of an action in the state that it believes in."""


def executing(rng: Random, world: World, state: JsonValue, action: str) -> Believed:
    """The executor: never wrong."""
    del rng
    ruling = world.step(state, action)
    return Believed(ruling, ruling.state)


def imagining(rng: Random, world: World, state: JsonValue, action: str) -> Believed:
    """Judges well by what it has in mind, but keeps what changed there only as often as is published.

    Else it forgets some of the changes, or, as often, takes for done what nobody did: another action's effects.
    """
    ruling = world.step(state, action)
    facts = len(ruling.changed)
    kept = 1.0 if not facts else rng.uniform(*FEW_CHANGES) if facts <= FEW else MANY_CHANGES
    if rng.random() < kept:
        return Believed(ruling, ruling.state)
    mind = _dreamt(rng, world, ruling.state) if rng.random() < 1 / 2 else None
    if mind is None:
        mind = deepcopy(ruling.state)
        for change in rng.sample(ruling.changed, rng.randint(1, facts)):
            _undo(mind, state, change.path)
    return Believed(_as_told(ruling, world, mind), mind)


def _as_told(ruling: Ruling, world: World, mind: JsonValue) -> Ruling:
    """The ruling with the progress and the end that are in mind."""
    return replace(ruling, done=world.done(mind), progress=world.progress(mind))


def _dreamt(rng: Random, world: World, state: JsonValue) -> JsonValue:
    """The state with what some other action would do, possible or not; None if nothing comes to mind."""
    actions = tuple(ground_actions(world))
    for text in rng.sample(actions, min(20, len(actions))):
        if (read := world.read(text)) is None:
            continue
        try:
            mind = world.state_after(state, *read)
        except Inapplicable:
            continue
        if mind is not state:
            return mind
    return None


@dataclass(frozen=True)
class Misjudging:
    """Keeps the state right and gets verdicts wrong as often as humans found: a call so flipped changes nothing."""

    alarms: float
    """Share of the right actions that it calls wrong."""
    passes: float
    """Share of the wrong actions that it calls right."""

    @classmethod
    def where(cls, wrong: float) -> "Misjudging":
        """With the published shares among its calls, where this share of all actions is wrong.

        They are shares of what was called wrong or right; rates among what is right or wrong follow from two linear
        equations.
        """
        odds_wrong, odds_right = CALLED_WRONG / (1 - CALLED_WRONG), CALLED_RIGHT / (1 - CALLED_RIGHT)
        caught = (wrong - odds_right * (1 - wrong)) / (1 - odds_right * odds_wrong)
        return cls(alarms=odds_wrong * caught / (1 - wrong), passes=1 - caught / wrong)

    def __call__(self, rng: Random, world: World, state: JsonValue, action: str) -> Believed:
        ruling = world.step(state, action)
        still = world.transient_ruling(state, ruling)
        if ruling.kind is None and rng.random() < self.alarms:
            kind = rng.choice((MistakeKind.PLACE, MistakeKind.LOGIC))
            return Believed(_told(still, kind, "Nothing happens."), state)
        if ruling.kind is not None and rng.random() < self.passes:
            return Believed(_told(still, None, f"You {action}."), state)
        return Believed(ruling, ruling.state)


def play(world: World, judge: Judge, rng: Random, *, useful: Sequence[str] | None = None) -> Draft | None:
    """One trajectory as this DungeonMaster sees it; None if the player finds no way to the goal.

    The player believes what it is told, plans by it, and slips now and then: a wrong action that it has not tried
    before.
    """
    everything = tuple(ground_actions(world))
    mind: JsonValue = world.script.environment
    turns: list[PlayerTurn | DungeonMasterTurn] = []
    wrong: set[str] = set()
    planned: list[str] = []
    for _ in range(MOST_ACTIONS):
        if not planned and (planned := list(_planned(world, mind, useful))) == []:
            return None
        slips = [text for text in rng.sample(everything, min(12, len(everything))) if text not in wrong]
        slip = next((text for text in slips if world.step(mind, text).kind is not None), None)
        action = planned[0]
        if turns and isinstance(last := turns[-1], DungeonMasterTurn) and last.flagged and action in wrong:
            action = _other(world, mind, rng, everything, wrong) or action
        elif slip is not None and rng.random() < SLIPS:
            action = slip
        expected = world.step(mind, action).state
        believed = judge(rng, world, mind, action)
        turns.extend(_exchange(action, believed.ruling))
        if believed.ruling.kind is not None:
            wrong.add(action)
        elif believed.ruling.done:
            return Draft(script=world.script, turns=tuple(turns))
        elif believed.state != expected or (action != planned[0] and believed.state is not mind):
            planned = []  # the world is not as it was when the plan was made
        elif action == planned[0]:
            del planned[0]
        mind = believed.state
    return None


def true_kinds(draft: Draft) -> list[MistakeKind | None]:
    """What each action of a draft is by its rulebook; it has no transient failures."""
    world = world_of(draft.script)
    state: JsonValue = draft.script.environment
    kinds: list[MistakeKind | None] = []
    for turn in draft.turns:
        if isinstance(turn, PlayerTurn):
            ruling = world.step(state, turn.action)
            kinds.append(ruling.kind)
            state = ruling.state
    return kinds


def called_kinds(draft: Draft) -> list[MistakeKind | None]:
    """What its DungeonMaster called each action."""
    return [turn.mistake_kind for turn in draft.turns if isinstance(turn, DungeonMasterTurn)]


def _planned(world: World, mind: JsonValue, useful: Sequence[str] | None) -> Sequence[str]:
    found = plan(world, mind, candidates=useful, most=_PLANNED) if useful else None
    return found or plan(world, mind, most=_PLANNED) or ()


def _other(world: World, mind: JsonValue, rng: Random, everything: Sequence[str], wrong: set[str]) -> str | None:
    """Something else that is possible, to see whether the refused action works afterwards."""
    some = rng.sample(everything, min(60, len(everything)))
    return next((text for text in some if text not in wrong and world.step(mind, text).kind is None), None)


def _exchange(action: str, ruling: Ruling) -> tuple[PlayerTurn, DungeonMasterTurn]:
    answer = DungeonMasterTurn(
        thought="",
        observation=f"{ruling.text} {SUCCESS}" if ruling.done and ruling.kind is None else ruling.text,
        parameter_error=ruling.kind is MistakeKind.PARAMETER,
        place_error=ruling.kind is MistakeKind.PLACE,
        logic_error=ruling.kind is MistakeKind.LOGIC,
        progress=ruling.progress,
    )
    return PlayerTurn(thought="I do this next.", action=action), answer


def _told(ruling: Ruling, kind: MistakeKind | None, text: str) -> Ruling:
    return replace(ruling, kind=kind, text=text)


def _undo(mind: Any, before: JsonValue, path: str) -> None:
    """Put what is at a path back to what it was, as far as there still is such a place."""
    keys = [key.replace("~1", "/").replace("~0", "~") for key in path.split("/")[1:]]
    was: Any = before
    at: Any = mind
    for key in keys[:-1]:
        at = _inside(at, key)
        was = _inside(was, key)
    old = _inside(was, keys[-1])
    if isinstance(at, dict) and old is _NOTHING:
        cast("dict[str, Any]", at).pop(keys[-1], None)
    elif isinstance(at, dict):
        at[keys[-1]] = deepcopy(old)
    elif isinstance(at, list) and old is not _NOTHING:
        at[int(keys[-1])] = deepcopy(old)


_NOTHING = object()


def _inside(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).get(key, _NOTHING)
    if isinstance(value, list) and key.isdecimal() and int(key) < len(items := cast("list[Any]", value)):
        return items[int(key)]
    return _NOTHING
