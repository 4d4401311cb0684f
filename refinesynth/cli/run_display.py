"""Run or estimate from start to report: synthesis with a display, and the stop after a signal."""

import logging
import shlex
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from refinesynth.cli.display import LOG_EVERY, Display
from refinesynth.cli.exit_codes import ExitCode
from refinesynth.cli.interrupt import Interrupt, interruptible
from refinesynth.cli.run_records import continue_command
from refinesynth.cli.status import as_json, print_status
from refinesynth.cli.terminal import note, notes, print_json, say
from refinesynth.errors import (
    BackendError,
    ConfigurationError,
    RefinesynthError,
    RuleFailed,
    RunFolderError,
    StorageError,
)
from refinesynth.files.output_folder import is_url, next_old_path
from refinesynth.personas import shipped
from refinesynth.run import RunFolder
from refinesynth.run.event_log import LOGGER, facts_of
from refinesynth.run.status import RunStatus
from refinesynth.settings import RunSettings
from refinesynth.stores import work_folder
from refinesynth.synthesis import SynthesisResult, synthesize
from refinesynth.synthesis.concurrency import max_in_flight_of, tune_gc
from refinesynth.synthesis.dry_run import CONFIDENCE, SAMPLE, estimate
from refinesynth.text.formatting import counted, dollars, duration, one_line

if TYPE_CHECKING:
    from refinesynth.backends import Backend
    from refinesynth.client.http.transport import TransportChoice

_Result = TypeVar("_Result")


def run_and_report(
    options: Mapping[str, Any], location: Path | str, arguments: Sequence[str], *, json: bool = False
) -> ExitCode:
    """Run into `location`, a folder or a URL, print the report and return the exit code.

    The report goes to standard output (`json` as one object), everything else to standard error. `arguments` are those of
    the command line, for the command that continues the run. Raises what `synthesize` raises; BackendError, RuleFailed and
    StorageError after the report.
    """
    n = RunSettings.make({name: options.get(name) for name in ("n", "shard")}).wanted()
    display = Display(notes())
    display.say(_announcement(options, location))
    folder = work_folder(str(location)) if is_url(location) else Path(location)
    accepted = None if options.get("fresh") else _accepted_count(folder)
    if accepted is not None and accepted < n:
        display.say(f"goes on with the run that is there: {accepted:,} of {n:,} accepted so far")
    elif options.get("fresh") and not is_url(location) and _accepted_count(folder) is not None:
        display.say(one_line(f"the run that is there is kept as {next_old_path(folder.resolve())}"))
    if accepted is None or accepted < n:
        import_backends(options)
        with suppress(RefinesynthError):  # which `synthesize` raises again
            for line in _limit_lines(options, location):
                display.say(line)
    try:
        result, code = run_displayed(partial(synthesize, **options, output=location), display)
    except (BackendError, RuleFailed, StorageError):
        _report_unfinished(folder, "stopped", arguments, json=json)
        raise
    if result is None:
        _report_unfinished(folder, "interrupted", arguments, json=json)
        return code
    if accepted is not None and accepted >= n:
        display.say(f"nothing was left to do: {accepted:,} of {n:,} were accepted before")
    _report(result, result.shortfall, json=json)
    if is_url(location):
        display.say(f"all of it is in {location}")
    return ExitCode.OK if result.reached else ExitCode.INCOMPLETE


def _accepted_count(folder: Path) -> int | None:
    try:
        return RunFolder.open(folder).totals().accepted
    except RefinesynthError:
        # `synthesize` reports the problem when it opens the folder for writing.
        return None


def import_backends(options: Mapping[str, Any]) -> None:
    """Import the modules of the backends before signals are handled; raises ConfigurationError for unknown backends."""
    for name in ("refinesynth.episode", "refinesynth.client.session"):
        import_module(name)
    if any(choice.path == "litellm" for choice in _choices(options)):
        from refinesynth.client.litellm_sdk import litellm

        litellm()


def run_displayed(work: Callable[..., Awaitable[_Result]], display: Display) -> tuple[_Result | None, ExitCode]:
    """Run `work` with a display; return its result, None after a signal, and the exit code of an interruption."""
    tune_gc()
    with interruptible() as interrupt:
        display.open()
        try:
            result = anyio.run(_run_work, work, display, interrupt)
        finally:
            display.close()
    return result, interrupt.exit_code or ExitCode.INTERRUPTED


async def _run_work(work: Callable[..., Awaitable[_Result]], display: Display, interrupt: Interrupt) -> _Result | None:
    if interrupt.received is not None:
        return None
    result: _Result | None = None
    failure: BaseException | None = None
    with show_events(display.say):
        async with anyio.create_task_group() as tasks:
            interrupt.cancel_on_signal(tasks.cancel_scope)
            tasks.start_soon(_tick, display)
            try:
                result = await work(on_progress=display.update)
            except Exception as error:  # noqa: BLE001
                # Raised after the task group, which would wrap it in an ExceptionGroup.
                failure = error
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return result


async def _tick(display: Display) -> None:
    while True:
        await anyio.sleep(LOG_EVERY)
        display.tick()


def _announcement(options: Mapping[str, Any], folder: Path | str) -> str:
    personas, scripts = options.get("personas"), options.get("scripts")
    source = "the personas that come with refinesynth" if personas is None else str(personas)
    source = source if scripts is None else f"the scripts of {scripts}"
    backend: str | Mapping[str, str | Backend | Sequence[str | Backend]] = options.get("backend", "rehearsal")
    by_role = {"default": backend} if isinstance(backend, str) else backend
    labels = {role: _label(spec) for role, spec in by_role.items()}
    single = labels.keys() == {"default"}
    models = labels["default"] if single else ", ".join(f"{role}={label}" for role, label in labels.items())
    offline = " (built in, offline, free)" if models.partition(":")[0] == "rehearsal" else _transport_clause(options)
    shard_prefix = "" if options.get("shard") is None else f"shard {options['shard']} of "
    max_in_flight = max_in_flight_of(options.get("concurrency") or "auto")
    batches = f", in batches of up to {max_in_flight} requests (--concurrency)" if options.get("batch") else ""
    return one_line(
        f"{shard_prefix}{counted(options['n'], 'trajectory', 'trajectories')} from {source}, by {models}{offline}{batches}, into {folder}"
    )


def _label(backend: "str | Backend | Sequence[str | Backend]") -> str:
    if isinstance(backend, str):
        return backend
    return " and ".join(map(_label, backend)) if isinstance(backend, Sequence) else backend.label


def _limit_lines(options: Mapping[str, Any], location: Path | str) -> list[str]:
    """Lines on the default bounds of completions, and on prompts that do not fit the context of their model."""
    from refinesynth.client.default_limits import bound_of
    from refinesynth.episode.prompt_preview import context_warnings
    from refinesynth.synthesis.request import Request

    request = Request.of({**options, "output": location})
    settings = request.episodes()
    backends, _ = request.backends(settings)
    bounds = {
        role.value.replace("_", " "): bound
        for role in sorted(request.bounded(backends))
        if backends[role].max_tokens is None and (bound := bound_of(role, backends[role].members[0])) is not None
    }
    limits = ", ".join(f"{bound:,} tokens ({role})" for role, bound in bounds.items())
    lines = [f"an answer has at most {limits}; --set ROLE.max_tokens=N sets another bound"] if bounds else []
    warnings = anyio.run(partial(context_warnings, shipped()[0], settings=settings, backends=backends))
    return [*lines, *(f"! {warning}" for warning in warnings)]


def _transport_clause(options: Mapping[str, Any]) -> str:
    """Transport of each backend and the reason for it, in brackets; empty for the rehearsal."""
    with suppress(ConfigurationError):
        transports = dict.fromkeys(f"{path}: {reason}" for path, reason in _choices(options) if path != "built in")
        return f" ({', '.join(transports)})" if transports else ""
    return ""


def _choices(options: Mapping[str, Any]) -> list["TransportChoice"]:
    from refinesynth.backends import resolve_roles
    from refinesynth.client.http.transport import path_of

    backends = [
        backend for mix in resolve_roles(options.get("backend", "rehearsal")).values() for backend in mix.members
    ]
    return [path_of(backend, in_flight=max_in_flight_of(options.get("concurrency") or "auto")) for backend in backends]


def _report(result: SynthesisResult, shortfall: str | None, *, json: bool) -> None:
    # A closed pipe does not change the exit code: the files of the run are already written.
    with suppress(BrokenPipeError):
        current = RunStatus.of(RunFolder.open(result.path))
        if json:
            print_json(as_json(current))
            return
        print_status(current)
        if shortfall is not None:
            say(f"\n{shortfall}", "yellow")
        if result.scripts_refused + result.drafts_refused:
            say(f"`refinesynth show {shlex.quote(str(result.path))} --refused` lists what was refused.")


def _report_unfinished(folder: Path, state: str, arguments: Sequence[str], *, json: bool) -> None:
    try:
        result = SynthesisResult.open(folder)
    except RunFolderError:
        # The error that stopped the run has its own message; the folder may not exist.
        if state == "interrupted":
            note(f"{state} before anything was written")
        return
    except StorageError:
        return
    _report(result, None, json=json)
    note(f"{state}: everything finished so far is in {one_line(str(folder))}. To continue:")
    note(f"  {one_line(continue_command(arguments, folder))}", "bold")


_SHOWN_EVENTS = frozenset(
    {
        "goes_without",
        "loading",
        "batch_sent",
        "batch_ended",
        "store",
        "workers_wait",
        "block_lost",
        "real_tools",
    }
)


@contextmanager
def show_events(say: Callable[[str], None]) -> Generator[None]:
    """Show each distinct text of the events in `_SHOWN_EVENTS` once within the block."""
    logger, handler = logging.getLogger(LOGGER), _OnceHandler(say)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _OnceHandler(logging.Handler):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._say = say
        self._shown_keys: set[object] = set()

    def emit(self, record: logging.LogRecord) -> None:
        facts = facts_of(record)
        key = facts.get("text") if facts["event"] in _SHOWN_EVENTS else None
        if key is not None and key not in self._shown_keys:
            self._shown_keys.add(key)
            mark = "! " if record.levelno >= logging.WARNING else ""
            self._say(one_line(f"{mark}{record.getMessage()}"))


def estimate_and_report(options: Mapping[str, Any], *, sample: int | None, json: bool) -> ExitCode:
    """Estimate a run, print the estimate and return the exit code; raises what `estimate` raises."""
    count = sample or SAMPLE
    display = Display(notes())
    display.say(f"dry run: plays {counted(count, 'persona')} for real, and pays for that; nothing is kept")
    import_backends(options)
    result, code = run_displayed(partial(estimate, **options, sample=count), display)
    if result is None:
        display.say("interrupted before there was anything to report")
        return code
    # A closed pipe does not change the exit code: the episodes are played and paid for.
    with suppress(BrokenPipeError):
        if json:
            print_json(result.as_json())
        else:
            cost = "" if result.paid.cost_usd is None else f", cost {dollars(result.paid.cost_usd)}"
            say(
                f"\n{counted(result.episodes, 'persona')} of {one_line(result.source)} played, "
                f"{counted(result.accepted, 'trajectory', 'trajectories')} accepted, in {duration(result.elapsed)}{cost}.\n\n{result}\n\n"
                f"Yield, and what an episode takes, lie in their ranges {CONFIDENCE:.0%} of the time, if other personas are like "
                f"these; the time, if the backend keeps up. A larger --sample narrows them."
            )
    return ExitCode.OK
