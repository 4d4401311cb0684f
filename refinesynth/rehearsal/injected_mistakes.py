"""Plausible mistakes of a requested kind, each checked by the executor."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from random import Random
from typing import NamedTuple

from refinesynth.rehearsal.phrasing import meaning
from refinesynth.rehearsal.replayed_history import Past, Position
from refinesynth.rehearsal.scene import Scene, is_grounded
from refinesynth.rehearsal.search_plan import plan_of
from refinesynth.rules.repairs import WITHIN
from refinesynth.trajectory import ActionSpec, MistakeKind
from refinesynth.world import mentions
from refinesynth.world.hidden_places import hidden_names

_TIMELY = (MistakeKind.PLACE, MistakeKind.LOGIC)
"""Kinds of mistakes with an available action."""

_SHORTEST = 4
"""Length of the shortest word that may be misspelt, in characters."""


class Slip(NamedTuple):
    """A mistake with its meaning."""

    action: str
    kind: MistakeKind
    doing: str
    """Meaning, as an infinitive."""


def slip(rng: Random, past: Past, wanted: MistakeKind) -> Slip | None:
    """Return a mistake of the requested kind, else of another kind; None if none was found. No mistake is repeated.

    Mistakes of place and logic are preferably ones that the next steps answer.
    """
    first = wanted is MistakeKind.PARAMETER
    timely = [kind for kind in (wanted, *rng.sample(_TIMELY, 2)) if kind in _TIMELY]
    found = chain(
        (_miswording(rng, past) for _ in range(first)),
        (_untimely(rng, past, kind, answered=True) for kind in timely),
        (_miswording(rng, past) for _ in range(not first)),
        (_untimely(rng, past, kind, answered=False) for kind in timely),
    )
    return next((made for made in found if made is not None), None)


def wrong_value(rng: Random, past: Past) -> Slip | None:
    """Return an action of the right form with an unavailable value; None if none was found."""
    return _first(past, MistakeKind.PARAMETER, _wrong_values(rng, past.position, _next(rng, past)))


def _first(past: Past, kind: MistakeKind, proposals: Iterable[tuple[str, str]]) -> Slip | None:
    made = {exchange.action for exchange in past.exchanges if exchange.refused}
    for action, doing in proposals:
        if action not in made and past.position.judged(action) is kind and not _foreknown(past, action):
            return Slip(action, kind, doing or meaning(past.position, action))
    return None


def _foreknown(past: Past, action: str) -> bool:
    """Return whether an action names something hidden and its place, neither seen nor mentioned before."""
    scene = past.position.scene
    hidden = hidden_names(scene.world).places_of
    read = scene.world.read(action) if hidden else None
    if read is None:
        return False
    values = set(read[1].values())
    texts = (scene.script.introduction, *past.observed)
    return any(
        values & hidden[thing] and not any(mentions(text, thing) for text in texts) for thing in values & hidden.keys()
    )


def _next(rng: Random, past: Past) -> str:
    plan = plan_of(past)
    return plan[0] if plan else rng.choice(past.position.scene.useful)


def _miswording(rng: Random, past: Past) -> Slip | None:
    """Return the plan's next action with a wrong value, in another form, or cut short."""
    position, action = past.position, _next(rng, past)
    ways = rng.sample(_WAYS, len(_WAYS))
    likely = (proposal for way in ways for proposal in way(rng, position, action))
    unlikely = (proposal for other in position.scene.useful for proposal in _other_forms(rng, position, other))
    return _first(past, MistakeKind.PARAMETER, chain(likely, unlikely))


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
        for wrong in rng.sample([_misspelt(rng, value), unknown], 2):
            yield _filled(position, template, {**values, name: wrong})


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


def _untimely(rng: Random, past: Past, kind: MistakeKind, *, answered: bool) -> Slip | None:
    """Return an available action that does not fit now: a later step of the plan, a useful or repeated action, else
    any.

    With `answered`, only one whose refusal the next steps resolve. Movement to the present place comes last.
    """
    position, plan = past.position, plan_of(past)
    done = [exchange.action for exchange in reversed(past.exchanges) if not exchange.refused]
    obvious = (*plan[1:], *position.scene.useful, *done)
    late = position.scene.moving if kind is MistakeKind.LOGIC else "\n"
    likely = ((action, "") for action in obvious if not action.startswith(late))
    proposals = chain(likely, _distant(rng, position.scene, late))
    if answered:
        soon = _soon(past, WITHIN)
        proposals = (proposal for proposal in proposals if _comes_about(position, soon, proposal[0]))
    return _first(past, kind, proposals)


def can_wait(past: Past, mistake: str) -> bool:
    """Return whether the next steps answer a mistake in time, even after another action."""
    if past.position.judged(mistake) not in _TIMELY:
        return True
    return _comes_about(past.position, _soon(past, WITHIN - 1), mistake)


def is_due(past: Past) -> bool:
    """Return whether an earlier mistake still needs its answer, which another mistake would delay too long.

    In imagined worlds any next action is an answer.
    """
    position = past.position
    return (
        is_grounded(position.scene.label)
        and any(
            first.refused
            and not then.refused
            and then.action in position.scene.verbs  # without any value
            and position.judged(first.action) in _TIMELY
            for first, then in pairwise(past.exchanges[-WITHIN:])
        )
    )


def _soon(past: Past, steps: int) -> tuple[Position, ...]:
    return tuple(accumulate(plan_of(past)[:steps], Position.after, initial=past.position))[1:]


def _comes_about(position: Position, soon: Sequence[Position], action: str) -> bool:
    """Return whether the unmet condition of the action holds in one of these positions."""
    read = position.scene.world.read(action)
    unmet = read and read[0].first_unmet(position.state, read[1])
    if not read or not unmet:
        return False
    return any(unmet.requirement.condition.answer(later.state, read[1]) is True for later in soon)


def _distant(rng: Random, scene: Scene, late: str) -> Iterator[tuple[str, str]]:
    """Yield all possible action texts by relation to the goal; those that begin with `late` come last."""
    goal = set(scene.plot.goal.split())

    def distance(action: str) -> tuple[bool, int]:
        return action.startswith(late), -len(goal.intersection(action.split()))

    anything = list(scene.everything())
    for action in sorted(rng.sample(anything, len(anything)), key=distance):
        yield action, ""


_WAYS = (_wrong_values, _wrong_values, _other_forms, _other_forms, _short_forms)
"""Ways of miswording, repeated by frequency."""


def _filled(position: Position, template: str, values: Mapping[str, str], wording: str = "") -> tuple[str, str]:
    names = (wording or template, position.scene.verbs[template].doing)
    text, doing = (ActionSpec(name=name, pattern=".").fill(values) for name in names)
    return text, doing


def _misspelt(rng: Random, value: str) -> str:
    word = max(value.split() or [value], key=len)
    if len(word) < _SHORTEST:
        return f"{value} 2"
    at = rng.randrange(1, len(word) - 2)
    swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return value.replace(word, rng.choice((swapped, word[:at] + word[at + 1 :])))
