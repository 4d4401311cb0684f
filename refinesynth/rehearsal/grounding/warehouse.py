"""A warehouse as it is executed: loads and vehicles are seen in the zone where the robot is."""

from typing import Any

from refinesynth.rehearsal.families.family import Plot, moves
from refinesynth.rehearsal.grounding.form import Form, noted
from refinesynth.trajectory import Invariant, Sight

_HERE = "/zones/{state:/robot/zone}"


def _furnish(_: Plot, state: dict[str, Any]) -> None:
    """Zones, forks and vehicles list what they hold; and the battery is not full, so that charging is of use."""
    for name, zone in state["zones"].items():
        zone["crates"] = noted(crate for crate, one in state["crates"].items() if one["zone"] == name)
        zone["vehicles"] = [vehicle for vehicle, one in state["vehicles"].items() if one["zone"] == name]
    for vehicle in state["vehicles"].values():
        vehicle["cargo"] = {}
    state["robot"]["forks"] = {}
    if state["robot"]["battery"] == "full":
        state["robot"]["battery"] = "half"


def _losable(plot: Plot) -> bool:
    """Where the load is wanted stands a vehicle that it does not belong on."""
    zones = [vehicle["zone"] for name, vehicle in plot.state["vehicles"].items() if name not in plot.goal]
    ends = [vehicle["zone"] for name, vehicle in plot.state["vehicles"].items() if name in plot.goal]
    ends += [name for name in plot.state["zones"] if name in plot.goal]
    return any(zone in ends for zone in zones)


WAREHOUSE = Form(
    furnish=_furnish,
    sights=(
        Sight(path="/zones"),
        Sight(path=f"{_HERE}/crates"),
        Sight(path=f"{_HERE}/vehicles"),
        Sight(path="/vehicles/{each}/cargo", each=f"{_HERE}/vehicles"),
        Sight(path="/robot/forks"),
    ),
    whereabouts="There are",
    reveals={
        "drive": "Loads here: {state:/zones/{zone}/crates}. Vehicles: {state:/zones/{zone}/vehicles}. "
        "Charger: {state:/zones/{zone}/charger}. Lanes lead to {state:/zones/{zone}/next_to}.",
        "scan": "Heavy: {state:/crates/{crate}/heavy}.",
        "sense": f"Loads here: {{state:{_HERE}/crates}}. Vehicles: {{state:{_HERE}/vehicles}}. "
        f"Charger: {{state:{_HERE}/charger}}. Lanes lead to {{state:{_HERE}/next_to}}. "
        "On the forks: {state:/robot/forks}. Battery: {state:/robot/battery}.",
    },
    also={
        "lift": (moves(f"{_HERE}/crates/{{crate}}", "/robot/forks/{crate}"),),
        "lower": (moves("/robot/forks/{crate}", "/zones/{zone}/crates/{crate}"),),
        "load": (moves("/robot/forks/{crate}", "/vehicles/{vehicle}/cargo/{crate}"),),
    },
    invariants=(Invariant(condition="size(state.robot.forks) <= 1", sentence="The forks hold one load at most."),),
    preparing=frozenset({"scan"}),
    losable=_losable,
    told=lambda plot, state: plot.introduction.replace(
        f"its battery is {plot.state['robot']['battery']},", f"its battery is {state['robot']['battery']},", 1
    ),
    away=lambda plot: all(
        one["zone"] != plot.state["robot"]["zone"] for name, one in plot.state["crates"].items() if name in plot.goal
    ),
)
