"""Who may be asked in batches, and of whom."""

from collections.abc import Iterable, Mapping

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import split
from refinesynth.backends.role import Role
from refinesynth.client.http.choosing import why_not_direct
from refinesynth.errors import ConfigurationError
from refinesynth.extras import check_installed

BATCHED = frozenset({Role.SCRIPT_WRITER, Role.NARRATOR})
"""They are asked a few times in an episode; a turn of a conversation would wait for hours each time."""


def refuse_unbatched(backends: Mapping[Role, Backend]) -> None:
    """Whether the roles that are played can be asked in batches, as far as they are to be.

    Raises:
        ConfigurationError: None of them is, the provider of one is asked otherwise, or its SDK is not installed.
    """
    asked = {role: backend for role, backend in backends.items() if role in BATCHED}
    if not asked:
        raise ConfigurationError(
            "batch is for the script_writer and the narrator, and this run asks neither; leave it out"
        )
    for role, backend in _each(asked):
        provider = split(backend.model)[0]
        if provider not in {"openai", "anthropic"}:
            raise ConfigurationError(
                f"batch asks OpenAI and Anthropic alone so far, and the {role} is "
                f"{backend.label}: leave batch out, or give that role a model of theirs"
            )
        if provider == "anthropic":
            check_installed("anthropic", "anthropic")
        elif (why_not := why_not_direct(backend)) is not None:
            raise ConfigurationError(f"the {role}, {backend.label}, cannot be asked in batches: {why_not}")


def _each(backends: Mapping[Role, Backend]) -> Iterable[tuple[Role, Backend]]:
    return ((role, one) for role, backend in backends.items() for one in backend.each)
