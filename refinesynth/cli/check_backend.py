"""`refinesynth check-backend`: what works with a backend, what to set, what an episode costs."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated

import typer

from refinesynth.backends import Backend
from refinesynth.cli.display import Display
from refinesynth.cli.exits import ExitCode
from refinesynth.cli.plays import PlayOption
from refinesynth.cli.running import displayed, import_backends
from refinesynth.cli.terminal import notes, output
from refinesynth.cli.tuning import Set, tuned_backend
from refinesynth.client.lacks import Lack
from refinesynth.episode import backend_check
from refinesynth.episode.backend_check import BackendCheck, Probe
from refinesynth.personas import shipped
from refinesynth.synthesis.dry_run import Estimate, estimate
from refinesynth.synthesis.progress import Progress
from refinesynth.text.figures import compact, counted, dollars, duration
from refinesynth.text.printable import one_line

_MOST = 300


def check_backend(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A preset or a litellm model string.")],
    *,
    play: PlayOption = None,
    set_: Set = None,
) -> None:
    """Send a backend the requests of each role, in every form, and play one episode. This makes paid requests."""
    backend = tuned_backend(name, set_ or [])
    display = Display(notes())
    display.say(f"asks {backend.label} for real, and pays for that; nothing is kept")
    import_backends({"backend": backend})
    playable, code = displayed(partial(_check, backend, play or "live"), display)
    raise typer.Exit(code if playable is None else ExitCode.OK if playable else ExitCode.FELL_SHORT)


async def _check(backend: Backend, play: str, *, on_progress: Callable[[Progress], None]) -> bool:
    def say(line: str) -> None:
        output().print(one_line(line, most=_MOST), soft_wrap=True)

    persona = shipped()[0]
    found = await backend_check.check_backend(backend, persona, play=play, on_probe=lambda probe: say(_became(probe)))
    for line in _lines(found):
        say(line)
    if not found.playable:
        return False
    best = tuned_backend(backend, found.settings)
    episode = await estimate([persona], 1, best, sample=1, play=play, on_progress=on_progress)
    say(_episode(episode))
    return True


def _became(probe: Probe) -> str:
    return f"{probe.role.value.replace('_', ' ')}, {probe.form}: {probe.problem or 'works'}"


def _lines(found: BackendCheck) -> Iterator[str]:
    yield "key and model: accepted"
    yield f"seed: {'refused' if Lack.SEED in found.lacks else 'taken' if found.backend.seed else 'switched off'}"
    yield f"usage: {'not reported with every answer; such tokens are estimated' if any(probe.estimated for probe in found.probes) else 'reported'}"
    prompt, cached = (sum(getattr(one, name) for one in found.probes) for name in ("prompt_tokens", "cached_tokens"))
    yield f"cached tokens: {f'{cached:,} of {prompt:,}' if cached else 'none reported'}"
    yield f"reasoning: {'yes, which is paid for' if any(probe.thought for probe in found.probes) else 'none seen'}"
    if mark := next((probe.mark for probe in found.probes if probe.mark), None):
        yield (
            f"thoughts: in the text of the answers, up to {mark}; they are taken out, but start the server with the "
            "reasoning parser of its model (vLLM, SGLang: --reasoning-parser), so that it separates them"
        )
    if artefact := next((probe.artefact for probe in found.probes if probe.artefact), None):
        yield f"calls: {artefact}; it is put right, but start the server with the tool parser of its model"
    if not found.playable:
        yield "no run can be played with it: there is no form in which every role gave an answer to use"
        return
    yield f"structured answers: output_mode={found.mode}"
    settings = " ".join(f"--set {one}" for one in found.settings)
    yield f"give: {settings or 'no --set; what works is found by itself'}"
    if found.problems("calls"):
        yield "leave --player-form at react: this player calls no tools"


def _episode(played: Estimate) -> str:
    usage, paid = played.paid.usage, played.paid.cost_usd
    return (
        f"an episode: {counted(usage.requests, 'request')}, {compact(usage.input_tokens)} tokens in "
        f"({compact(usage.cached_tokens)} cached), {compact(usage.output_tokens)} out, "
        f"cost {'unknown' if paid is None else dollars(paid)}, {duration(played.elapsed)}, "
        f"{'accepted' if played.accepted else 'not accepted'}"
    )
