"""Random samples of personas, balanced over the values of a field."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from random import Random

from refinesynth.errors import InputError
from refinesynth.personas.persona_files import PersonaRecord
from refinesynth.personas.source import Records, RecordSource

NO_DOMAIN = "(none)"
"""Group of rows without a value of the field."""

_MAX_NAMED_FIELDS = 20


@dataclass(frozen=True)
class Sample:
    records: tuple[PersonaRecord, ...]
    """Drawn rows, interleaved by domain: one of each, then the second of each, and so on."""
    read: int
    bad: int
    problems: tuple[str, ...]
    domains: dict[str, int]
    """Number of personas drawn for each value of the field, in the order of `records`; empty without balancing."""


def sample(
    source: RecordSource | None = None,
    n: int = 1000,
    *,
    column: str | None = None,
    seed: int = 0,
    balance_by: str | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Sample:
    """Draw `n` personas at random, or all if there are fewer. The same arguments give the same sample.

    `balance_by` represents the values of a field as evenly as their sizes allow; of more than `n` values, it draws `n`. The source is
    read once, and memory holds all rows.

    Args:
        source: Personas to read; the ones that ship with the package if None.
        n: Size of the sample.
        column: Column or key of a row's persona; `persona` or `text` if None.
        seed: Seed of the sample.
        balance_by: Name of a field; None does not balance.
        on_progress: Called now and then with the number of rows read.

    Raises:
        InputError: `n` is not positive, a file cannot be read, it holds no persona, or no row has the field.
    """
    if n < 1:
        raise InputError(f"a sample has at least one persona, got n={n}")
    records = Records(source, column=column, on_progress=on_progress)
    groups: dict[str, list[PersonaRecord]] = {}
    has_field, names = balance_by is None, dict[str, None]()
    for record in records:
        if balance_by is None:
            groups.setdefault("", []).append(record)
            continue
        has_field = has_field or balance_by in record.fields
        names.update((name[:80], None) for name in islice(record.fields, _MAX_NAMED_FIELDS - len(names)))
        value = record.fields.get(balance_by)
        groups.setdefault(NO_DOMAIN if value in (None, "") else str(value), []).append(record)
    records.check()
    if not has_field:
        available = f"the fields are {', '.join(map(repr, names))}" if names else "there are no other fields"
        raise InputError(
            f"no row has a field for balancing by {balance_by!r}; beside the persona {available}. Name one of them"
        )
    random = Random(seed)
    for group in groups.values():
        random.shuffle(group)
    order = random.sample([*groups], len(groups))
    # One of each group, then the second of each, and so on.
    ranked = [(rank, place) for place, name in enumerate(order) for rank in range(len(groups[name]))]
    chosen = [(order[place], groups[order[place]][rank]) for rank, place in sorted(ranked)[:n]]
    domains = {} if balance_by is None else dict(Counter(name for name, _ in chosen))
    return Sample(tuple(record for _, record in chosen), records.read, records.bad, records.problems, domains)
