"""Annotation for fields of settings that `cli/field_options.py` turns into options of a command."""

from typing import NamedTuple


class Option(NamedTuple):
    """Annotation of a field; the option has the field's name, and the field's docstring as its help text."""

    panel: str
    """Group of options in the help of the command."""
    metavar: str | None = None
    """Placeholder of the value in the help; None for the name of its type."""
    names: tuple[str, ...] = ()
    """Names of the option; `--field-name` if empty."""
    shows_default: bool = True
    """False if the command has no default, or a default of its own."""
    required: bool = False
    """True if the command requires the option."""


INPUT = "Input"
MODEL = "Model"
PLAY = "Play"
MISTAKES = "Mistakes"
RULES = "Rules"
LIMITS = "Limits"
OUTPUT = "Output"
MACHINES = "Many machines"
LEARNING = "Learning"
ADVANCED = "Advanced"
PANELS = (INPUT, MODEL, PLAY, MISTAKES, RULES, LEARNING, LIMITS, OUTPUT, MACHINES, ADVANCED)
"""Panels in the order of the help: the most used options come first."""
