"""`refinesynth check-backend`: working features of a backend, settings to give, and one test episode."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from refinesynth.backends import Role
from refinesynth.cli.backend_options import Set, tuned_backend
from refinesynth.cli.display import Display
from refinesynth.cli.exit_codes import ExitCode
from refinesynth.cli.field_options import PlayOption, option
from refinesynth.cli.run_display import import_backends, run_displayed
from refinesynth.cli.terminal import note, notes, say
from refinesynth.client.request_arguments import UnsupportedFeature
from refinesynth.client.token_usage import ESTIMATED
from refinesynth.episode.backend_check import BackendCheck, Probe
from refinesynth.personas import shipped
from refinesynth.synthesis.dry_run import estimate
from refinesynth.text.formatting import compact, counted, dollars, duration, one_line

_MAX_LINE_LENGTH = 300


def check_backend(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A preset or a litellm model string.")],
    *,
    play: PlayOption = None,
    roles: Annotated[
        str | None, option(metavar="ROLES", help="Ask these alone, such as player,dungeon_master.")
    ] = None,
    forms: Annotated[str | None, option(hidden=True)] = None,
    set_: Set = None,
) -> None:
    """Send a backend the requests of each role, in every form, and play one episode. This makes paid requests.

    Each request is announced with its bounds. After Ctrl-C, the findings so far are printed.
    """
    if forms is not None:
        note("! --forms is gone and does nothing: each role is asked in every form")
    backend = tuned_backend(name, set_ or [])
    display = Display(notes())
    display.say(f"asks {backend.label} for real, and pays for that; nothing is kept")
    import_backends({"backend": backend})
    role_names = [name.strip() for name in (roles or "").casefold().replace("-", "_").split(",") if name.strip()]

    def announce(role: Role, form: str, prompt: int, max_tokens: int | None) -> None:
        bound = f"{max_tokens:,}" if max_tokens else "as many as its context leaves"
        display.say(
            f"asks {_name(role, form)}: about {prompt:,} tokens; the answer may have {bound}, and take {backend.timeout:g} s"
        )

    check = BackendCheck(backend, announce, _say_result)

    async def probe(**_: object) -> bool:
        await check.run(shipped()[0], play=play or "live", roles=role_names)
        return True

    finished, code = run_displayed(probe, display)
    for line in _findings(check) if check.probes else ():
        _say(line)
    if finished is None:
        display.say(f"interrupted after {counted(len(check.probes), 'request')}; nothing more is asked")
        raise typer.Exit(code)
    if check.playable and not role_names:
        display.say("plays one episode")
        work = partial(
            estimate, shipped()[:1], 1, tuned_backend(backend, check.settings), sample=1, play=play or "live"
        )
        episode, code = run_displayed(work, display)
        if episode is None:
            raise typer.Exit(code)
        usage, paid = episode.paid.usage, episode.paid.cost_usd
        _say(
            f"an episode: {counted(usage.requests, 'request')}, {compact(usage.input_tokens)} tokens in "
            f"({compact(usage.cached_tokens)} cached), {compact(usage.output_tokens)} out, "
            f"cost {'unknown' if paid is None else dollars(paid)}, {duration(episode.elapsed)}, "
            f"{'accepted' if episode.accepted else 'not accepted'}"
        )
    raise typer.Exit(ExitCode.OK if check.playable else ExitCode.INCOMPLETE)


def _say(line: str) -> None:
    say(one_line(line, size=_MAX_LINE_LENGTH))


def _name(role: Role, form: str) -> str:
    return f"{role.value.replace('_', ' ')}, {form}"


def _say_result(probe: Probe) -> None:
    result, tokens = probe.problem or "works", probe.usage.output_tokens
    if probe.refusal:
        result = f"works, but the rules refuse its script: {probe.refusal}"
    details = f" ({duration(probe.seconds)}, {counted(tokens, 'token')})" if tokens else ""
    _say(f"{_name(probe.role, probe.form)}: {result}{details}")


def _findings(check: BackendCheck) -> Iterator[str]:
    if any(not probe.refused for probe in check.probes):
        yield "key and model: accepted"
    yield f"seed: {'refused' if UnsupportedFeature.SEED in check.unsupported else 'taken' if check.backend.seed else 'switched off'}"
    yield f"usage: {'not reported with every answer; such tokens are estimated' if any(ESTIMATED in probe.usage.details for probe in check.probes) else 'reported'}"
    prompt = sum(probe.usage.input_tokens for probe in check.probes)
    cached = sum(probe.usage.cache_read_tokens for probe in check.probes)
    yield f"cached tokens: {f'{cached:,} of {prompt:,}' if cached else 'none reported'}"
    yield f"reasoning: {'yes, which is paid for' if any(probe.has_reasoning for probe in check.probes) else 'none seen'}"
    if mark := next((probe.thinking_mark for probe in check.probes if probe.thinking_mark), None):
        yield (
            f"thoughts: in the text of the answers, up to {mark}; they are taken out, but start the server with the "
            "reasoning parser of its model (vLLM, SGLang: --reasoning-parser), so that it separates them"
        )
    if artefact := next((probe.artefact for probe in check.probes if probe.artefact), None):
        yield f"calls: {artefact}; it is put right, but start the server with the tool parser of its model"
    scripts = [probe for probe in check.probes if probe.role is Role.SCRIPT_WRITER and not probe.problem]
    if scripts:
        passed = sum(probe.refusal is None for probe in scripts)
        yield f"scripts: the rules accept {passed} of {len(scripts)}{'' if passed else '; try another model for the script writer'}"
    if not check.playable:
        yield "no run can be played with it: there is no form in which every role gave an answer to use"
        return
    if check.mode is not None:
        yield f"structured answers: output_mode={check.mode}"
    settings = " ".join(f"--set {setting}" for setting in check.settings)
    yield f"give: {settings or 'no --set; what works is found by itself'}"
    if check.problems("calls"):
        yield "leave --player-form at react: this player calls no tools"
