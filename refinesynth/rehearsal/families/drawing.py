"""One world of each family, drawn from a generator: where things are, and what has to be done."""

from collections.abc import Callable, Mapping
from itertools import pairwise, permutations
from random import Random
from typing import Any

from refinesynth.rehearsal.families.family import Family, Plot, chance, listed, noted, shuffled


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
    # Something that is merely carried is shut away, so that there is more to it than four steps.
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
        # There is food at the heat and what is carried is dirty, so that warming and washing are of use.
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
    # Where nothing has to be heated, all that it takes is there, so that heating is of use all the same.
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


def draw_office(family: Family, rng: Random) -> Plot:
    """An office of seven rooms, four people and five documents, one of which must make its round."""
    words, task = family.words, rng.choice(family.tasks)
    plain = rng.sample(words["rooms"], 5)
    copying, stamping = rng.choice(words["copying"]), rng.choice(words["stamping"])
    source, target, start = rng.sample(plain, 3)
    names = rng.sample(words["people"], 4)
    signer, receiver, *_ = names
    # Neither signer nor receiver is where the document lies, so that nothing is done without a walk.
    desks = {name: rng.choice([room for room in plain if room != source]) for name in names}
    signing = [name for at, name in enumerate(names) if at % 2 == 0]
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
        where = source if name == documents[0] else rng.choice(plain)
        rooms[where]["documents"][name] = {"signed_by": "", "copied": False, "stamped": False}
    # Where the document can be in the end, beside the player's folder.
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
            "desks": listed([f"{name} sits in the {desk}" for name, desk in desks.items()]),
            "signing": listed(signing),
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
            "where": listed([f"the {one} in the {name}" for name, room in rooms.items() for one in room["documents"]]),
        },
        parts=("fetch", *task) if task[-1] in ends else ("fetch", *task, "keep"),
        values={
            "room": tuple(rooms),
            "document": tuple(shuffled(rng, documents)),
            "person": tuple(shuffled(rng, names)),
        },
        # On the way the document can be handed to a person who is not to have it, and does not give it back.
        losable=any(desks[name] in walked and not (name == receiver and "hand" in task) for name in names),
    )


_STEPS = range(5, 10)


def draw_warehouse(family: Family, rng: Random) -> Plot:
    """Six zones in a ring with one short cut, five crates, two vehicles; one crate has to go elsewhere."""
    words = family.words
    while True:
        task, lanes = rng.choice(family.tasks), _lanes(rng, words["zones"])
        zones, charging = tuple(lanes), "charge" in task
        parked = {name: rng.choice(zones) for name in rng.sample(words["vehicles"], 2)}
        start, zone, charger = rng.choice(zones), rng.choice(zones), rng.choice(zones)
        vehicle = rng.choice(list(parked))
        to = parked[vehicle] if "load" in task else rng.choice(zones)
        stops = (start, *((charger,) if charging else ()), zone, to)
        way = [passed for leg in pairwise(stops) for passed in _leg(lanes, *leg)]
        if zone != to and len(way) + 3 + charging in _STEPS:
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
    # It is not full, so that charging is of use.
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
        # Where the load is wanted stands a vehicle that it does not belong on.
        losable=any(at == to and not (name == vehicle and "load" in task) for name, at in parked.items()),
        away=zone != start,
    )


def _lanes(rng: Random, names: tuple[str, ...]) -> dict[str, list[str]]:
    ring = rng.sample(names, 6)
    lanes = {zone: {ring[at - 1], ring[(at + 1) % 6]} for at, zone in enumerate(ring)}
    one, other = ring[0], ring[rng.choice((2, 3, 4))]
    lanes[one].add(other)
    lanes[other].add(one)
    return {zone: sorted(lanes[zone]) for zone in shuffled(rng, ring)}


def _leg(lanes: Mapping[str, list[str]], start: str, end: str) -> list[str]:
    ways: dict[str, list[str]] = {start: []}
    for zone in (reached := [start]):
        for name in lanes[zone]:
            if name not in ways:
                ways[name] = [*ways[zone], name]
                reached.append(name)
    return ways[end]


_WRITING = frozenset({"edit", "delete", "compress", "pack"})
"""Parts that need a writable file."""


def draw_files(family: Family, rng: Random) -> Plot:
    """A tree of seven directories and seven files, of which one to three must be changed."""
    while True:
        parents = _tree(rng, family.words)
        files = _files(rng, family.words, tuple(parents))
        config = next(name for name, file in files.items() if file["settings"])
        start = rng.choice(list(parents))
        task = [part for (part,) in rng.sample(family.tasks, rng.choice((1, 2, 2, 3)))]
        subjects: dict[str, str] = dict(
            zip(("move", "delete", "compress", "pack"), (name for name in files if name != config), strict=False)
        )
        wanted = {part: subjects.get(part, config) for part in task}
        locked = [file for part, file in wanted.items() if part in _WRITING and files[file]["read_only"]]
        at = [files[file]["directory"] for file in wanted.values()]
        acts = len(task) + ("pack" in task) + len(locked)
        ways = {name for one, end in permutations([start, *at], 2) for name in _path(parents, one, end)}
        passed = [file for file in files.values() if file["directory"] in ways | {start}]
        # On the way to the goal every action is of use.
        useful = files[config] in passed and len({file["read_only"] for file in passed}) > 1
        if useful and acts + _least(parents, start, at) in _STEPS:
            break
    key, old = next(iter(files[config]["settings"].items()))
    to, other = (
        rng.choice([name for name in parents if name != files[subjects[part]]["directory"]])
        for part in ("move", "pack")
    )
    below = {name: [child for child, parent in parents.items() if parent == name] for name in parents}
    state = _state(rng, family.words, files, parents, start)
    return family.plot(
        state,
        names={
            "machine": rng.choice(family.words["machines"]),
            "start": start,
            "directories": "; ".join(f"{name} holds {listed(inside)}" for name, inside in below.items() if inside),
            "config": config,
            "key": key,
            "new": rng.choice([value for value in family.words[key] if value != old]),
            **subjects,
            "to": to,
            "other": other,
            "where": listed(
                [f"{name} in {file['directory']}{' (read-only)' * file['read_only']}" for name, file in files.items()]
            ),
        },
        parts=task,
        values={
            "directory": tuple(parents),
            "file": tuple(files),
            "key": tuple(state["settings"]["keys"]),
            "value": tuple(state["settings"]["values"]),
        },
        acts=[
            *(("cd", {"directory": name}) for name in sorted(ways)),
            *(("unlock", {"file": file}) for file in locked),
        ],
        # A writable file that is still wanted can be deleted.
        losable=any(part != "delete" and not files[file]["read_only"] for part, file in wanted.items()),
        away=any(name != start for name in at),
    )


def _tree(rng: Random, words: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Directory to its parent: a root, three directories in it, and three more in those."""
    names = rng.sample(words["directories"], 6)
    root = rng.choice(words["roots"])
    return {root: "", **dict.fromkeys(names[:3], root), **{name: rng.choice(names[:3]) for name in names[3:]}}


def _files(rng: Random, words: Mapping[str, tuple[str, ...]], directories: tuple[str, ...]) -> dict[str, Any]:
    config = rng.choice(words["configs"])
    names = [config, *(f"{stem}.{rng.choice(words['endings'])}" for stem in rng.sample(words["stems"], 6))]
    files: dict[str, Any] = {
        name: {"directory": rng.choice(directories), "read_only": chance(rng, 0.3), "compressed": False, "settings": {}}
        for name in shuffled(rng, names)
    }
    files[config]["settings"] = {key: rng.choice(words[key]) for key in rng.sample(words["keys"], 2)}
    return files


def _state(
    rng: Random, words: Mapping[str, tuple[str, ...]], files: dict[str, Any], parents: Mapping[str, str], start: str
) -> dict[str, Any]:
    for file in files.values():
        settings = [f"{key}={value}" for key, value in file["settings"].items()]
        file["text"] = noted(settings or [f"{rng.randrange(3, 400)} lines of text"])
    keys = [key for file in files.values() for key in file["settings"]]
    return {
        "terminal": {"cwd": start},
        "directories": {
            name: {
                "parent": parents[name],
                "up": parents[name] or "none",
                "holds": [child for child, parent in parents.items() if parent == name],
                "files": noted(file for file, one in files.items() if one["directory"] == name),
            }
            for name in shuffled(rng, list(parents))
        },
        "files": files,
        "settings": {"keys": keys, "values": list(dict.fromkeys(value for key in keys for value in words[key]))},
    }


def _path(parents: Mapping[str, str], start: str, end: str) -> list[str]:
    above = [start]
    while parents[above[-1]]:
        above.append(parents[above[-1]])
    below = [end]
    while below[-1] not in above:
        below.append(parents[below[-1]])
    return [*above[1 : above.index(below[-1]) + 1], *reversed(below[:-1])]


def _least(parents: Mapping[str, str], start: str, stops: list[str]) -> int:
    return min(sum(len(_path(parents, *leg)) for leg in pairwise((start, *order))) for order in permutations(stops))


def draw_service(family: Family, rng: Random) -> Plot:
    """Five registers and seven records, of which one or two must be changed."""
    words = family.words
    task = [part for (part,) in rng.sample(family.tasks, rng.choice((1, 2, 2)))]
    registers = rng.sample(words["registers"], 5)
    start, *others = registers
    names = [f"{word} {number}" for word, number in zip(_RECORDS, rng.sample(range(1000, 9999), 7), strict=True)]
    subjects = dict(zip(("refund", "move", "assign"), rng.sample(names, 3), strict=True))
    dates = [f"{day} {month}" for day, month in zip(rng.sample(words["days"], 5), words["months"], strict=False)]
    amounts = sorted(rng.sample(words["amounts"], 4), key=int)
    clerks = dict(zip(rng.sample(words["clerks"], 3), rng.sample((50, 100, 150, 200, 250), 3), strict=True))
    amount, limit = rng.choice(amounts[:-1]), max(clerks.values())
    responsible = next(name for name, most in clerks.items() if most == limit)
    records = {
        name: {
            "register": rng.choice(others if name in subjects.values() else registers),
            # More than is to be refunded could be, and that would be final.
            "paid": int(amounts[-1]) if name == subjects["refund"] else rng.randrange(10, limit + 1, 5),
            "refunded": 0,
            "date": rng.choice(dates[:3]),
            "clerk": rng.choice([clerk for clerk in clerks if clerk != responsible]),
        }
        for name in shuffled(rng, names)
    }
    date = rng.choice([date for date in dates[1:] if date != records[subjects["move"]]["date"]])
    full = next(other for other in dates if other not in {date, records[subjects["move"]]["date"]})
    within: dict[str, list[str]] = {
        register: [name for name, record in records.items() if record["register"] == register] for register in registers
    }
    return family.plot(
        {
            "desk": {"register": start, "draft": "none"},
            "registers": {name: {"records": noted(within[name])} for name in shuffled(rng, registers)},
            "records": records,
            "calendar": {"dates": dates, "full": [full], "amounts": amounts},
            "clerks": clerks,
        },
        names={
            "desk": rng.choice(words["desks"]),
            "start": start,
            "limits": listed([f"{name} is responsible up to {most}" for name, most in clerks.items()]),
            "full": full,
            "amount": amount,
            "date": date,
            "clerk": responsible,
            **subjects,
            **{f"{part}_register": str(records[name]["register"]) for part, name in subjects.items()},
            "where": "; ".join(f"{name}: {listed(inside) if inside else 'none'}" for name, inside in within.items()),
        },
        parts=task,
        values={
            "register": tuple(registers),
            "record": tuple(names),
            "amount": tuple(amounts),
            "date": tuple(dates),
            "clerk": tuple(clerks),
        },
        losable="refund" in task,
    )


_RECORDS = ("order", "invoice", "booking", "claim", "request", "contract", "ticket")


def draw_panel(family: Family, rng: Random) -> Plot:
    """Five consoles with seven dials and two machines; one or two dials have to be set."""
    words, task = family.words, rng.choice(family.tasks)
    consoles = rng.sample(words["consoles"], 5)
    start, console, *others = consoles
    kinds = rng.sample(list(zip(words["dials"], words["units"], strict=True)), 7)
    names = [f"{kind} {number}" for (kind, _), number in zip(kinds, rng.sample(range(2, 30), 7), strict=True)]
    dial, other, *_ = names
    first, second, third = rng.sample(_MOVES, 3)
    # Each way two moves are needed: no single one is their sum.
    reads = {name: rng.randrange(40, 65, 5) for name in names}
    up, other_up = chance(rng, 0.6), chance(rng, 0.6)
    goal = reads[dial] + (first + second) * (1 if up else -1)
    other_goal = reads[other] + third * (1 if other_up else -1)
    places = {name: rng.choice(consoles) for name in names} | {dial: console, other: rng.choice(others)}
    dials = {
        name: {
            "console": places[name],
            "reads": reads[name],
            "limit": max(95, goal + 5) if name != other else 90,
            "unit": unit,
            "locked": name in {dial, other} or chance(rng, 0.5),
        }
        for name, (_, unit) in zip(names, kinds, strict=True)
    }
    machine, spare = rng.sample(words["machines"], 2)
    sites = {machine: console if "lock" in task else rng.choice(others), spare: rng.choice(consoles)}
    machines = {
        name: {"console": sites[name], "dial": turned, "least": value - 4, "most": value + 4, "runs": False}
        for name, turned, value in ((machine, dial, goal), (spare, names[2], reads[names[2]]))
    }
    return family.plot(
        {
            "you": {"at": start},
            "consoles": {
                name: {
                    "dials": noted(one for one in names if places[one] == name),
                    "machines": noted(one for one in machines if sites[one] == name),
                }
                for name in shuffled(rng, consoles)
            },
            "dials": {name: dials[name] for name in shuffled(rng, names)},
            "machines": machines,
            "amounts": list(map(str, _MOVES)),
        },
        names={
            "site": rng.choice(words["sites"]),
            "start": start,
            "amounts": listed(list(map(str, _MOVES))),
            "machine": machine,
            "machine_console": sites[machine],
            "least": str(goal - 4),
            "most": str(goal + 4),
            "dial": dial,
            "unit": kinds[0][1],
            "console": console,
            "goal": str(goal),
            "way": "raise" if up else "lower",
            "first": str(first),
            "second": str(second),
            "other": other,
            "other_unit": kinds[1][1],
            "other_console": places[other],
            "other_goal": str(other_goal),
            "other_way": "raise" if other_up else "lower",
            "other_step": str(third),
            "where": listed(
                [
                    *(f"the {name} ({places[name]})" for name in names),
                    *(f"the {one} ({sites[one]})" for one in machines),
                ]
            ),
        },
        parts=task,
        values={
            "console": tuple(consoles),
            "dial": tuple(names),
            "amount": tuple(map(str, _MOVES)),
            "machine": tuple(machines),
        },
    )


_MOVES = (4, 7, 12)
"""Steps of a dial: none is the sum or the difference of two others."""


def draw_search(family: Family, rng: Random) -> Plot:
    """Six rooms in a ring with one short cut, one of them dark, four boxes, five things; one thing has to be found."""
    words = family.words
    while True:
        task, doors = rng.choice(family.tasks), _lanes(rng, words["rooms"])
        rooms = tuple(doors)
        start, target, dark = rng.choice(rooms), rng.choice(rooms), rng.choice(rooms)
        boxes = {name: rng.choice(rooms) for name in rng.sample(words["boxes"], 4)}
        box, other, *_ = boxes
        locked, key_room = chance(rng, 0.6), rng.choice([room for room in rooms if room != dark])
        if task == ("stow",):
            target = boxes[other]
        stops = (start, *((key_room,) if locked else ()), boxes[box], target)
        way = [passed for leg in pairwise(stops) for passed in _leg(doors, *leg)]
        lamp = dark == boxes[box] or (task == ("stow",) and dark == target)
        steps = len(way) + 2 + locked + lamp + len(family.parts[task[0]].acts)
        if start not in {boxes[box], dark} and boxes[box] != target and steps in _STEPS:
            break
    things = rng.sample(words["things"], 4)
    key = f"{rng.choice(words['metals'])} key"
    lies = {name: rng.choice([*rooms, *boxes]) for name in things[1:]} | {things[0]: box, key: key_room}
    if not locked:
        lies[key] = rng.choice(rooms)
    order = shuffled(rng, [*things, key])
    where = [f"the {name} is in the {lies[name]}" for name in order]
    return family.plot(
        {
            "you": {"room": start, "bag": {}, "lamp": False},
            "rooms": {
                name: {
                    "next_to": doors[name],
                    "things": noted(thing for thing in order if lies[thing] == name),
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
                    "things": noted(thing for thing in order if lies[thing] == name),
                }
                for name in boxes
            },
            "inside": {name: at if at in boxes else "" for name, at in lies.items()},
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
            "where": listed([*(f"the {name} stands in the {room}" for name, room in boxes.items()), *where]),
        },
        parts=task,
        values={"room": rooms, "box": tuple(boxes), "thing": tuple(order)},
        acts=[
            *(("go", {"room": name}) for name in way),
            *((("light", {}),) if lamp else ()),
            *((("take", {"thing": key}),) if locked else ()),
            ("open", {"box": box}),
            ("take", {"thing": things[0]}),
        ],
    )


DRAWING: Mapping[str, Callable[[Family, Random], Plot]] = {
    "household": draw_household,
    "files": draw_files,
    "laboratory": draw_laboratory,
    "warehouse": draw_warehouse,
    "office": draw_office,
    "service": draw_service,
    "panel": draw_panel,
    "search": draw_search,
}
"""Function that draws a world of each family."""

CLASSIC = ("household", "files", "laboratory", "warehouse", "office")
"""Families that are drawn from by default, in this order; seeds of earlier runs depend on it."""
