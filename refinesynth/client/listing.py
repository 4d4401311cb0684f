"""What `refinesynth backends` shows: names, models, paths, which keys are set, never their values."""

from pydantic import BaseModel

from refinesynth.backends.presets import PRESETS
from refinesynth.backends.providers import key_of, key_variables
from refinesynth.client.http.choosing import Path, path_of

_NO_BOUND = 1_000_000


class BackendRow(BaseModel, frozen=True, extra="forbid"):
    """One preset and whether it can be used now."""

    name: str
    model: str
    """litellm model string."""
    path: Path
    """With as many requests in flight as may be."""
    key_variable: str | None
    """Environment variable that must reservation the key; None if none is needed."""
    key_set: bool
    """Whether that variable holds anything; True if none is needed."""
    note: str


def describe() -> list[BackendRow]:
    """All presets, in the table's order, against the present environment."""
    return [
        BackendRow(
            name=name,
            model=preset.backend.model,
            path=path_of(preset.backend, in_flight=_NO_BOUND).path,
            key_variable=next(iter(key_variables(preset.backend)), None),
            key_set=not key_variables(preset.backend) or key_of(preset.backend) is not None,
            note=preset.note,
        )
        for name, preset in PRESETS.items()
    ]
