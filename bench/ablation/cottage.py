"""A small family of worlds: things are brought from one place of a cottage to another.

Everything else is the rehearsal's: its executor, its player's way of speaking, its slips, its answers. Only the words
are few and the tasks short, so that a model of a million parameters can learn them in minutes. No text says whether a
place is shut, so that a good player, too, is refused now and then and has to learn from the refusal.
"""

from pathlib import Path
from random import Random
from typing import Any, Final

from refinesynth.rehearsal.families import Family, Plot
from refinesynth.rehearsal.families.family import chance, listed

COTTAGE: Final = Family.model_validate_json(Path(__file__).with_suffix(".json").read_bytes())

_PLACES_EACH, _ITEMS_EACH = 4, 3
_SHUT = 0.5
"""Share of the places that are shut, but for the one where the thing is."""


def draw(rng: Random) -> Plot:
    """A cottage of four places with three things; one of them has to be brought somewhere."""
    places = rng.sample(COTTAGE.words["places"], _PLACES_EACH)
    items = rng.sample(COTTAGE.words["items"], _ITEMS_EACH)
    source, target, start = rng.sample(places, 3)
    state: dict[str, Any] = {
        "you": {"at": start},
        "places": {name: {"shut": name != source and chance(rng, _SHUT)} for name in places},
        "items": {},
    }
    said: list[str] = []
    for item in rng.sample(items, len(items)):
        where = source if item == items[0] else rng.choice([name for name in places if name != target])
        state["items"][item] = {"at": where}
        said.append(f"the {item} is at the {where}")
    return COTTAGE.plot(
        state,
        names={
            "start": start,
            "item": items[0],
            "source": source,
            "target": target,
            "where": listed(said).capitalize(),
        },
        parts=("bring",),
        values={"place": tuple(sorted(places)), "item": tuple(sorted(items))},
    )
