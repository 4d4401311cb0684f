"""Personas: files and other sources, and deduplication."""

from refinesynth.personas.near_duplicates import DedupReport, NearDuplicates, dedup
from refinesynth.personas.persona_files import BadRow, PersonaRecord, shipped
from refinesynth.personas.source import Personas, PersonaSource, Records, RecordSource, open_personas, write_records

__all__ = [
    "BadRow",
    "DedupReport",
    "NearDuplicates",
    "PersonaRecord",
    "PersonaSource",
    "Personas",
    "RecordSource",
    "Records",
    "dedup",
    "open_personas",
    "shipped",
    "write_records",
]
