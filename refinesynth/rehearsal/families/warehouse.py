"""A warehouse: a robot that drives along lanes and lifts, loads and lowers crates."""

from itertools import pairwise
from random import Random
from typing import Any

from refinesynth.rehearsal.families.family import Family, Plot, chance, listed, noted, shuffled
from refinesynth.rehearsal.families.maps import STEPS, ring_map, route


def draw_warehouse(family: Family, rng: Random) -> Plot:
    """Six zones in a ring with one short cut, five crates, two vehicles; one crate has to go elsewhere."""
    words = family.words
    while True:
        task, lanes = rng.choice(family.tasks), ring_map(rng, words["zones"])
        zones, charging = tuple(lanes), "charge" in task
        parked = {name: rng.choice(zones) for name in rng.sample(words["vehicles"], 2)}
        start, zone, charger = rng.choice(zones), rng.choice(zones), rng.choice(zones)
        vehicle = rng.choice(list(parked))
        to = parked[vehicle] if "load" in task else rng.choice(zones)
        stops = (start, *((charger,) if charging else ()), zone, to)
        way = [passed for leg in pairwise(stops) for passed in route(lanes, *leg)]
        if zone != to and len(way) + 3 + charging in STEPS:
            break
    names = [f"{rng.choice(words['crates'])} {number}" for number in rng.sample(range(10, 99), 5)]
    wanted = names[0]
    crates: dict[str, Any] = {
        name: {
            "zone": zone if name == wanted else rng.choice(zones),
            "scanned": False,
            "loaded_on": "",
            "heavy": charging if name == wanted else chance(rng, 0.3),
        }
        for name in shuffled(rng, names)
    }
    # The battery is not full, so charging has an effect.
    battery = "low" if charging else rng.choice(("low", "half"))
    loads = [f"the {name}{' (heavy)' * one['heavy']} in {one['zone']}" for name, one in crates.items()]
    return family.plot(
        {
            "robot": {"zone": start, "battery": battery, "carrying": "", "forks": {}},
            "zones": {
                name: {
                    "next_to": lanes[name],
                    "charger": name == charger,
                    "crates": noted(crate for crate, one in crates.items() if one["zone"] == name),
                    "vehicles": [vehicle for vehicle, at in parked.items() if at == name],
                }
                for name in zones
            },
            "crates": crates,
            "vehicles": {name: {"zone": at, "cargo": {}} for name, at in parked.items()},
        },
        names={
            "robot": rng.choice(words["names"]),
            "site": rng.choice(words["sites"]),
            "start": start,
            "battery": battery,
            "lanes": "; ".join(f"{name}: {', '.join(lanes[name])}" for name in zones),
            "charger": charger,
            "crate": wanted,
            "vehicle": vehicle,
            "to": to,
            "where": listed([*loads, *(f"the {name} in {at}" for name, at in parked.items())]),
        },
        parts=task,
        values={"zone": zones, "crate": tuple(crates), "vehicle": tuple(parked)},
        acts=[("drive", {"zone": name}) for name in way],
        # A vehicle that must not get the crate is parked at the crate's target.
        losable=any(at == to and not (name == vehicle and "load" in task) for name, at in parked.items()),
        away=zone != start,
    )
