"""An office as it is executed: people, documents and devices are seen in the room where they are."""

from typing import Any

from refinesynth.rehearsal.families.family import Plot
from refinesynth.rehearsal.grounding.form import Form
from refinesynth.trajectory import Invariant, Sight

_HERE = "/rooms/{state:/you/room}"


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
    furnish=_furnish,
    sights=(
        Sight(path="/rooms"),
        Sight(path=f"{_HERE}/people"),
        Sight(path=f"{_HERE}/documents"),
        Sight(path="/people/{each}/desk", each=f"{_HERE}/people"),
        Sight(path="/you/carrying"),
    ),
    whereabouts="There are",
    reveals={
        "walk": "People here: {state:/rooms/{room}/people}. Documents: {state:/rooms/{room}/documents}. "
        "Devices: {state:/rooms/{room}/devices}.",
        "fetch": 'Signature: "{state:/you/carrying/{document}/signed_by}". '
        "Copied: {state:/you/carrying/{document}/copied}. Stamped: {state:/you/carrying/{document}/stamped}.",
        "look": f"People here: {{state:{_HERE}/people}}. Documents: {{state:{_HERE}/documents}}. "
        f"Devices: {{state:{_HERE}/devices}}. You carry {{state:/you/carrying}}.",
    },
    invariants=(Invariant(condition="state.you.room in state.rooms", sentence="The player is in one of the rooms."),),
    preparing=frozenset({"stamp"}),
    losable=_losable,
)
