"""What config.json records of a run's settings."""

import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING

from pydantic import JsonValue

from refinesynth._version import __version__
from refinesynth.client.budget.budget import Budget
from refinesynth.episode.plays import find
from refinesynth.run import RunConfig, stable_repr
from refinesynth.settings import Curation, PlaySettings, RunSettings

if TYPE_CHECKING:
    from refinesynth.backends import Backend, Role
    from refinesynth.episode import EpisodeSettings

_PACKAGES = ("pydantic-ai-slim", "litellm")
"""Packages whose versions are recorded beside our own."""

_OF_THE_MODEL = ("model", "temperature", "top_p", "max_tokens", "output_mode", "extra")
"""A backend's settings that change what it answers; the others are about reaching it."""


def record(
    asked: RunSettings,
    settings: "EpisodeSettings",
    backends: "Mapping[Role, Backend]",
    *,
    personas: str,
    fallback: "Backend | None" = None,
) -> RunConfig:
    """The configuration of a run. Values that could be secrets are hidden.

    The fallback is among the connections: it may be named when it is needed, and each trajectory says what answered.

    Raises:
        InputError: An evaluation set cannot be read.
    """
    models: dict[str, JsonValue] = {}
    connections: dict[str, JsonValue] = {}
    for role, backend in backends.items():
        # A list where the role's models take turns.
        (model, *others), (connection, *further) = zip(*map(_of_one, backend.each), strict=True)
        models[str(role)] = [model, *others] if others else model
        connections[str(role)] = [connection, *further] if further else connection
    if fallback is not None:
        connections["fallback"] = {name: _hidden(value) for name, value in fallback.model_dump(mode="json").items()}
    play, budget, curation = find(settings.play), Budget.of(asked.budget), asked.curation
    played = asked.model_dump(mode="json", include=set(PlaySettings.model_fields))
    return RunConfig.model_validate(
        {
            **played,
            "n": asked.n,
            "concurrency": asked.concurrency,
            "budget": None if budget is None else str(budget),
            "patience": asked.patience,
            "rules": stable_repr(settings.rules),
            "script_rules": stable_repr(settings.script_rules),
            "grounding": {**played["grounding"], "mix": stable_repr(asked.grounding.mix)} if play.executed else None,
            "curation": None if curation is None or curation.idle else _curation(curation),
            "prompts": play.digest(settings.prompts),
            "models": models,
            "connections": connections,
            "personas": personas,
            "versions": _versions(),
        }
    )


def _of_one(backend: "Backend") -> tuple[dict[str, JsonValue], dict[str, JsonValue]]:
    """What changes its answers, and the rest."""
    given: dict[str, JsonValue] = {name: _hidden(value) for name, value in backend.model_dump(mode="json").items()}
    return {name: given.pop(name) for name in _OF_THE_MODEL}, given


def _curation(curation: Curation) -> dict[str, JsonValue]:
    """The settings, with what the evaluation sets hold in the place of where they are."""
    from refinesynth.diversity.contamination import digest_of

    dumped: dict[str, JsonValue] = curation.model_dump(mode="json", exclude={"contamination"})
    return {**dumped, "evaluation": digest_of(curation.contamination) if curation.contamination else None}


def _hidden(value: JsonValue) -> JsonValue:
    """The value without the keys that the environment holds; `Backend` itself refuses what is named like a secret."""
    from refinesynth.client.redaction import redact

    if isinstance(value, dict):
        return {name: _hidden(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_hidden(item) for item in value]
    return redact(value) if isinstance(value, str) else value


def _versions() -> dict[str, str]:
    ours = {"refinesynth": __version__, "python": ".".join(map(str, sys.version_info[:3]))}
    return ours | {name: version(name) for name in _PACKAGES}
