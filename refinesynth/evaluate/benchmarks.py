"""The table of benchmarks: those of the package and those of installed packages."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import cast

from refinesynth.errors import InputError
from refinesynth.evaluate.comparing.published import HELD_OUT
from refinesynth.evaluate.environments.environment import BadInstance, Benchmark, Compat, Instance, Source

GROUP = "refinesynth.benchmarks"
"""Entry-point group: `mine = "my_package.mine:BENCHMARK"`, a `Benchmark` of that name."""

NAMES = ("alfworld", "babyai", "scienceworld", "pddl", "jericho", "hotpotqa", "worlds", "mistakes")

_BUILT_IN = {
    name: EntryPoint(name, f"refinesynth.evaluate.environments.{place}", GROUP)
    for name in NAMES
    for place in ("worlds:MISTAKES" if name == "mistakes" else f"{name}:BENCHMARK",)
}


@dataclass(frozen=True)
class Chosen:
    """A benchmark with its data."""

    benchmark: Benchmark
    source: Source

    def instances(self) -> Sequence[Instance]:
        """All instances in their fixed order; raises InputError if the data is missing or unusable."""
        name = self.benchmark.name
        try:
            found = tuple(self.benchmark.instances(self.source))
            json.dumps([one.data for one in found])
        except BadInstance as error:
            raise InputError(str(error)) from error
        except Exception as error:  # Whatever another package's code raises.
            raise InputError(
                f"the instances of {name} cannot be read: {error!r}; expected JSON in their data"
            ) from error
        if not found:
            raise InputError(f"{name} has no instances in what was named")
        if again := [id_ for id_, count in Counter(one.id for one in found).items() if count > 1]:
            raise InputError(f"{name} has more than one instance {again[0]!r}; expected a different id for each")
        return found


def choose(name: str, *, data: Path | None = None, argument: str = "", compat: Compat = "agentboard") -> Chosen:
    """The benchmark of that name with its data; raises InputError for an unknown name."""
    found = find(name)
    return Chosen(found, Source(None if data is None else data.resolve(), argument, compat))


def known() -> dict[str, EntryPoint]:
    """All benchmarks by name, built-in ones first."""
    installed = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    return {**_BUILT_IN, **{entry.name: entry for entry in installed if entry.name not in _BUILT_IN}}


def find(name: str) -> Benchmark:
    """The benchmark of that name.

    Raises:
        InputError: No such benchmark, or what its package registers cannot be loaded or is none.
    """
    entry = known().get(name)
    if entry is None:
        raise InputError(f"there is no benchmark {name!r}; expected held-out, or some of {', '.join(known())}")
    try:
        found = cast("object", entry.load())
    except Exception as error:  # Whatever another package's import raises.
        raise InputError(f"the benchmark {name!r} cannot be loaded from {entry.value!r}: {error!r}") from error
    if not isinstance(found, Benchmark) or found.name != name:
        raise InputError(f"{entry.value!r} is {found!r}; a Benchmark of the name {name!r} is expected")
    return found


def named(tasks: str) -> list[tuple[str, str]]:
    """Names and arguments of `babyai,pddl`, `held-out` or `worlds:runs/held-out`, each once, in order.

    Raises:
       InputError: One names no benchmark, or nothing is named.
    """
    found: dict[tuple[str, str], None] = {}
    for part in filter(None, (part.strip() for part in tasks.split(","))):
        name, _, argument = part.partition(":")
        for one in HELD_OUT if name == "held-out" else (name,):
            find(one)
            found[one, argument] = None
    if not found:
        raise InputError("--tasks names no benchmark; expected for example held-out, or babyai,pddl")
    return list(found)
