"""A run from start to report: synthesize under a display, end on a signal, say what came of it."""

import asyncio
import gc
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from refinesynth.cli.display import LOG_EVERY, Display, choose
from refinesynth.cli.exits import ExitCode
from refinesynth.cli.funnel import funnel, how_to_resume, next_commands
from refinesynth.cli.interrupt import Interrupt, interruptible
from refinesynth.cli.printable import one_line
from refinesynth.cli.terminal import notes, output
from refinesynth.errors import BackendError, RunFolderError
from refinesynth.synthesis import SynthesisResult, synthesize

if TYPE_CHECKING:
    from refinesynth.backends import Backend


def fresh_folder(parent: Path = Path("runs")) -> Path:
    """A folder under `parent` named by the time, which is not there yet."""
    name = time.strftime("%Y%m%d-%H%M%S")
    folder, number = parent / name, 1
    while folder.exists():
        number += 1
        folder = parent / f"{name}-{number}"
    return folder


def run_and_report(asked: Mapping[str, Any], folder: Path, arguments: Sequence[str]) -> ExitCode:
    """Run what was asked for into `folder`, report on it, and return the exit code.

    Standard output gets the report, standard error everything before it. `arguments` are those of the command line, for the
    command that resumes the run.

    Raises:
        RefinesynthError: As `synthesize` raises it; if a backend stopped the run, after the report.
    """
    display = choose(notes())
    display.say(_announcement(asked, folder))
    _import_backends(asked)
    _calm_garbage_collector()
    stopped: BackendError | None = None
    result: SynthesisResult | None = None
    with interruptible() as interrupt:
        display.open()
        try:
            result = anyio.run(_synthesize, {**asked, "output": folder}, display, interrupt)
        except BackendError as error:
            stopped = error
        finally:
            display.close()
        if interrupt.exit_code is not None and result is None:
            _report_unfinished(folder, "interrupted", arguments)
            return interrupt.exit_code
    if stopped is not None:
        _report_unfinished(folder, "stopped", arguments)
        raise stopped
    if result is None:
        raise AssertionError("a run ends with a result, a signal or an error")
    _report(result, result.shortfall)
    return ExitCode.OK if result.reached else ExitCode.FELL_SHORT


def _import_backends(asked: Mapping[str, Any]) -> None:
    """Import what the backends need, litellm among it, while Ctrl-C still breaks off an import: that takes seconds.

    Raises:
        ConfigurationError: There is no such backend; the run would have said the same.
    """
    from refinesynth.backends import resolve_roles

    import_module("refinesynth.episode")

    if not all(backend.rehearses for backend in resolve_roles(asked.get("backend", "rehearsal")).values()):
        from refinesynth.backends.litellm_sdk import litellm

        litellm()


def _calm_garbage_collector() -> None:
    """Look for garbage cycles less often, and never among what is imported by now.

    With many episodes in flight this saves an eighth of the CPU and more, and at the end the interpreter does not go through
    all of litellm once again, which took longer than a user waits after Ctrl-C. Nothing is put back: the process ends.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


async def _synthesize(asked: Mapping[str, Any], display: Display, interrupt: Interrupt) -> SynthesisResult | None:
    """The result; None if a signal came first."""
    if interrupt.received is not None:
        return None
    loop = asyncio.get_running_loop()
    result: SynthesisResult | None = None
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        # A signal handler may run in the middle of anything; the loop does the cancelling when it comes to it.
        interrupt.stops(lambda: loop.call_soon_threadsafe(tasks.cancel_scope.cancel))
        tasks.start_soon(_tick, display)
        try:
            result = await synthesize(**asked, on_progress=display.update)
        except Exception as error:  # noqa: BLE001
            # Raised below: out of a task group it would come wrapped in a group.
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return result


async def _tick(display: Display) -> None:
    while True:
        await anyio.sleep(LOG_EVERY)
        display.tick()


def _announcement(asked: Mapping[str, Any], folder: Path) -> str:
    personas = asked.get("personas")
    source = "the personas that come with refinesynth" if personas is None else str(personas)
    backend: str | Mapping[str, str | Backend] = asked.get("backend", "rehearsal")
    given = {"default": backend} if isinstance(backend, str) else backend
    labels = {role: each if isinstance(each, str) else each.label for role, each in given.items()}
    one = labels.keys() == {"default"}
    models = labels["default"] if one else ", ".join(f"{role}={label}" for role, label in labels.items())
    offline = " (built in, offline, free)" if models.partition(":")[0] == "rehearsal" else ""
    return one_line(f"{asked['n']:,} trajectories from {source}, by {models}{offline}, into {folder}")


def _report(result: SynthesisResult, shortfall: str | None) -> None:
    # Whoever does not read the report still gets the run's exit code: the run is done, and its files are there.
    with suppress(BrokenPipeError):
        console = output()
        console.print()
        console.print(funnel(result))
        console.print()
        if shortfall is not None:
            console.print(f"{shortfall}", style="yellow", soft_wrap=True)
        commands = next_commands(
            result.path, accepted=len(result), refused=result.scripts_refused + result.drafts_refused
        )
        console.print(f"The run is in {one_line(str(result.path))}.{' Next:' if commands else ''}", soft_wrap=True)
        for command in commands:
            console.print(f"  {one_line(command)}", style="bold", soft_wrap=True)


def _report_unfinished(folder: Path, how: str, arguments: Sequence[str]) -> None:
    """Report on what is there; if a run was not even begun, there is nothing to say."""
    try:
        result = SynthesisResult.open(folder)
    except RunFolderError:
        notes().print(f"{how} before anything was written", soft_wrap=True)
        return
    _report(result, None)
    console = notes()
    console.print(f"{how}: everything finished so far is in {one_line(str(folder))}. To continue:", soft_wrap=True)
    console.print(f"  {one_line(how_to_resume(arguments, folder))}", style="bold", soft_wrap=True)
