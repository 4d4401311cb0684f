"""A home: things in places that are open or shut, and hands that hold one or two."""

from random import Random
from typing import Any

from refinesynth.rehearsal.families.family import Family, Plot, chance, listed, shuffled


def draw_household(family: Family, rng: Random) -> Plot:
    """A home with seven or eight places and six things, one or two of which must be moved."""
    words, task = family.words, rng.choice(family.tasks)
    containers = rng.sample(words["shut"], rng.choice((2, 3)))
    spots = [*rng.sample(words["open"], 3), *containers]
    water, heat = rng.choice(words["washing"]), rng.choice(words["warming"])
    foods = rng.sample(words["foods"], 2)
    articles = [
        " ".join(pair) for pair in zip(*(rng.sample(words[kind], 4) for kind in ("looks", "articles")), strict=True)
    ]
    item, other = foods if "warm" in task else articles[:2]
    moved = (item, other) if "put both" in task else (item,)
    # A thing that is only carried starts in a closed container, so the solution has more than four steps.
    shut_away = task == ("put",)
    source = rng.choice(containers if shut_away else spots)
    target, start = rng.sample([name for name in spots if name != source], 2)
    places: dict[str, Any] = {
        name: {
            "open": name not in containers or (chance(rng, 0.3) and not (shut_away and name == source)),
            "water": name == water,
            "heat": name == heat,
            "front": "only its closed front",
            "things": {},
        }
        for name in shuffled(rng, [*spots, water, heat])
    }
    for spot in places.values():
        spot["shows"] = "things" if spot["open"] else "front"
    items = tuple(shuffled(rng, [*foods, *articles]))
    for name in items:
        # One food is at the heat and the moved things are dirty, so warming and washing have an effect.
        where = source if name in moved else heat if name == foods[1] else rng.choice(list(places))
        dirty = name in moved or chance(rng, 0.4)
        places[where]["things"][name] = {"dirty": dirty, "food": name in foods, "warm": False}
    hands = 2 if len(moved) > 1 else rng.choice((1, 2))
    opened = [f"open {end}" for end, name in (("source", source), ("target", target)) if not places[name]["open"]]
    closed = ["close"] if len(moved) == 1 and target in containers and chance(rng, 0.5) else []
    return family.plot(
        {"you": {"at": start, "hands": hands, "holding": {}}, "places": places},
        names={
            "home": rng.choice(words["homes"]),
            "start": start,
            "hands": ("one thing at a time", "two things at once")[hands - 1],
            "water": water,
            "heat": heat,
            "item": item,
            "other": other,
            "source": source,
            "target": target,
            "where": listed([f"the {one} at the {name}" for name, spot in places.items() for one in spot["things"]]),
        },
        parts=(*opened, *task, *closed),
        values={"place": tuple(places), "container": tuple(containers), "item": items},
    )
