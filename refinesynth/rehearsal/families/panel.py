"""A control room: dials with numeric readings and limits, and machines that depend on them."""

from random import Random

from refinesynth.rehearsal.families.family import Family, Plot, chance, listed, noted, shuffled

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
