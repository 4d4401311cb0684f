"""Where environments come from: personas out of files, datasets and iterables, and some of our own."""

from refinesynth.personas.rows import BadRow
from refinesynth.personas.shipped import shipped
from refinesynth.personas.source import PersonaSource, open_personas
from refinesynth.personas.stream import Personas

__all__ = ["BadRow", "PersonaSource", "Personas", "open_personas", "shipped"]
