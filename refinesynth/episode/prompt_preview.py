"""Preview of the requests of each role in an episode, word for word. The rehearsal plays it, whichever models it is
meant for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refinesynth.backends import Backend, Role
from refinesynth.client import open_model
from refinesynth.client.default_limits import facts_of, misfit
from refinesynth.client.token_usage import count_tokens
from refinesynth.episode.episode import play_episode
from refinesynth.episode.play import EpisodeSettings
from refinesynth.episode.plays import find
from refinesynth.prompts import Prompts
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.settings.grounding import Grounding
from refinesynth.trajectory import Persona

_PERFECT = Rehearsal(Faults.none())
_AMPLE = 32_768
"""Context that holds every prompt of ours with its answer."""


@dataclass
class _Recorder:
    """Completion function that keeps its requests, in order."""

    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    async def __call__(self, **request: Any) -> Any:
        kept = ("messages", "tools", "tool_choice", "response_format")
        self.asked.append({name: request[name] for name in kept if name in request})
        return await _PERFECT(**request)


def settings_of(play: str, *, prompts: Path | None = None, **more: Any) -> EpisodeSettings:
    """Settings of an episode outside a run: this play's usual rules, and `more` by name."""
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
    persona: Persona, *, settings: EpisodeSettings, backends: Mapping[Role, Backend], index: int = 0
) -> dict[Role, list[dict[str, Any]]]:
    """The requests of an episode by role: messages, and tools or a response format where an answer is held to a schema.

    They are in the form that `backends` are asked in, but nothing is sent: the rehearsal answers, so that everything
    after the ScriptWriter's first request is about a script of its own, and nothing goes wrong by itself.
    """
    recorders = {role: _Recorder() for role in find(settings.play).roles(settings)}
    models = {role: open_model(backends[role].each[0], call=recorder) for role, recorder in recorders.items()}
    await play_episode(persona, index=index, settings=settings, models=models)
    return {role: recorder.asked for role, recorder in recorders.items()}


async def misfits(persona: Persona, *, settings: EpisodeSettings, backends: Mapping[Role, Backend]) -> list[str]:
    """Return a warning for each role whose longest prompt and answer do not fit its model's context, as far as known."""
    asked_by = {role: backend.each[0] for role, backend in backends.items()}
    servers = {(one.model, one.base_url): one for one in asked_by.values()}
    known = {server: (await facts_of(one)).context or _AMPLE for server, one in servers.items()}
    contexts = {role: known[one.model, one.base_url] for role, one in asked_by.items()}
    if min(contexts.values(), default=_AMPLE) >= _AMPLE:
        return []
    asked = await preview(persona, settings=settings, backends=backends)
    found = (
        misfit(role, asked_by[role], prompt=max(map(prompt_tokens, requests)), context=contexts[role])
        for role, requests in asked.items()
        if requests
    )
    return [warning for warning in found if warning is not None]


def prompt_tokens(request: Mapping[str, Any]) -> int:
    """Return the tokens of a request's messages and tools by the tokenizer of GPT-4; a schema is no part of a prompt."""
    texts = [str(message["content"] or message.get("tool_calls")) for message in request["messages"]]
    return sum(map(count_tokens, [*texts, *map(str, request.get("tools", ()))]))
