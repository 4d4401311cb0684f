"""Personas of our own writing, from all walks of life, to begin with."""

from importlib.resources import files

import orjson

from refinesynth.trajectory import Persona


def shipped() -> tuple[Persona, ...]:
    """All personas in the package, about 300, always in the same order."""
    lines = (files("refinesynth.personas") / "shipped.jsonl").read_bytes().splitlines()
    return tuple(Persona.model_validate(orjson.loads(line)) for line in lines)
