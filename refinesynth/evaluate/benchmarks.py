"""Table of benchmarks: those of this package and those of installed packages."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from refinesynth.errors import InputError
from refinesynth.evaluate.comparing.table_values import HELD_OUT
from refinesynth.evaluate.environments.environment import BadInstance, Benchmark, Instance, Source
from refinesynth.lazy_imports import Table

NAMES = ("alfworld", "babyai", "scienceworld", "pddl", "jericho", "hotpotqa", "worlds", "mistakes", "recovery")

INSPECT = "inspect"
"""Benchmark name for tasks of other packages; the argument is the task: `inspect:inspect_evals/tau2_airline`."""

_OBJECTS = {name: f"{name}:BENCHMARK" for name in NAMES} | {
    name: f"worlds:{name.upper()}" for name in ("mistakes", "recovery")
}

TABLE = Table(
    "benchmark",
    "refinesynth.benchmarks",
    {name: f"refinesynth.evaluate.environments.{path}" for name, path in _OBJECTS.items()},
)
"""Entry points: `mine = "my_package.mine:BENCHMARK"`, a `Benchmark` of that name."""


def read_instances(name: str, *, data: Path | None = None, argument: str = "") -> Sequence[Instance]:
    """All instances of a benchmark in their fixed order; raises InputError if it is unknown or its data unusable."""
    benchmark = find(name)
    try:
        instances = tuple(benchmark.instances(Source(None if data is None else data.resolve(), argument)))
        json.dumps([instance.data for instance in instances])
    except (BadInstance, InputError) as error:
        raise InputError(str(error)) from error
    except Exception as error:  # Code of another package may raise anything.
        raise InputError(f"the instances of {name} cannot be read: {error!r}; expected JSON in their data") from error
    if not instances:
        raise InputError(f"{name} has no instances in what was named")
    if repeated := [id_ for id_, count in Counter(instance.id for instance in instances).items() if count > 1]:
        raise InputError(f"{name} has more than one instance {repeated[0]!r}; expected a different id for each")
    return instances


def find(name: str) -> Benchmark:
    """The benchmark of that name; raises InputError for an unknown or unusable one."""
    return TABLE.load(
        name, lambda value: isinstance(value, Benchmark) and value.name == name, f"a Benchmark of the name {name!r}"
    )


def parse_tasks(tasks: str) -> list[tuple[str, str]]:
    """Parse `babyai,pddl`, `held-out` or `worlds:runs/held-out` to names with arguments, each once; raises InputError."""
    names: dict[tuple[str, str], None] = {}
    for part in filter(None, (part.strip() for part in tasks.split(","))):
        name, _, argument = part.partition(":")
        for benchmark in HELD_OUT if name == "held-out" else (name,):
            try:
                if benchmark != INSPECT:
                    find(benchmark)
            except InputError as error:
                if benchmark in TABLE.entries():
                    raise
                raise InputError(f"{error}, 'held-out' or 'inspect:PACKAGE/TASK', separated by commas") from None
            names[benchmark, argument] = None
    if not names:
        raise InputError("--tasks names no benchmark; expected for example held-out, or babyai,pddl")
    return list(names)
