"""A laboratory: samples that go through stations, in protective clothing."""

from random import Random
from typing import Any

from refinesynth.rehearsal.families.family import Family, Plot, chance, listed, noted, shuffled


def draw_laboratory(family: Family, rng: Random) -> Plot:
    """A lab of eight stations and five samples, one of which needs a short protocol."""
    words, task = family.words, rng.choice(family.tasks)
    balance, heater, centrifuge, locker = (
        rng.choice(words[kind]) for kind in ("balances", "heaters", "centrifuges", "lockers")
    )
    others = [*rng.sample(words["benches"], 2), *rng.sample(words["stores"], 2)]
    devices = {balance: "balance", heater: "heater", centrifuge: "centrifuge"}
    samples = [f"{name} sample" for name in rng.sample(words["substances"], 5)]
    sample, spare, *_ = samples
    labels, garments = rng.sample(words["labels"], 4), rng.sample(words["garments"], 2)
    source, target, elsewhere = rng.sample(others, 3)
    # If the task needs no heating, a garment is worn and a weighed sample lies at the heater: heating is still possible
    # and has an effect.
    heated = "heat" in task
    worn = () if heated else garments[1:]
    stations: dict[str, Any] = {
        name: {
            "device": devices.get(name, "none"),
            "samples": {},
            "gear": noted(garment for garment in garments if name == locker and garment not in worn),
        }
        for name in shuffled(rng, [*devices, locker, *others])
    }
    for name in shuffled(rng, samples):
        ready = name == spare and not heated
        where = source if name == sample else heater if ready else rng.choice(others)
        weighed = ready or (name != sample and chance(rng, 0.5))
        stations[where]["samples"][name] = {"label": "", "weighed": weighed, "heated": False, "spun": False}
    start = locker if heated else elsewhere
    wearing = "".join(f" You wear the {garment}." for garment in worn)
    return family.plot(
        {
            "you": {"at": start, "holding": {}, "wearing": noted(worn), "labels": labels},
            "gear": {name: {"at": locker, "worn": name in worn} for name in garments},
            "stations": stations,
        },
        names={
            "lab": rng.choice(words["labs"]),
            "start": start,
            "balance": balance,
            "heater": heater,
            "centrifuge": centrifuge,
            "locker": locker,
            "wearing": wearing,
            "sample": sample,
            "label": labels[0],
            "garment": garments[0],
            "source": source,
            "target": target,
            "where": listed(
                [f"the {name} at the {at}" for at, station in stations.items() for name in station["samples"]]
            ),
        },
        parts=("fetch", *task) if task[-1] == "store" else ("fetch", *task, "hold"),
        values={
            "station": tuple(stations),
            "sample": tuple(shuffled(rng, samples)),
            "label": tuple(shuffled(rng, labels)),
            "garment": tuple(garments),
        },
    )
