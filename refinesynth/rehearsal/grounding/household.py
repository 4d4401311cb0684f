"""A home as it is executed: what is shut hides what it holds, and only what is where the player is can be seen."""

from collections.abc import Mapping
from typing import Any

from refinesynth.rehearsal.families.family import Plot, listed
from refinesynth.rehearsal.families.household import LAWS
from refinesynth.rehearsal.grounding.form import Form

_WHERE = LAWS.whereabouts


def _furnish(plot: Plot, state: dict[str, Any]) -> None:
    """Each place says under which key it keeps what it shows."""
    places: dict[str, Any] = state["places"]
    _mend(plot, places)
    for spot in places.values():
        spot["front"] = "only its closed front"
        spot["shows"] = "things" if spot["open"] else "front"


def _mend(plot: Plot, places: dict[str, Any]) -> None:
    """What is carried is dirty, and there is food where the heat is, so that washing and warming are of use."""
    carried = [values["item"] for key, values in plot.useful if key == "take"]
    for spot in places.values():
        for name in spot["things"]:
            spot["things"][name]["dirty"] |= name in carried
    hot = next(spot for spot in places.values() if spot["heat"])
    source, food = next(
        (spot, name)
        for spot in places.values()
        for name, thing in spot["things"].items()
        if thing["food"] and name not in carried
    )
    hot["things"][food] = source["things"].pop(food)


def _told(plot: Plot, state: Mapping[str, Any]) -> str:
    """The introduction, with the things where they are now."""
    told, _, _ = plot.introduction.partition(f" {_WHERE} ")
    where = [f"the {item} at the {name}" for name, spot in state["places"].items() for item in spot["things"]]
    return f"{told} {_WHERE} {listed(where)}."


HOUSEHOLD = Form(
    laws=LAWS,
    furnish=_furnish,
    told=_told,
)
