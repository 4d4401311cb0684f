"""Plausible mistakes of a requested kind, each checked by the executor."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from random import Random
from typing import NamedTuple

from refinesynth.rehearsal.phrasing import infinitive
from refinesynth.rehearsal.replayed_history import History, Position
from refinesynth.rehearsal.scene import Scene, is_grounded
from refinesynth.rehearsal.search_plan import hidden_names, plan_of
from refinesynth.rules.repairs import REPAIR_WINDOW
from refinesynth.trajectory import ActionSpec, MistakeKind
from refinesynth.world import mentions

_WORLD_KINDS = (MistakeKind.PLACE, MistakeKind.LOGIC)
"""Kinds of mistakes with an available action."""

_MIN_WORD_LENGTH = 4
"""Length of the shortest word that may be misspelt, in characters."""


class InjectedMistake(NamedTuple):
    """A mistake with its meaning."""

    action: str
    kind: MistakeKind
    doing: str
    """Meaning, as an infinitive."""


def draw_mistake(rng: Random, history: History, requested: MistakeKind) -> InjectedMistake | None:
    """Return a mistake of the requested kind, else of another kind; None if none was found. No mistake is repeated.

    Mistakes of place and logic are preferably ones that the next steps answer.
    """
    first = requested is MistakeKind.PARAMETER
    world_kinds = [kind for kind in (requested, *rng.sample(_WORLD_KINDS, 2)) if kind in _WORLD_KINDS]
    candidates = chain(
        (_miswording(rng, history) for _ in range(first)),
        (_untimely(rng, history, kind, answered=True) for kind in world_kinds),
        (_miswording(rng, history) for _ in range(not first)),
        (_untimely(rng, history, kind, answered=False) for kind in world_kinds),
    )
    return next((mistake for mistake in candidates if mistake is not None), None)


def wrong_value(rng: Random, history: History) -> InjectedMistake | None:
    """Return an action of the right form with an unavailable value; None if none was found."""
    return _first(history, MistakeKind.PARAMETER, _wrong_values(rng, history.position, _next(rng, history)))


def _first(history: History, kind: MistakeKind, proposals: Iterable[tuple[str, str]]) -> InjectedMistake | None:
    made = {exchange.action for exchange in history.exchanges if exchange.refused}
    for action, doing in proposals:
        if action not in made and history.position.mistake_kind(action) is kind and not _knows_place(history, action):
            return InjectedMistake(action, kind, doing or infinitive(history.position, action))
    return None


def _knows_place(history: History, action: str) -> bool:
    """Return whether an action names something hidden and its place, neither seen nor mentioned before."""
    scene = history.position.scene
    hidden = hidden_names(scene.world).places_of
    parsed = scene.world.read(action) if hidden else None
    if parsed is None:
        return False
    values = set(parsed[1].values())
    texts = (scene.script.introduction, *history.observations)
    return any(
        values & hidden[thing] and not any(mentions(text, thing) for text in texts) for thing in values & hidden.keys()
    )


def _next(rng: Random, history: History) -> str:
    plan = plan_of(history)
    return plan[0] if plan else rng.choice(history.position.scene.useful)


def _miswording(rng: Random, history: History) -> InjectedMistake | None:
    """Return the plan's next action with a wrong value, in another form, or cut short."""
    position, action = history.position, _next(rng, history)
    miswordings = rng.sample(_MISWORDINGS, len(_MISWORDINGS))
    likely = (proposal for miswording in miswordings for proposal in miswording(rng, position, action))
    unlikely = (proposal for useful in position.scene.useful for proposal in _other_forms(rng, position, useful))
    return _first(history, MistakeKind.PARAMETER, chain(likely, unlikely))


def _read(position: Position, action: str) -> tuple[str, Mapping[str, str]]:
    """Return template and values of an action of the plan."""
    ruling = position.ruling(action)
    return ruling.action or "", ruling.values


def _wrong_values(rng: Random, position: Position, action: str) -> Iterator[tuple[str, str]]:
    template, values = _read(position, action)
    absent = position.scene.plot.absent
    for name in rng.sample(sorted(values), len(values)):
        value = values[name]
        tempting = [other for other in absent.get(name, ()) if set(other.split()) & set(value.split())]
        unknown = rng.choice(tempting or absent[name])
        for wrong_value in rng.sample([_misspelt(rng, value), unknown], 2):
            yield _filled(position, template, {**values, name: wrong_value})


def _other_forms(rng: Random, position: Position, action: str) -> Iterator[tuple[str, str]]:
    template, values = _read(position, action)
    wordings = position.scene.verbs[template].wordings
    for wording in rng.sample(wordings, len(wordings)):
        yield _filled(position, template, values, wording)


def _short_forms(rng: Random, position: Position, action: str) -> Iterator[tuple[str, str]]:
    template, values = _read(position, action)
    if not values:
        return
    words = template.split(" ")
    first = template.partition("}")[0] + "}"
    second = template if words[1].startswith("{") else " ".join([*words[:1], *words[2:]])
    for wording in rng.sample([first, second], 2):
        yield _filled(position, template, values, wording)


def _untimely(rng: Random, history: History, kind: MistakeKind, *, answered: bool) -> InjectedMistake | None:
    """Return an available action that does not fit now: a later step of the plan, a useful or repeated action, else
    any.

    With `answered`, only one whose refusal the next steps resolve. Movement to the present place comes last.
    """
    position, plan = history.position, plan_of(history)
    done = [exchange.action for exchange in reversed(history.exchanges) if not exchange.refused]
    preferred = (*plan[1:], *position.scene.useful, *done)
    # The family's first verb moves the player.
    last_prefix = next(iter(position.scene.verbs)).partition("{")[0] if kind is MistakeKind.LOGIC else "\n"
    likely = ((action, "") for action in preferred if not action.startswith(last_prefix))
    proposals = chain(likely, _by_distance(rng, position.scene, last_prefix))
    if answered:
        next_positions = _next_positions(history, REPAIR_WINDOW)
        proposals = (proposal for proposal in proposals if _becomes_possible(position, next_positions, proposal[0]))
    return _first(history, kind, proposals)


def can_wait(history: History, mistake: str) -> bool:
    """Return whether the next steps answer a mistake in time, even after another action."""
    if history.position.mistake_kind(mistake) not in _WORLD_KINDS:
        return True
    return _becomes_possible(history.position, _next_positions(history, REPAIR_WINDOW - 1), mistake)


def is_due(history: History) -> bool:
    """Return whether an earlier mistake still needs its answer, which another mistake would delay too long.

    In imagined worlds any next action is an answer.
    """
    position = history.position
    return (
        is_grounded(position.scene.label)
        and any(
            mistake.refused
            and not following.refused
            and following.action in position.scene.verbs  # without any value
            and position.mistake_kind(mistake.action) in _WORLD_KINDS
            for mistake, following in pairwise(history.exchanges[-REPAIR_WINDOW:])
        )
    )


def _next_positions(history: History, steps: int) -> tuple[Position, ...]:
    return tuple(accumulate(plan_of(history)[:steps], Position.after, initial=history.position))[1:]


def _becomes_possible(position: Position, positions: Sequence[Position], action: str) -> bool:
    """Return whether the unmet condition of the action holds in one of these positions."""
    parsed = position.scene.world.read(action)
    unmet = parsed and parsed[0].first_unmet(position.state, parsed[1])
    if not parsed or not unmet:
        return False
    return any(unmet.requirement.condition.answer(later.state, parsed[1]) is True for later in positions)


def _by_distance(rng: Random, scene: Scene, last_prefix: str) -> Iterator[tuple[str, str]]:
    """Yield all possible action texts by relation to the goal; those that begin with `last_prefix` come last."""
    goal = set(scene.plot.goal.split())

    def distance(action: str) -> tuple[bool, int]:
        return action.startswith(last_prefix), -len(goal.intersection(action.split()))

    actions = list(scene.all_actions())
    for action in sorted(rng.sample(actions, len(actions)), key=distance):
        yield action, ""


_MISWORDINGS = (_wrong_values, _wrong_values, _other_forms, _other_forms, _short_forms)
"""Ways of miswording, repeated by frequency."""


def _filled(position: Position, template: str, values: Mapping[str, str], wording: str = "") -> tuple[str, str]:
    names = (wording or template, position.scene.verbs[template].doing)
    text, doing = (ActionSpec(name=name, pattern=".").fill(values) for name in names)
    return text, doing


def _misspelt(rng: Random, value: str) -> str:
    word = max(value.split() or [value], key=len)
    if len(word) < _MIN_WORD_LENGTH:
        return f"{value} 2"
    index = rng.randrange(1, len(word) - 2)
    swapped = word[:index] + word[index + 1] + word[index] + word[index + 2 :]
    return value.replace(word, rng.choice((swapped, word[:index] + word[index + 1 :])))
