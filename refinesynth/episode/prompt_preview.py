"""Preview of all requests of an episode, by role. The rehearsal plays the episode; no model is called."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from refinesynth.backends import Backend, Role
from refinesynth.client import open_model
from refinesynth.client.default_limits import context_warning, server_facts_of
from refinesynth.client.token_usage import message_tokens, schema_tokens
from refinesynth.episode.episode import play_episode
from refinesynth.episode.play import EpisodeSettings
from refinesynth.episode.plays import find
from refinesynth.prompts import Prompts
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.settings.grounding import Grounding
from refinesynth.trajectory import Persona

_REHEARSAL = Rehearsal(Faults.none())
_SUFFICIENT_CONTEXT = 32_768
"""Context size that holds every shipped prompt with its answer, in tokens."""


async def _record_request(requests: list[dict[str, Any]], /, **request: Any) -> Any:
    keys = ("messages", "tools", "tool_choice", "response_format")
    requests.append({name: request[name] for name in keys if name in request})
    return await _REHEARSAL(**request)


def settings_of(play: str, *, prompts: Path | None = None, **more: Any) -> EpisodeSettings:
    """Return settings for an episode outside a run: the play's default rules, and `more` by field name.

    Raises:
        InputError: The play is unknown, or the prompts cannot be read.
    """
    chosen = find(play)
    drafts, scripts = chosen.rules(), chosen.script_rules(Grounding())
    return EpisodeSettings(
        rules=drafts,
        script_rules=scripts,
        prompts=Prompts(prompts, rules=(drafts, scripts)),
        play=chosen.name,
        **more,
    )


async def preview(
    persona: Persona, *, settings: EpisodeSettings, backends: Mapping[Role, Backend]
) -> dict[Role, list[dict[str, Any]]]:
    """Return the requests of an episode by role: messages, and tools or response format.

    They have the form in which `backends` would get them, but nothing is sent. The rehearsal answers without faults, so
    all requests after the ScriptWriter's first are about its script.
    """
    requests: dict[Role, list[dict[str, Any]]] = {role: [] for role in find(settings.play).roles(settings)}
    models = {
        role: open_model(backends[role].members[0], call=partial(_record_request, requests[role])) for role in requests
    }
    await play_episode(persona, index=0, settings=settings, models=models)
    return requests


async def context_warnings(
    persona: Persona, *, settings: EpisodeSettings, backends: Mapping[Role, Backend]
) -> list[str]:
    """Return a warning for each role whose longest prompt and answer exceed the known context of its model."""
    firsts = {role: backend.members[0] for role, backend in backends.items()}
    servers = {(one.model, one.base_url): one for one in firsts.values()}
    known = {server: (await server_facts_of(one)).context or _SUFFICIENT_CONTEXT for server, one in servers.items()}
    contexts = {role: known[one.model, one.base_url] for role, one in firsts.items()}
    if min(contexts.values(), default=_SUFFICIENT_CONTEXT) >= _SUFFICIENT_CONTEXT:
        return []
    found = (
        context_warning(role, firsts[role], prompt=max(map(prompt_size, requests)), context=contexts[role])
        for role, requests in (await preview(persona, settings=settings, backends=backends)).items()
        if requests
    )
    return [warning for warning in found if warning is not None]


def prompt_size(request: Mapping[str, Any]) -> int:
    """Return the estimated tokens of a request's messages and tools; a schema is not part of a prompt."""
    return message_tokens(request["messages"]) + schema_tokens({"tools": request.get("tools", [])})
