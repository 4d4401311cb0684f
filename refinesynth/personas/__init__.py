"""Personas: files and other sources, statistics, deduplication and samples."""

from refinesynth.personas.near_duplicates import DedupReport, NearDuplicates, Similar, dedup
from refinesynth.personas.persona_files import BadRow, PersonaRecord, shipped
from refinesynth.personas.persona_stats import PersonaStats, stats
from refinesynth.personas.sampling import Sample, domain_of, sample
from refinesynth.personas.source import Personas, PersonaSource, Records, RecordSource, open_personas, write_records

__all__ = [
    "BadRow",
    "DedupReport",
    "NearDuplicates",
    "PersonaRecord",
    "PersonaSource",
    "PersonaStats",
    "Personas",
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
