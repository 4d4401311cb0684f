"""A robot among the zones of a warehouse: scan crates, lift them, drive from zone to zone, load the vehicles."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

from refinesynth.rehearsal.families.family import (
    Act,
    Condition,
    Family,
    Plot,
    State,
    act,
    chance,
    listed,
    quoted,
    read_laws,
    shuffled,
)

LAWS = read_laws("warehouse")
_WORDS = LAWS.words


def see(state: State, key: str, values: Mapping[str, str]) -> str:
    """What is in the zone and where lanes lead, after driving or looking."""
    if key not in {"drive", "sense"}:
        return ""
    zone: str = values.get("zone", state["robot"]["zone"])
    crates = [_described(name, crate) for name, crate in state["crates"].items() if crate["zone"] == zone]
    vehicles = [f"the {name}" for name, vehicle in state["vehicles"].items() if vehicle["zone"] == zone]
    charger = ["a charger"] if state["zones"][zone]["charger"] else []
    return f"Here: {listed([*crates, *vehicles, *charger])}. Lanes lead to {listed(state['zones'][zone]['next_to'])}."


def _described(name: str, crate: State) -> str:
    marks = [word for word, mark in (("heavy", crate["heavy"]), ("scanned", crate["scanned"])) if mark]
    return f"the {name} ({', '.join(marks)})" if marks else f"the {name}"


@dataclass(frozen=True)
class _Order:
    """Where one crate is to go."""

    crate: str
    zone: str
    """Where it is."""
    to: str
    """Zone in which it ends: that of the vehicle, if there is one."""
    vehicle: str
    """Empty: it is set down."""
    charging: bool


def draw(rng: Random) -> Plot:
    """Six zones in a ring with one short cut, five crates, two vehicles; one crate has to go elsewhere: five to nine steps."""
    while True:
        lanes = _lanes(rng)
        zones = tuple(lanes)
        names = tuple(f"{rng.choice(_WORDS['crates'])} {number}" for number in rng.sample(range(10, 99), 5))
        vehicles = {name: {"zone": rng.choice(zones)} for name in rng.sample(_WORDS["vehicles"], 2)}
        start, zone, charger = rng.choice(zones), rng.choice(zones), rng.choice(zones)
        vehicle = rng.choice(list(vehicles)) if chance(rng, 0.7) else ""
        to = vehicles[vehicle]["zone"] if vehicle else rng.choice(zones)
        order = _Order(names[0], zone, to, vehicle, charging=chance(rng, 0.4))
        steps = len(_way(lanes, order, start, charger)) + 3 + order.charging
        if zone != to and 5 <= steps <= 9:  # noqa: PLR2004 - the length of an episode
            break
    crates = {
        name: {
            "zone": order.zone if name == order.crate else rng.choice(zones),
            "scanned": False,
            "loaded_on": "",
            "heavy": order.charging if name == order.crate else chance(rng, 0.3),
        }
        for name in shuffled(rng, names)
    }
    robot = {"zone": start, "battery": "low" if order.charging else rng.choice(("low", "half", "full")), "carrying": ""}
    state: dict[str, Any] = {
        "robot": robot,
        "zones": {name: {"next_to": lanes[name], "charger": name == charger} for name in zones},
        "crates": crates,
        "vehicles": vehicles,
    }
    goal, condition = _ending(order)
    return Plot(
        introduction=_introduction(rng, state),
        state=state,
        goal=goal,
        conditions=(condition, _noted(order)),
        values={"zone": zones, "crate": tuple(crates), "vehicle": tuple(vehicles)},
        absent={
            "zone": tuple(name for name in _WORDS["zones"] if name not in zones),
            "crate": tuple(name.split()[0] for name in names),
            "vehicle": tuple(name for name in _WORDS["vehicles"] if name not in vehicles),
        },
        useful=tuple(_useful(lanes, order, start, charger)),
    )  # fmt: skip


def _lanes(rng: Random) -> dict[str, list[str]]:
    """Zone to its neighbours."""
    ring = rng.sample(_WORDS["zones"], 6)
    lanes = {zone: {ring[at - 1], ring[(at + 1) % 6]} for at, zone in enumerate(ring)}
    one, other = ring[0], ring[rng.choice((2, 3, 4))]
    lanes[one].add(other)
    lanes[other].add(one)
    return {zone: sorted(lanes[zone]) for zone in shuffled(rng, ring)}


def _leg(lanes: Mapping[str, list[str]], start: str, end: str) -> list[str]:
    """The zones to drive to, one after the other, on a shortest way."""
    ways: dict[str, list[str]] = {start: []}
    for zone in (reached := [start]):
        for name in lanes[zone]:
            if name not in ways:
                ways[name] = [*ways[zone], name]
                reached.append(name)
    return ways[end]


def _way(lanes: Mapping[str, list[str]], order: _Order, start: str, charger: str) -> list[str]:
    stops = (start, *((charger,) if order.charging else ()), order.zone, order.to)
    return [zone for leg in pairwise(stops) for zone in _leg(lanes, *leg)]


def _useful(lanes: Mapping[str, list[str]], order: _Order, start: str, charger: str) -> Iterator[Act]:
    for zone in dict.fromkeys(_way(lanes, order, start, charger)):
        yield act("drive", zone=zone)
    if order.charging:
        yield act("charge")
    yield act("scan", crate=order.crate)
    yield act("lift", crate=order.crate)
    if order.vehicle:
        yield act("load", crate=order.crate, vehicle=order.vehicle)
    else:
        yield act("lower", crate=order.crate, zone=order.to)


def _ending(order: _Order) -> tuple[str, Condition]:
    crate = f"state.crates[{quoted(order.crate)}]"
    if order.vehicle:
        sentence = f"The {order.crate} is on the {order.vehicle}."
        goal = f"load the {order.crate} onto the {order.vehicle}"
        return goal, Condition(cel=f"{crate}.loaded_on == {quoted(order.vehicle)}", sentence=sentence)
    sentence = f"The {order.crate} stands in {order.to}."
    return f"bring the {order.crate} to {order.to}", Condition(
        cel=f"{crate}.zone == {quoted(order.to)}", sentence=sentence
    )


def _noted(order: _Order) -> Condition:
    cel = f"state.crates[{quoted(order.crate)}].scanned"
    return Condition(cel=cel, sentence=f"The {order.crate} is scanned.")


def _introduction(rng: Random, state: State) -> str:
    robot = state["robot"]
    lanes = [f"{name}: {', '.join(zone['next_to'])}" for name, zone in state["zones"].items()]
    crates = [f"the {_described(name, crate)[4:]} in {crate['zone']}" for name, crate in state["crates"].items()]
    vehicles = [f"the {name} in {vehicle['zone']}" for name, vehicle in state["vehicles"].items()]
    charger = next(name for name, zone in state["zones"].items() if zone["charger"])
    return (
        f"You steer the robot {rng.choice(_WORDS['names'])} in {rng.choice(_WORDS['sites'])}. It is in {robot['zone']}, its battery is "
        f"{robot['battery']}, its forks are empty. Lanes by zone are {'; '.join(lanes)}. The charger is in {charger}. "
        f"There are {listed([*crates, *vehicles])}."
    )


WAREHOUSE = Family(name=LAWS.name, verbs=LAWS.verbs, draw=draw, see=see, refusals=LAWS.refusals)
