"""An office as it is executed: people, documents and devices are seen in the room where they are."""

from typing import Any

from refinesynth.rehearsal.families.family import Plot
from refinesynth.rehearsal.families.office import LAWS
from refinesynth.rehearsal.grounding.form import Form


def _furnish(_: Plot, state: dict[str, Any]) -> None:
    """Rooms list who sits there, and which devices there are."""
    for name, room in state["rooms"].items():
        room["people"] = [person for person, one in state["people"].items() if one["room"] == name]
        room["devices"] = [device for device in ("copier", "stamp") if room[device]]


def _losable(plot: Plot) -> bool:
    """On the way the document can be handed to somebody who is not to have it, and nobody gives it back."""
    walked = [values["room"] for key, values in plot.useful if key == "walk"][1:]
    receivers = [values["person"] for key, values in plot.useful if key == "hand"]
    return any(one["room"] in walked and name not in receivers for name, one in plot.state["people"].items())


OFFICE = Form(
    laws=LAWS,
    furnish=_furnish,
    losable=_losable,
)
