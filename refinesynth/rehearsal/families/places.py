"""Families whose player goes from place to place: things in rooms, stations and zones, which are carried and changed."""

from collections.abc import Mapping
from itertools import pairwise
from random import Random
from typing import Any

from refinesynth.rehearsal.families.family import STEPS, Family, Plot, as_keys, chance, shuffled
from refinesynth.world.text_template import enumerated


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
        place = source if name in moved else heat if name == foods[1] else rng.choice(list(places))
        dirty = name in moved or chance(rng, 0.4)
        places[place]["things"][name] = {"dirty": dirty, "food": name in foods, "warm": False}
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
            "where": enumerated(f"the {one} at the {name}" for name, spot in places.items() for one in spot["things"]),
        },
        parts=(*opened, *task, *closed),
        values={"place": tuple(places), "container": tuple(containers), "item": items},
    )


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
    source, target, other_start = rng.sample(others, 3)
    # If the task needs no heating, a garment is worn and a weighed sample lies at the heater: heating is still possible
    # and has an effect.
    heated = "heat" in task
    worn = () if heated else garments[1:]
    stations: dict[str, Any] = {
        name: {
            "device": devices.get(name, "none"),
            "samples": {},
            "gear": as_keys(garment for garment in garments if name == locker and garment not in worn),
        }
        for name in shuffled(rng, [*devices, locker, *others])
    }
    for name in shuffled(rng, samples):
        ready = name == spare and not heated
        place = source if name == sample else heater if ready else rng.choice(others)
        weighed = ready or (name != sample and chance(rng, 0.5))
        stations[place]["samples"][name] = {"label": "", "weighed": weighed, "heated": False, "spun": False}
    start = locker if heated else other_start
    wearing = "".join(f" You wear the {garment}." for garment in worn)
    return family.plot(
        {
            "you": {"at": start, "holding": {}, "wearing": as_keys(worn), "labels": labels},
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
            "where": enumerated(
                f"the {name} at the {site}" for site, station in stations.items() for name in station["samples"]
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


def draw_office(family: Family, rng: Random) -> Plot:
    """An office of seven rooms, four people and five documents, one of which must make its round."""
    words, task = family.words, rng.choice(family.tasks)
    plain = rng.sample(words["rooms"], 5)
    copying, stamping = rng.choice(words["copying"]), rng.choice(words["stamping"])
    source, target, start = rng.sample(plain, 3)
    names = rng.sample(words["people"], 4)
    signer, receiver, *_ = names
    # Neither signer nor receiver is in the document's room, so every task needs a walk.
    desks = {name: rng.choice([room for room in plain if room != source]) for name in names}
    signing = [name for index, name in enumerate(names) if index % 2 == 0]
    rooms: dict[str, Any] = {
        name: {
            "copier": name == copying,
            "stamp": name == stamping,
            "documents": {},
            "people": [person for person, desk in desks.items() if desk == name],
            "devices": [device for device, room in (("copier", copying), ("stamp", stamping)) if room == name],
        }
        for name in shuffled(rng, [*plain, copying, stamping])
    }
    documents = rng.sample(words["documents"], 5)
    for name in shuffled(rng, documents):
        place = source if name == documents[0] else rng.choice(plain)
        rooms[place]["documents"][name] = {"signed_by": "", "copied": False, "stamped": False}
    # Possible final places of the document, besides the player's folder.
    ends = {"hand": f'state.people["{receiver}"].desk', "file": f'state.rooms["{target}"].documents'}
    ways = {"sign": desks[signer], "hand": desks[receiver], "file": target, "copy": copying, "stamp": stamping}
    walked = {ways[step] for step in task}
    return family.plot(
        {
            "you": {"room": start, "carrying": {}},
            "rooms": rooms,
            "people": {name: {"room": desk, "may_sign": name in signing, "desk": {}} for name, desk in desks.items()},
        },
        names={
            "firm": rng.choice(words["firms"]),
            "start": start,
            "desks": enumerated(f"{name} sits in the {desk}" for name, desk in desks.items()),
            "signing": enumerated(signing),
            "copying": copying,
            "stamping": stamping,
            "signer": signer,
            "signer_room": desks[signer],
            "receiver": receiver,
            "receiver_room": desks[receiver],
            "document": documents[0],
            "source": source,
            "target": target,
            "end": ends.get(task[-1], "state.you.carrying"),
            "where": enumerated(
                f"the {one} in the {name}" for name, room in rooms.items() for one in room["documents"]
            ),
        },
        parts=("fetch", *task) if task[-1] in ends else ("fetch", *task, "keep"),
        values={
            "room": tuple(rooms),
            "document": tuple(shuffled(rng, documents)),
            "person": tuple(shuffled(rng, names)),
        },
        # On the way, the document can be handed to a wrong person, who does not give it back.
        losable=any(desks[name] in walked and not (name == receiver and "hand" in task) for name in names),
    )


def draw_warehouse(family: Family, rng: Random) -> Plot:
    """Six zones in a ring with one short cut, five crates, two vehicles; one crate has to go elsewhere."""
    words = family.words
    while True:
        task, lanes = rng.choice(family.tasks), ring_map(rng, words["zones"])
        zones, charging = tuple(lanes), "charge" in task
        parked = {name: rng.choice(zones) for name in rng.sample(words["vehicles"], 2)}
        start, zone, charger = rng.choice(zones), rng.choice(zones), rng.choice(zones)
        vehicle = rng.choice(list(parked))
        target = parked[vehicle] if "load" in task else rng.choice(zones)
        stops = (start, *((charger,) if charging else ()), zone, target)
        path = [passed for leg in pairwise(stops) for passed in route(lanes, *leg)]
        if zone != target and len(path) + 3 + charging in STEPS:
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
                    "crates": as_keys(crate for crate, one in crates.items() if one["zone"] == name),
                    "vehicles": [vehicle for vehicle, place in parked.items() if place == name],
                }
                for name in zones
            },
            "crates": crates,
            "vehicles": {name: {"zone": place, "cargo": {}} for name, place in parked.items()},
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
            "to": target,
            "where": enumerated([*loads, *(f"the {name} in {place}" for name, place in parked.items())]),
        },
        parts=task,
        values={"zone": zones, "crate": tuple(crates), "vehicle": tuple(parked)},
        acts=[("drive", {"zone": name}) for name in path],
        # A vehicle that must not get the crate is parked at the crate's target.
        losable=any(place == target and not (name == vehicle and "load" in task) for name, place in parked.items()),
        away=zone != start,
    )


def draw_search(family: Family, rng: Random) -> Plot:
    """Six rooms in a ring with one short cut, one of them dark, four boxes, five things; one thing has to be found."""
    words = family.words
    while True:
        task, doors = rng.choice(family.tasks), ring_map(rng, words["rooms"])
        rooms = tuple(doors)
        start, target, dark = rng.choice(rooms), rng.choice(rooms), rng.choice(rooms)
        boxes = {name: rng.choice(rooms) for name in rng.sample(words["boxes"], 4)}
        box, other, *_ = boxes
        locked, key_room = chance(rng, 0.6), rng.choice([room for room in rooms if room != dark])
        if task == ("stow",):
            target = boxes[other]
        stops = (start, *((key_room,) if locked else ()), boxes[box], target)
        path = [passed for leg in pairwise(stops) for passed in route(doors, *leg)]
        lamp = dark == boxes[box] or (task == ("stow",) and dark == target)
        steps = len(path) + 2 + locked + lamp + len(family.parts[task[0]].acts)
        if start not in {boxes[box], dark} and boxes[box] != target and steps in STEPS:
            break
    things = rng.sample(words["things"], 4)
    key = f"{rng.choice(words['metals'])} key"
    place_of = {name: rng.choice([*rooms, *boxes]) for name in things[1:]} | {things[0]: box, key: key_room}
    if not locked:
        place_of[key] = rng.choice(rooms)
    order = shuffled(rng, [*things, key])
    sentences = [f"the {name} is in the {place_of[name]}" for name in order]
    return family.plot(
        {
            "you": {"room": start, "bag": {}, "lamp": False},
            "rooms": {
                name: {
                    "next_to": doors[name],
                    "things": as_keys(thing for thing in order if place_of[thing] == name),
                    "boxes": [one for one, room in boxes.items() if room == name],
                    "shows": "darkness" if name == dark else "things",
                    "furniture": "darkness" if name == dark else "boxes",
                    "darkness": "only darkness",
                }
                for name in shuffled(rng, rooms)
            },
            "boxes": {
                name: {
                    "open": name != box and chance(rng, 0.3),
                    "locked": locked and name == box,
                    "things": as_keys(thing for thing in order if place_of[thing] == name),
                }
                for name in boxes
            },
            "inside": {name: place if place in boxes else "" for name, place in place_of.items()},
            "keys": {key: {"fits": box if locked else "nothing here"}},
        },
        names={
            "house": rng.choice(words["houses"]),
            "start": start,
            "doors": "; ".join(f"{name}: {', '.join(doors[name])}" for name in rooms),
            "gloom": f"There is no light in the {dark}",
            "thing": things[0],
            "target": target,
            "other": other,
            "where": enumerated([*(f"the {name} stands in the {room}" for name, room in boxes.items()), *sentences]),
        },
        parts=task,
        values={"room": rooms, "box": tuple(boxes), "thing": tuple(order)},
        acts=[
            *(("go", {"room": name}) for name in path),
            *((("light", {}),) if lamp else ()),
            *((("take", {"thing": key}),) if locked else ()),
            ("open", {"box": box}),
            ("take", {"thing": things[0]}),
        ],
    )


def ring_map(rng: Random, names: tuple[str, ...]) -> dict[str, list[str]]:
    """Six of the names, each with those next to it."""
    ring = rng.sample(names, 6)
    lanes = {zone: {ring[index - 1], ring[(index + 1) % 6]} for index, zone in enumerate(ring)}
    first, second = ring[0], ring[rng.choice((2, 3, 4))]
    lanes[first].add(second)
    lanes[second].add(first)
    return {zone: sorted(lanes[zone]) for zone in shuffled(rng, ring)}


def route(lanes: Mapping[str, list[str]], start: str, end: str) -> list[str]:
    """The fewest steps from one to another, without the start."""
    paths: dict[str, list[str]] = {start: []}
    for zone in (reached := [start]):
        for name in lanes[zone]:
            if name not in paths:
                paths[name] = [*paths[zone], name]
                reached.append(name)
    return paths[end]
