"""What `refinesynth backends` shows: names, models, paths, which keys are set, never their values."""

from typing import Literal, TypeAlias

from pydantic import BaseModel

from refinesynth.backends.backend import Backend
from refinesynth.backends.lean.choosing import why_not_lean
from refinesynth.backends.presets import PRESETS
from refinesynth.backends.providers import key_of, key_variables

Path: TypeAlias = Literal["lean", "litellm", "built in"]
"""How requests travel: straight to the server, through litellm's SDK, or not at all."""


class BackendRow(BaseModel, frozen=True, extra="forbid"):
    """One preset and whether it can be used now."""

    name: str
    model: str
    """litellm model string."""
    path: Path
    key_variable: str | None
    """Environment variable that must hold the key; None if none is needed."""
    key_set: bool
    """Whether that variable holds anything; True if none is needed."""
    note: str


def describe() -> list[BackendRow]:
    """All presets, in the table's order, against the present environment."""
    return [
        BackendRow(
            name=name,
            model=preset.backend.model,
            path=path_of(preset.backend),
            key_variable=next(iter(key_variables(preset.backend)), None),
            key_set=not key_variables(preset.backend) or key_of(preset.backend) is not None,
            note=preset.note,
        )
        for name, preset in PRESETS.items()
    ]


def path_of(backend: Backend) -> Path:
    """The path that a backend takes in the present environment."""
    if backend.rehearses:
        return "built in"
    return "lean" if why_not_lean(backend) is None else "litellm"
