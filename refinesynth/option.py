"""Fields of settings that are options of a command: `cli/field_options.py` makes an option of each."""

from typing import NamedTuple


class Option(NamedTuple):
    """Annotation of a field. The option's help text is the field's docstring, its name the field's."""

    panel: str
    """Group of options in the help of the command."""
    metavar: str | None = None
    """Placeholder of the value in the help; None for the name of its type."""
    names: tuple[str, ...] = ()
    """Names in the place of `--field-name`."""
    shows_default: bool = True
    """False where the command has no default, or another one."""
    required: bool = False
    """The command is refused without it."""


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
"""In the order of the help: what is used most comes first."""
