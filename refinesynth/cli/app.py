"""Typer application: its commands, and the conversion of exceptions into messages and exit codes.

The module of a command is imported when the command is called. This keeps `--help` fast.
"""

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from io import TextIOWrapper
from pkgutil import resolve_name
from typing import Annotated, Any, cast

import typer
import typer.main
from typer.core import TyperGroup

from refinesynth._version import __version__
from refinesynth.cli.exit_codes import ExitCode, describe, traceback_text
from refinesynth.cli.interrupt import EXIT_CODES, exit_despite_threads, exit_on_signals, report_end

_DEBUG_HINT = "Run `refinesynth --debug ...` (or set REFINESYNTH_DEBUG=1) to see where it happened."


@dataclass
class Invocation:
    """State of one invocation, passed to commands as `ctx.obj`."""

    debug: bool = False
    arguments: list[str] = field(default_factory=list[str])
    """Command-line arguments without the program name."""
    own_process: bool = False
    """True if the process was started for this command; false if a program calls it."""


class CommandLine(TyperGroup):
    """Group of commands that ends with one message on standard error; `--debug` adds the traceback."""

    def main(self, args: Sequence[str] | None = None, *_: Any, **settings: Any) -> Any:
        """Run one command and exit. The program name is always `refinesynth`, and `standalone_mode` is ignored."""
        arguments = list(sys.argv[1:] if args is None else args)
        invocation = Invocation(arguments=arguments, own_process=args is None)
        settings |= {"prog_name": "refinesynth", "standalone_mode": False, "obj": invocation}
        try:
            code = super().main(arguments, **settings)
        except Exception as error:  # noqa: BLE001 - any error becomes a message
            code = _report(error, traceback=invocation.debug)
        report_end()
        sys.exit(code or ExitCode.OK)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load the called command only: the imports of a command take a second, and the help list needs none."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else _load_command(name), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command. If the reader of standard output closed the pipe, exit with 141 and no message."""
        # Read before the callback runs, because the import of the command may fail.
        ctx.obj.debug = ctx.params["debug"]
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            from refinesynth.cli.terminal import silence

            silence(sys.stdout)
            raise typer.Exit(ExitCode.BROKEN_PIPE) from None


def _report(error: Exception, *, traceback: bool) -> ExitCode:
    from refinesynth.cli.terminal import note

    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        command = "refinesynth" if context is None else context.command_path
        # pydantic prefixes the message of a validator with "Value error, ".
        text = error.format_message().replace(": Value error, ", ": ")
        message, code = f"{text}\nTry `{command} --help`.", ExitCode.WRONG_INPUT
    else:
        message, code = describe(error, debug_hint="" if traceback else _DEBUG_HINT)
    if traceback:
        note(traceback_text(error))
    note(f"refinesynth: {message}")
    return code


app = typer.Typer(
    cls=CommandLine, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)


@app.callback(invoke_without_command=True)
def _refinesynth(
    ctx: typer.Context,
    *,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="REFINESYNTH_DEBUG", help="Show the traceback of an error.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Say which version this is.", is_eager=True)] = False,
) -> None:
    """Verified agent trajectories that contain mistakes and their repair, synthesized from personas by any LLM."""
    del debug  # `CommandLine.invoke` reads it
    if version:
        print(f"refinesynth {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        print(ctx.get_help(), end="")
        raise typer.Exit(ExitCode.WRONG_INPUT)


_COMMANDS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Make data": {
        "run": ("run:run", "Make verified trajectories from personas, or go on with a run."),
        "check-backend": (
            "check_backend:check_backend",
            "Send a backend one request of each kind and play one episode.",
        ),
        "backends": ("backend_options:backends", "List the backends by name, and whether their keys are set."),
        "personas": ("personas:personas", "Deduplicate collections of personas."),
        "prompts": ("prompts:prompts", "Show what models are sent."),
        "rules": ("rules:rules", "List the rules that verify drafts and scripts."),
    },
    "Look": {
        "status": ("status:status", "Show the progress, cost and health of a run."),
        "show": ("show:show", "Read a trajectory, its mistakes and refinements marked."),
        "verify": ("verify:verify", "Check again what a run kept and refused; costs nothing."),
        "report": ("report:report", "Write a run as one HTML page: figures, cost, trajectories to read."),
        "audit": ("report:audit", "Check flags by hand or by a model: confusion matrix, agreement, kappa."),
        "view": ("report:view", "Show an evaluation in a browser."),
    },
    "Curate": {
        "merge": ("merge:merge", "Put runs together."),
        "filter": ("merge:filter_", "Keep the trajectories that a chain of rules accepts."),
        "export": ("export:export", "Write trajectories in the form that a trainer reads."),
        "publish": ("export:publish", "Publish a run as a dataset on the Hugging Face Hub."),
        "import": ("merge:import_", "Read trajectories of others into a run folder."),
        "fetch": ("merge:fetch", "Copy a run from an object store into a folder."),
    },
    "Train": {"train": ("train:train", "Tune a model: it learns from the repair, never from the mistake.")},
    "Evaluate": {
        "evaluate": ("evaluate:evaluate", "Play a model in environments that it has never seen."),
        "compare": ("evaluate:compare", "Compare evaluations: scores with intervals, paired differences."),
    },
    "Serve": {
        "serve": ("serve:serve", "Serve the rehearsal as an OpenAI-compatible API, for load tests."),
        "serve-world": ("serve:serve_world", "Serve a world of grounded play over MCP."),
    },
}
"""Help panel to its commands: name to import path below `refinesynth.cli` and summary."""
_TRAINING = "refinesynth.train.config:TrainConfig"
_SETTINGS: Mapping[str, tuple[str, Collection[str] | None]] = {
    "run": ("refinesynth.settings.run:RunSettings", None),
    "train": (_TRAINING, None),
    "export": (_TRAINING, ("tokenizer", "chat_template", "max_length", "loss_on")),
    "evaluate": ("refinesynth.evaluate.settings:Evaluation", None),
}
"""Command to the settings model of its options and the names of the fields; None takes all marked fields."""


@cache
def _load_command(name: str) -> Any:
    """Import and return the command of that name."""
    import_path = next(commands[name][0] for commands in _COMMANDS.values() if name in commands)
    command: Any = resolve_name(f"refinesynth.cli.{import_path}")
    from refinesynth.cli.field_options import with_options

    if isinstance(command, typer.Typer):
        group = command
    else:
        group = typer.Typer(add_completion=False)
        group.command(name)(command)
    model, field_names = _SETTINGS.get(name, (None, None))
    settings = None if model is None else resolve_name(model)
    for registered in group.registered_commands:
        registered.callback = with_options(cast("Callable[..., None]", registered.callback), settings, field_names)
    return typer.main.get_command(group)


def _not_loaded() -> None:
    raise AssertionError("commands are loaded before they are called")


for panel, commands in _COMMANDS.items():
    for name, (_, summary) in commands.items():
        app.command(name, help=summary, rich_help_panel=panel)(_not_loaded)


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A character that the encoding lacks is escaped; by default it would raise UnicodeEncodeError.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        # A training rank may wait for other ranks in C code, which an exception from a signal handler does not end.
        with nullcontext() if "RANK" in os.environ else exit_on_signals():
            app()
    except SystemExit as ending:
        # Not in the application: other programs call it in their own process, which must not end.
        if ending.code in EXIT_CODES.values():
            exit_despite_threads(ExitCode(ending.code))
        raise
