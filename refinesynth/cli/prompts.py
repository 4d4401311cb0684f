"""`refinesynth prompts`: preview of the prompts that models receive."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from refinesynth.backends import Role, resolve_roles
from refinesynth.cli.backend_options import BackendOption, Set, backend_spec, tuned
from refinesynth.cli.field_options import PlayOption, option
from refinesynth.cli.terminal import note, print_json, say
from refinesynth.cli.trajectory_text import indented
from refinesynth.client.default_limits import context_warning, server_facts_of
from refinesynth.client.token_usage import estimated_tokens
from refinesynth.episode import plays
from refinesynth.episode.prompt_preview import preview, prompt_size, settings_of
from refinesynth.errors import ConfigurationError, InputError
from refinesynth.personas import shipped
from refinesynth.trajectory import Persona

prompts = typer.Typer()


@prompts.callback()  # Without it, `show`, the only command, would be no subcommand.
def _group() -> None:
    """Look at the prompts. docs/prompts.md has more."""


@prompts.command()
def show(
    role: Annotated[
        str, typer.Argument(metavar="ROLE", help="script_writer, dungeon_master, player, narrator, repairer or judge.")
    ],
    *,
    play: PlayOption = None,
    persona: Annotated[str | None, option(metavar="TEXT", help="Whose episode; by default one of our own.")] = None,
    request: Annotated[int, option(min=1, help="The role's first request, its second, ...")] = 1,
    seed: Annotated[int, option(help="The run's seed, which draws the examples.")] = 0,
    own: Annotated[Path | None, option("--prompts", metavar="FOLDER", help="Your own prompt templates.")] = None,
    backend: BackendOption = None,
    set_: Set = None,
    json: Annotated[bool, option(help="As one JSON object, as it goes out.")] = False,
) -> None:
    """Print a request to a model, and its number of tokens on standard error. No model is called: the rehearsal plays
    the episode.
    """
    if persona is not None and not persona.strip():
        raise InputError("--persona is blank; give a sentence about a person")
    chosen_play = plays.find(play or "live")
    repairer = "model" if role == "repairer" else None
    settings = settings_of(chosen_play.name, prompts=own, seed=seed, judge=role == "judge", repairer=repairer)
    backends = resolve_roles(tuned(backend_spec(backend or []) or "rehearsal", set_ or []))
    asked_role = _role(role, chosen_play.roles(settings), chosen_play.name)
    person = Persona(text=persona) if persona else shipped()[0]

    requests = anyio.run(partial(preview, person, settings=settings, backends=backends))[asked_role]
    if request > len(requests):
        raise InputError(f"--request {request}: in this episode, {asked_role.value} is asked {len(requests)} times")
    role_backend = backends[asked_role].members[0]
    _print(requests[request - 1], model=role_backend.model, json=json)
    context = anyio.run(server_facts_of, role_backend).context
    if warning := context_warning(asked_role, role_backend, prompt=prompt_size(requests[request - 1]), context=context):
        note(f"! {warning}", "yellow")


def _role(text: str, play_roles: tuple[Role, ...], play: str) -> Role:
    name = text.strip().casefold().replace("-", "_")
    roles = [*(role.value for role in play_roles), *(role for role in ("repairer", "judge") if role not in play_roles)]
    if name not in roles:
        raise ConfigurationError(f"{play} play asks no {text!r}; the roles that it asks are {', '.join(roles)}")
    return Role(name)


def _print(request: dict[str, Any], *, model: str, json: bool) -> None:
    parts = [(item["role"], item["content"] or indented(item.get("tool_calls"))) for item in request["messages"]]
    parts += [(name, indented(request[name])) for name in ("tools", "response_format") if name in request]
    counts = [(name, estimated_tokens([text])) for name, text in parts]
    total = sum(count for _, count in counts)
    if json:
        print_json({"model": model, **request, "tokens": total})
        return
    for name, text in parts:
        say(f"--- {name}\n{text}\n")
    breakdown = ", ".join(f"{name} {count:,}" for name, count in counts)
    note(f"about {total:,} tokens ({breakdown}), estimated; {model} may count otherwise, and adds marks of its own")
