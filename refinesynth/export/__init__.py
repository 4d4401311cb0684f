"""Export of trajectories in the formats of trainers, with loss flags."""

from refinesynth.export.atif import AtifFormat
from refinesynth.export.chat_shapes import Masking
from refinesynth.export.export_files import ExportReport, export, group_of, one_side, write_export
from refinesynth.export.formats import FORMATS, TOKENS, Form, Format, find_format, find_masking
from refinesynth.export.publishing import CardCounts, CardFacts, check_languages, check_licence, render_card

__all__ = [
    "FORMATS",
    "TOKENS",
    "AtifFormat",
    "CardCounts",
    "CardFacts",
    "ExportReport",
    "Form",
    "Format",
    "Masking",
    "check_languages",
    "check_licence",
    "export",
    "find_format",
    "find_masking",
    "group_of",
    "one_side",
    "render_card",
    "write_export",
]
