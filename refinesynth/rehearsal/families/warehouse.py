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
    Verb,
    act,
    chance,
    listed,
    logic,
    place,
    quoted,
    sets,
    shuffled,
)

_ZONES = ("aisle A", "aisle B", "aisle C", "north bay", "south bay", "cold store", "packing line", "returns corner",
          "high rack", "loading dock", "mezzanine", "gate 4", "inspection hall", "weighbridge")  # fmt: skip
_CRATES = ("crate", "pallet", "parcel", "drum", "tote", "carton")
_VEHICLES = ("red truck", "blue van", "conveyor 2", "freight lift", "rail wagon", "electric cart", "white trailer")
_SITES = ("a spare-parts warehouse", "the depot of a grocery chain", "a book distributor's hall", "a flower wholesaler",
          "a furniture store's warehouse", "a relief agency's depot", "a brewery's stock house")  # fmt: skip
_NAMES = ("R-12", "Otto", "Picker 3", "Maru", "Unit 7", "Bolt")

_IN_ZONE = place("state.crates[crate].zone == state.robot.zone", "The {crate} is not in this zone.")

VERBS = (
    Verb(
        key="drive",
        wordings=("drive to {zone}", "move to {zone}", "navigate to {zone}", "roll into {zone}"),
        about=("Drive to a zone next to the present one",),
        doing="drive to {zone}",
        done=("Arrived in {zone}.", "The robot rolls into {zone}.", "Position: {zone}."),
        requires=(
            logic("state.robot.zone != zone", "The robot is in {zone} already."),
            place("state.zones[zone].next_to.exists(z, z == state.robot.zone)", "No lane leads from here to {zone}."),
        ),
        effects=(sets("/robot/zone", "{zone}"),),
    ),
    Verb(
        key="scan",
        wordings=("scan {crate}", "read barcode of {crate}", "check in {crate}"),
        about=("Scan a load in this zone; nothing may be lifted before it is scanned",),
        doing="scan the {crate}",
        done=("Beep. The {crate} is registered.", "The code of the {crate} is read.", "Scanned: {crate}."),
        requires=(_IN_ZONE, logic("!state.crates[crate].scanned", "The {crate} has been scanned already.")),
        effects=(sets("/crates/{crate}/scanned", True),),
    ),
    Verb(
        key="lift",
        wordings=("lift {crate}", "pick up {crate}", "raise {crate}", "grip {crate}"),
        about=("Take up a scanned load in this zone with empty forks; heavy ones need a full battery",),
        doing="lift the {crate}",
        done=("The {crate} is on the forks.", "The forks hold the {crate} now.", "Lifted: {crate}."),
        requires=(
            logic("state.robot.carrying != crate", "The {crate} is on the forks already."),
            logic('state.crates[crate].loaded_on == ""', "The {crate} has been loaded and stays where it is."),
            _IN_ZONE,
            logic('state.robot.carrying == ""', "The forks are not empty."),
            logic("state.crates[crate].scanned", "The {crate} has not been scanned yet."),
            logic('!state.crates[crate].heavy || state.robot.battery == "full"',
                  "The battery is too low to lift the {crate}, which is heavy."),
        ),
        effects=(
            sets("/robot/carrying", "{crate}"),
            sets("/crates/{crate}/zone", "on the forks"),
        ),
    ),
    Verb(
        key="lower",
        wordings=("lower {crate} in {zone}", "set down {crate} in {zone}", "drop off {crate} at {zone}"),
        about=("Set down the load on the forks in the present zone",),
        doing="set the {crate} down in {zone}",
        done=("The {crate} stands in {zone} now.", "The forks are empty; the {crate} is in {zone}."),
        requires=(
            logic("state.robot.carrying == crate", "The {crate} is not on the forks."),
            place("state.robot.zone == zone", "The robot is not in {zone}."),
        ),
        effects=(
            sets("/robot/carrying", ""),
            sets("/crates/{crate}/zone", "{zone}"),
        ),
    ),
    Verb(
        key="load",
        wordings=("load {crate} onto {vehicle}", "stow {crate} on {vehicle}", "transfer {crate} to {vehicle}"),
        about=("Put the load on the forks onto a vehicle in this zone",),
        doing="load the {crate} onto the {vehicle}",
        done=("The {crate} is on the {vehicle} now.", "The {vehicle} takes the {crate}."),
        requires=(
            logic("state.robot.carrying == crate", "The {crate} is not on the forks."),
            place("state.vehicles[vehicle].zone == state.robot.zone", "The {vehicle} is not in this zone."),
        ),
        effects=(
            sets("/robot/carrying", ""),
            sets("/crates/{crate}/loaded_on", "{vehicle}"),
            sets("/crates/{crate}/zone", "on the {vehicle}"),
        ),
    ),
    Verb(
        key="charge",
        wordings=("charge", "recharge battery", "dock at charger"),
        about=("Fill the battery in a zone with a charger",),
        doing="charge the battery",
        done=("The battery is full.", "Charging complete.", "After a while the battery reads full."),
        requires=(
            place("state.zones[state.robot.zone].charger", "There is no charger in this zone."),
            logic('state.robot.battery != "full"', "The battery is full already."),
        ),
        effects=(sets("/robot/battery", "full"),),
    ),
    Verb(
        key="sense",
        wordings=("look around", "sweep sensors", "report surroundings"),
        about=("Report what the sensors see in this zone",),
        doing="let the sensors look around",
        done=("Sensor report.", "The sensors sweep the zone."),
    ),
)  # fmt: skip


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
        names = tuple(f"{rng.choice(_CRATES)} {number}" for number in rng.sample(range(10, 99), 5))
        vehicles = {name: {"zone": rng.choice(zones)} for name in rng.sample(_VEHICLES, 2)}
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
            "zone": tuple(name for name in _ZONES if name not in zones),
            "crate": tuple(name.split()[0] for name in names),
            "vehicle": tuple(name for name in _VEHICLES if name not in vehicles),
        },
        useful=tuple(_useful(lanes, order, start, charger)),
    )  # fmt: skip


def _lanes(rng: Random) -> dict[str, list[str]]:
    """Zone to its neighbours."""
    ring = rng.sample(_ZONES, 6)
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
        f"You steer the robot {rng.choice(_NAMES)} in {rng.choice(_SITES)}. It is in {robot['zone']}, its battery is "
        f"{robot['battery']}, its forks are empty. Lanes by zone are {'; '.join(lanes)}. The charger is in {charger}. "
        f"There are {listed([*crates, *vehicles])}."
    )


WAREHOUSE = Family(
    name="warehouse",
    verbs=VERBS,
    draw=draw,
    see=see,
    refusals=("Aborted.", "The robot does not move.", "Warning:", "Not executed."),
)
