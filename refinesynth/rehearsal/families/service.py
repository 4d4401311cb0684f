"""A records service: ids, amounts, dates and clerks, changed in drafts."""

from random import Random

from refinesynth.rehearsal.families.family import Family, Plot, listed, noted, shuffled

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
