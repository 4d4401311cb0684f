"""What holds for every command of one invocation."""

from dataclasses import dataclass, field


@dataclass
class Invocation:
    """Typer passes it to commands as `ctx.obj`."""

    debug: bool = False
    arguments: list[str] = field(default_factory=list[str])
    """As typed, without the program's name."""
    own_process: bool = False
    """True if the process was started for this command; false if a program calls it."""
