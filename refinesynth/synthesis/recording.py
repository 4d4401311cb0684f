"""What config.json records of a run's settings."""

import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING

from pydantic import JsonValue

from refinesynth._version import __version__
from refinesynth.run import RunConfig, stable_repr

if TYPE_CHECKING:
    from refinesynth.backends import Backend, Role
    from refinesynth.episode import EpisodeSettings

_PACKAGES = ("pydantic-ai-slim", "litellm")
"""Packages whose versions are recorded beside our own."""

_OF_THE_MODEL = ("model", "temperature", "top_p", "max_tokens", "output_mode", "extra")
"""A backend's settings that change what it answers; the others are about reaching it."""


def record(
    settings: "EpisodeSettings",
    backends: "Mapping[Role, Backend]",
    *,
    n: int,
    concurrency: int,
    personas: str,
    budget: str | None = None,
    fallback: "Backend | None" = None,
) -> RunConfig:
    """The configuration of a run. Values that could be secrets are hidden.

    The fallback is among the connections: it may be named when it is needed, and each trajectory says what answered.
    """
    models: dict[str, JsonValue] = {}
    connections: dict[str, JsonValue] = {}
    for role, backend in backends.items():
        given = backend.model_dump(mode="json")
        models[str(role)] = {name: _hidden(given.pop(name)) for name in _OF_THE_MODEL}
        connections[str(role)] = {name: _hidden(value) for name, value in given.items()}
    if fallback is not None:
        connections["fallback"] = {name: _hidden(value) for name, value in fallback.model_dump(mode="json").items()}
    return RunConfig(
        n=n,
        concurrency=concurrency,
        budget=budget,
        play=settings.play,
        seed=settings.seed,
        rules=stable_repr(settings.rules),
        script_rules=stable_repr(settings.script_rules),
        mistakes=settings.mistakes.model_dump(mode="json"),
        attempts=settings.attempts.model_dump(mode="json"),
        max_turns=settings.max_turns,
        judge=settings.judge,
        prompts=settings.prompts.digest,
        models=models,
        connections=connections,
        personas=personas,
        versions=_versions(),
    )


def _hidden(value: JsonValue) -> JsonValue:
    """The value without the keys that the environment holds; `Backend` itself refuses what is named like a secret."""
    from refinesynth.backends.redaction import redact

    if isinstance(value, dict):
        return {name: _hidden(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_hidden(item) for item in value]
    return redact(value) if isinstance(value, str) else value


def _versions() -> dict[str, str]:
    ours = {"refinesynth": __version__, "python": ".".join(map(str, sys.version_info[:3]))}
    return ours | {name: version(name) for name in _PACKAGES}
