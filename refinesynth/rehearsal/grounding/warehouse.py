"""A warehouse as it is executed: loads and vehicles are seen in the zone where the robot is."""

from typing import Any

from refinesynth.rehearsal.families.family import Plot
from refinesynth.rehearsal.families.warehouse import LAWS
from refinesynth.rehearsal.grounding.form import Form, noted


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
    laws=LAWS,
    furnish=_furnish,
    losable=_losable,
    told=lambda plot, state: plot.introduction.replace(
        f"its battery is {plot.state['robot']['battery']},", f"its battery is {state['robot']['battery']},", 1
    ),
    away=lambda plot: all(
        one["zone"] != plot.state["robot"]["zone"] for name, one in plot.state["crates"].items() if name in plot.goal
    ),
)
