"""Reading, describing, deduplicating and sampling personas."""

from refinesynth.personas.deduplicating import DedupReport, dedup
from refinesynth.personas.describing import PersonaStats, stats
from refinesynth.personas.near import NearDuplicates, Similar
from refinesynth.personas.records import Records, RecordSource, write_records
from refinesynth.personas.rows import BadRow, Record, shipped
from refinesynth.personas.sampling import Sample, domain_of, sample
from refinesynth.personas.source import Personas, PersonaSource, open_personas

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
