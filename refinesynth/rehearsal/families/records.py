"""Families of data: files, records and dials, which are changed by their names and values."""

from collections.abc import Mapping
from itertools import pairwise, permutations
from random import Random
from typing import Any

from refinesynth.rehearsal.families.family import STEPS, Family, Plot, as_keys, chance, shuffled
from refinesynth.world.text_template import enumerated

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
        stops = [files[file]["directory"] for file in wanted.values()]
        acts = len(task) + ("pack" in task) + len(locked)
        crossed = {name for one, end in permutations([start, *stops], 2) for name in _path(parents, one, end)}
        passed = [file for file in files.values() if file["directory"] in crossed | {start}]
        # Every kind of action has an effect on the way to the goal.
        useful = files[config] in passed and len({file["read_only"] for file in passed}) > 1
        if useful and acts + _min_steps(parents, start, stops) in STEPS:
            break
    key, old = next(iter(files[config]["settings"].items()))
    target, other = (
        rng.choice([name for name in parents if name != files[subjects[part]]["directory"]])
        for part in ("move", "pack")
    )
    below = {name: [child for child, parent in parents.items() if parent == name] for name in parents}
    for file in files.values():
        settings = [f"{key}={value}" for key, value in file["settings"].items()]
        file["text"] = as_keys(settings or [f"{rng.randrange(3, 400)} lines of text"])
    keys = list(files[config]["settings"])
    values = list(dict.fromkeys(value for key in keys for value in family.words[key]))
    directories = {
        name: {
            "parent": parents[name],
            "up": parents[name] or "none",
            "holds": below[name],
            "files": as_keys(file for file, one in files.items() if one["directory"] == name),
        }
        for name in shuffled(rng, list(parents))
    }
    return family.plot(
        {
            "terminal": {"cwd": start},
            "directories": directories,
            "files": files,
            "settings": {"keys": keys, "values": values},
        },
        names={
            "machine": rng.choice(family.words["machines"]),
            "start": start,
            "directories": "; ".join(f"{name} holds {enumerated(inside)}" for name, inside in below.items() if inside),
            "config": config,
            "key": key,
            "new": rng.choice([value for value in family.words[key] if value != old]),
            **subjects,
            "to": target,
            "other": other,
            "where": enumerated(
                f"{name} in {file['directory']}{' (read-only)' * file['read_only']}" for name, file in files.items()
            ),
        },
        parts=task,
        values={
            "directory": tuple(parents),
            "file": tuple(files),
            "key": tuple(keys),
            "value": tuple(values),
        },
        acts=[
            *(("cd", {"directory": name}) for name in sorted(crossed)),
            *(("unlock", {"file": file}) for file in locked),
        ],
        # A writable file that is still wanted can be deleted.
        losable=any(part != "delete" and not files[file]["read_only"] for part, file in wanted.items()),
        away=any(name != start for name in stops),
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


def _path(parents: Mapping[str, str], start: str, end: str) -> list[str]:
    ancestors = [start]
    while parents[ancestors[-1]]:
        ancestors.append(parents[ancestors[-1]])
    below = [end]
    while below[-1] not in ancestors:
        below.append(parents[below[-1]])
    return [*ancestors[1 : ancestors.index(below[-1]) + 1], *reversed(below[:-1])]


def _min_steps(parents: Mapping[str, str], start: str, stops: list[str]) -> int:
    return min(sum(len(_path(parents, *leg)) for leg in pairwise((start, *order))) for order in permutations(stops))


_MOVES = (4, 7, 12)
"""Steps of a dial: none is the sum or the difference of two others."""


def draw_panel(family: Family, rng: Random) -> Plot:
    """Five consoles with seven dials and two machines; one or two dials have to be set."""
    words, task = family.words, rng.choice(family.tasks)
    consoles = rng.sample(words["consoles"], 5)
    start, console, *others = consoles
    kinds = rng.sample(list(zip(words["dials"], words["units"], strict=True)), 7)
    names = [f"{kind} {number}" for (kind, _), number in zip(kinds, rng.sample(range(2, 30), 7), strict=True)]
    dial, other, *_ = names
    first, second, third = rng.sample(_MOVES, 3)
    # The goal needs two moves, because no single move is their sum.
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
                    "dials": as_keys(one for one in names if places[one] == name),
                    "machines": as_keys(one for one in machines if sites[one] == name),
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
            "amounts": enumerated(map(str, _MOVES)),
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
            "where": enumerated(
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


_RECORDS = ("order", "invoice", "booking", "claim", "request", "contract", "ticket")


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
            # A refund of more than the requested amount is possible and final.
            "paid": int(amounts[-1]) if name == subjects["refund"] else rng.randrange(10, limit + 1, 5),
            "refunded": 0,
            "date": rng.choice(dates[:3]),
            "clerk": rng.choice([clerk for clerk in clerks if clerk != responsible]),
        }
        for name in shuffled(rng, names)
    }
    date = rng.choice([date for date in dates[1:] if date != records[subjects["move"]]["date"]])
    full = next(other for other in dates if other not in {date, records[subjects["move"]]["date"]})
    entries: dict[str, list[str]] = {
        register: [name for name, record in records.items() if record["register"] == register] for register in registers
    }
    return family.plot(
        {
            "desk": {"register": start, "draft": "none"},
            "registers": {name: {"records": as_keys(entries[name])} for name in shuffled(rng, registers)},
            "records": records,
            "calendar": {"dates": dates, "full": [full], "amounts": amounts},
            "clerks": clerks,
        },
        names={
            "desk": rng.choice(words["desks"]),
            "start": start,
            "limits": enumerated(f"{name} is responsible up to {most}" for name, most in clerks.items()),
            "full": full,
            "amount": amount,
            "date": date,
            "clerk": responsible,
            **subjects,
            **{f"{part}_register": str(records[name]["register"]) for part, name in subjects.items()},
            "where": "; ".join(f"{name}: {enumerated(inside) or 'none'}" for name, inside in entries.items()),
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
