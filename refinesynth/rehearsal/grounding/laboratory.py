"""A laboratory as it is executed: samples and protection are seen at the station where they are."""

from collections.abc import Mapping
from typing import Any

from refinesynth.rehearsal.families.family import Plot, listed
from refinesynth.rehearsal.families.laboratory import LAWS
from refinesynth.rehearsal.grounding.form import Form, noted

_WHERE = LAWS.whereabouts


def _furnish(plot: Plot, state: dict[str, Any]) -> None:
    """Stations list the protection that hangs there, and the player has a roll of labels."""
    _mend(plot, state)
    worn = [garment for garment, one in state["gear"].items() if one["worn"]]
    for name, station in state["stations"].items():
        station["gear"] = noted(
            garment for garment, one in state["gear"].items() if one["at"] == name and garment not in worn
        )
    state["you"]["wearing"] = noted(worn)
    state["you"]["labels"] = list(plot.values["label"])


def _mend(plot: Plot, state: dict[str, Any]) -> None:
    """Where nothing has to be heated, all that it takes is there, so that heating is of use all the same."""
    if any(key == "heat" for key, _ in plot.useful):
        return
    garment = list(state["gear"])[-1]
    state["gear"][garment]["worn"] = True
    wanted = [values["sample"] for key, values in plot.useful if key == "take"]
    source, name = next(
        (station, name) for station in state["stations"].values() for name in station["samples"] if name not in wanted
    )
    heater = next(station for station in state["stations"].values() if station["device"] == "heater")
    heater["samples"][name] = source["samples"].pop(name)
    heater["samples"][name]["weighed"] = True


def _told(plot: Plot, state: Mapping[str, Any]) -> str:
    """The introduction, with what the player wears and the samples where they are now."""
    told, _, _ = plot.introduction.partition(f" {_WHERE} ")
    worn = "".join(f" You wear the {garment}." for garment in state["you"]["wearing"])
    where = [f"the {name} at the {station}" for station, one in state["stations"].items() for name in one["samples"]]
    return f"{told}{worn} {_WHERE} {listed(where)}."


LABORATORY = Form(
    laws=LAWS,
    furnish=_furnish,
    told=_told,
)
