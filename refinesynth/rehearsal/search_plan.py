"""Plan of a player with partial knowledge: it searches hidden things from place to place."""

from collections import deque
from hashlib import blake2b

import orjson

from refinesynth.rehearsal.replayed_history import Past, Position
from refinesynth.rehearsal.scene import Scene
from refinesynth.trajectory import ActionSpec
from refinesynth.world import mentions
from refinesynth.world.hidden_places import hidden_names

_FARTHEST = 200


def plan_of(past: Past) -> tuple[str, ...]:
    """Return the true plan up to the first hidden thing, as if that were at the next place to search."""
    position = past.position
    plan, scene = position.plan, position.scene
    found = _unknown(past)
    if found is None:
        return plan
    at, _, truth = found
    before = [number for number, step in enumerate(plan[:at]) if not _seeks(scene, step)]
    place = _next_place(past, truth)
    if place is None:
        return plan
    ways = plan[: before[-1] + 1] if before else _way(position, place)
    return (*ways, _moved(scene, plan[at], truth, place), *plan[at + 1 :])


def sought(past: Past) -> str | None:
    """Return the hidden thing that the next step is about, if any."""
    position, found = past.position, _unknown(past)
    if found is None or not all(_seeks(position.scene, step) for step in position.plan[: found[0]]):
        return None
    return found[1]


def _unknown(past: Past) -> tuple[int, str, frozenset[str]] | None:
    """Return the index of the first step about a hidden thing that was never seen or mentioned, its name and its
    places.
    """
    scene = past.position.scene
    if not scene.hidden:
        return None
    hidden = hidden_names(scene.world).places_of
    accepted = (exchange.observation for exchange in past.exchanges if not exchange.refused and not exchange.failed)
    texts = (scene.script.introduction, *accepted)
    for at, step in enumerate(past.position.plan):
        read = scene.world.read(step)
        for value in read[1].values() if read else ():
            if value not in hidden or any(mentions(text, value) for text in texts):
                continue
            if not hidden[value] & _looked_into(past.position):
                return at, value, hidden[value]
    return None


def _seeks(scene: Scene, step: str) -> bool:
    read = scene.world.read(step)
    return read is not None and scene.verbs[read[0].spec.name].seeks


def _next_place(past: Past, truth: frozenset[str]) -> str | None:
    """Return the first unsearched place, in a fixed order per scene, so that two searches cannot alternate forever."""
    scene = past.position.scene
    # A place may be a container too; the longest list is that of all places.
    among = max((values for values in scene.plot.values.values() if truth & set(values)), key=len, default=())
    looked = _looked_into(past.position)

    def turn(place: str) -> bytes:
        return blake2b(f"{scene.label} {place}".encode(), digest_size=8).digest()

    return min((place for place in among if place not in looked), key=turn, default=None)


def _looked_into(position: Position) -> set[str]:
    looked = _looked(position)
    while position.before:
        position = position.before[0]
        looked |= _looked(position)
    return looked


def _looked(position: Position) -> set[str]:
    """Return the places whose content is visible here: those on the path of a sight."""
    world, state = position.scene.world, position.state
    names: set[str] = set()
    for sight in world.visibility.sights:
        for values in sight.bindings(state):
            if sight.when is None or sight.when.answer(state, values) is True:
                names.update(sight.keys(state, values) or ())
    return names


def _way(position: Position, place: str) -> tuple[str, ...]:
    """Return the fewest steps to see into a place; empty if there is no way."""
    steps = sorted(position.scene.seeking, key=lambda step: not mentions(step, place))
    queue, known = deque([(position, tuple[str, ...]())]), {orjson.dumps(position.state)}
    while queue and len(known) < _FARTHEST:
        at, way = queue.popleft()
        for step in steps:
            after = at.after(step)
            if after is at or (key := orjson.dumps(after.state)) in known:
                continue
            if place in _looked(after):
                return (*way, step)
            known.add(key)
            queue.append((after, (*way, step)))
    return ()


def _moved(scene: Scene, step: str, truth: frozenset[str], place: str) -> str:
    read = scene.world.read(step)
    if read is None:
        return step
    spec: ActionSpec = read[0].spec
    return spec.fill({name: place if value in truth else value for name, value in read[1].items()})
