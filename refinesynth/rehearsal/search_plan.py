"""Plan of a player with partial knowledge: it searches hidden things from place to place."""

from collections import deque
from hashlib import blake2b

import orjson

from refinesynth.rehearsal.replayed_history import History, Position
from refinesynth.rehearsal.scene import Scene
from refinesynth.trajectory import ActionSpec
from refinesynth.world import mentions
from refinesynth.world.hidden_places import hidden_names

_MAX_POSITIONS = 200


def plan_of(history: History) -> tuple[str, ...]:
    """Return the true plan up to the first hidden thing, as if that were at the next place to search."""
    position = history.position
    plan, scene = position.plan, position.scene
    unknown = _unknown(history)
    if unknown is None:
        return plan
    index, _, actual = unknown
    earlier = [number for number, step in enumerate(plan[:index]) if not _reveals_places(scene, step)]
    place = _next_place(history, actual)
    if place is None:
        return plan
    first_steps = plan[: earlier[-1] + 1] if earlier else _steps_to(position, place)
    return (*first_steps, _moved(scene, plan[index], actual, place), *plan[index + 1 :])


def hidden_target(history: History) -> str | None:
    """Return the hidden thing that the next step is about, if any."""
    position, unknown = history.position, _unknown(history)
    if unknown is None or not all(_reveals_places(position.scene, step) for step in position.plan[: unknown[0]]):
        return None
    return unknown[1]


def _unknown(history: History) -> tuple[int, str, frozenset[str]] | None:
    """Return the index of the first step about a hidden thing that was never seen or mentioned, its name and its
    places.
    """
    scene = history.position.scene
    if not scene.hidden:
        return None
    hidden = hidden_names(scene.world).places_of
    accepted = (exchange.observation for exchange in history.exchanges if not exchange.refused and not exchange.failed)
    texts = (scene.script.introduction, *accepted)
    for index, step in enumerate(history.position.plan):
        parsed = scene.world.read(step)
        for value in parsed[1].values() if parsed else ():
            if value not in hidden or any(mentions(text, value) for text in texts):
                continue
            if not hidden[value] & _searched_places(history.position):
                return index, value, hidden[value]
    return None


def _reveals_places(scene: Scene, step: str) -> bool:
    parsed = scene.world.read(step)
    return parsed is not None and scene.verbs[parsed[0].spec.name].seeks


def _next_place(history: History, actual: frozenset[str]) -> str | None:
    """Return the first unsearched place, in a fixed order per scene, so that two searches cannot alternate forever."""
    scene = history.position.scene
    # A place may be a container too; the longest list is that of all places.
    places = max((values for values in scene.plot.values.values() if actual & set(values)), key=len, default=())
    searched = _searched_places(history.position)

    def order(place: str) -> bytes:
        return blake2b(f"{scene.label} {place}".encode(), digest_size=8).digest()

    return min((place for place in places if place not in searched), key=order, default=None)


def _searched_places(position: Position) -> set[str]:
    places = _places_in_view(position)
    while position.previous:
        position = position.previous[0]
        places |= _places_in_view(position)
    return places


def _places_in_view(position: Position) -> set[str]:
    """Return the places whose content is visible here: those on the path of a sight."""
    world, state = position.scene.world, position.state
    names: set[str] = set()
    for sight in world.visibility.sights:
        for values in sight.bindings(state):
            if sight.when is None or sight.when.answer(state, values) is True:
                names.update(sight.keys(state, values) or ())
    return names


def _steps_to(position: Position, place: str) -> tuple[str, ...]:
    """Return the fewest steps to see into a place; empty if there is no way."""
    steps = sorted(position.scene.revealing_actions, key=lambda step: not mentions(step, place))
    queue, seen = deque([(position, tuple[str, ...]())]), {orjson.dumps(position.state)}
    while queue and len(seen) < _MAX_POSITIONS:
        current, path = queue.popleft()
        for step in steps:
            successor = current.after(step)
            if successor is current or (key := orjson.dumps(successor.state)) in seen:
                continue
            if place in _places_in_view(successor):
                return (*path, step)
            seen.add(key)
            queue.append((successor, (*path, step)))
    return ()


def _moved(scene: Scene, step: str, actual: frozenset[str], place: str) -> str:
    parsed = scene.world.read(step)
    if parsed is None:
        return step
    spec: ActionSpec = parsed[0].spec
    return spec.fill({name: place if value in actual else value for name, value in parsed[1].items()})
