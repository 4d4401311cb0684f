"""Where environments come from: personas out of files, datasets and iterables, and some of our own.

Also what is done to collections of them before a run: `stats`, `dedup` and `sample`, imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from refinesynth.personas.rows import BadRow, Record
from refinesynth.personas.shipped import shipped
from refinesynth.personas.source import PersonaSource, open_personas
from refinesynth.personas.stream import Personas

if TYPE_CHECKING:
    from refinesynth.personas.deduplicating import DedupReport, dedup
    from refinesynth.personas.describing import PersonaStats, stats
    from refinesynth.personas.domains import domain_of
    from refinesynth.personas.near import NearDuplicates, Similar
    from refinesynth.personas.records import Records, RecordSource, write_records
    from refinesynth.personas.sampling import Sample, sample

_HOME = {
    "DedupReport": "deduplicating",
    "dedup": "deduplicating",
    "domain_of": "domains",
    "NearDuplicates": "near",
    "Similar": "near",
    "Records": "records",
    "RecordSource": "records",
    "write_records": "records",
    "Sample": "sampling",
    "sample": "sampling",
    "PersonaStats": "describing",
    "stats": "describing",
}

__all__ = [
    "BadRow",
    "DedupReport",
    "NearDuplicates",
    "PersonaSource",
    "PersonaStats",
    "Personas",
    "Record",
    "RecordSource",
    "Records",
    "Sample",
    "Similar",
    "dedup",
    "domain_of",
    "open_personas",
    "sample",
    "shipped",
    "stats",
    "write_records",
]


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(f"refinesynth.personas.{_HOME[name]}"), name)
    raise AttributeError(f"module 'refinesynth.personas' has no attribute {name!r}")
