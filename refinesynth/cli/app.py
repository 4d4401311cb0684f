"""The application: its commands, and the one place where exceptions become messages and exit codes.

Heavy libraries (pydantic, pydantic-ai, litellm) are imported inside the commands that need them, so that `--help` is
quick.
"""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperGroup

from refinesynth._version import __version__
from refinesynth.cli.backends import backends
from refinesynth.cli.check_backend import check_backend
from refinesynth.cli.compare import compare
from refinesynth.cli.evaluate import evaluate
from refinesynth.cli.exits import ExitCode, describe, traced
from refinesynth.cli.export import OF_TOKENS, export
from refinesynth.cli.fetch import fetch
from refinesynth.cli.import_ import import_
from refinesynth.cli.interrupt import EXIT_CODES, end_promptly
from refinesynth.cli.invocation import Invocation
from refinesynth.cli.list import list_runs
from refinesynth.cli.merging import filter_, merge, sample
from refinesynth.cli.personas import personas
from refinesynth.cli.plays import ListsPlays
from refinesynth.cli.prompts import prompts
from refinesynth.cli.rules import rules
from refinesynth.cli.run import run
from refinesynth.cli.serve import serve
from refinesynth.cli.serve_world import serve_world
from refinesynth.cli.show import show
from refinesynth.cli.status import status
from refinesynth.cli.supervised import report_end
from refinesynth.cli.train import train
from refinesynth.cli.verify import verify
from refinesynth.cli.view import view

_DEBUG_HINT = "Run `refinesynth --debug ...` (or set REFINESYNTH_DEBUG=1) to see where it happened."


class CommandLine(TyperGroup):
    """A group of commands that ends with one message on standard error, and with a traceback only when asked for
    one.
    """

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run one command and exit, under its own name; typer's way of reporting (`standalone_mode`) is not used."""
        del prog_name, standalone_mode
        arguments = list(sys.argv[1:] if args is None else args)
        invocation = Invocation(arguments=arguments, own_process=args is None)
        try:
            code = super().main(
                arguments,
                prog_name="refinesynth",
                complete_var=complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                obj=invocation,
                **extra,
            )
        except Exception as error:  # noqa: BLE001 - any error becomes a message
            code = _report(error, traceback=invocation.debug)
        report_end()
        sys.exit(code or ExitCode.OK)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is called. One whose options are fields of settings gets them here: the settings take a
        second to import, and the list of commands does without.
        """
        name, command, rest = super().resolve_command(ctx, args)
        return name, _with_options(name) if name in _SETTINGS else command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; when the reader of its output went away, end quietly, as any Unix tool does."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            from refinesynth.cli.terminal import silence

            silence(sys.stdout)
            raise typer.Exit(ExitCode.NOBODY_READS) from None


def _report(error: Exception, *, traceback: bool) -> ExitCode:
    from refinesynth.cli.terminal import notes

    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        command = "refinesynth" if context is None else context.command_path
        # typer hands on what pydantic puts before the words of its own.
        said = error.format_message().replace(": Value error, ", ": ")
        message, code = f"{said}\nTry `{command} --help`.", ExitCode.WRONG_INPUT
    else:
        message, code = describe(error, debug_hint="" if traceback else _DEBUG_HINT)
    if traceback:
        notes().print(traced(error), soft_wrap=True)
    notes().print(f"refinesynth: {message}", soft_wrap=True)
    return code


_HELP = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(cls=CommandLine, pretty_exceptions_enable=False, context_settings=_HELP)


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
    ctx.obj.debug = debug
    if version:
        print(f"refinesynth {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        print(ctx.get_help(), end="")
        raise typer.Exit(ExitCode.WRONG_INPUT)


_COMMANDS: Mapping[str, Mapping[str, Callable[..., None] | typer.Typer]] = {
    "Make data": {
        "run": run,
        "check-backend": check_backend,
        "backends": backends,
        "personas": personas,
        "prompts": prompts,
        "rules": rules,
    },
    "Look": {"status": status, "list": list_runs, "show": show, "verify": verify, "view": view},
    "Curate": {
        "merge": merge,
        "filter": filter_,
        "sample": sample,
        "export": export,
        "import": import_,
        "fetch": fetch,
    },
    "Train": {"train": train},
    "Evaluate": {"evaluate": evaluate, "compare": compare},
    "Serve": {"serve": serve, "serve-world": serve_world},
}
"""Panel of the help to its commands, by name."""
_TRAINING = "refinesynth.train.config:TrainConfig"
_SETTINGS: Mapping[str, tuple[Callable[..., None], str, Collection[str] | None]] = {
    "run": (run, "refinesynth.settings.run:RunSettings", None),
    "train": (train, _TRAINING, None),
    "export": (export, _TRAINING, OF_TOKENS),
    "evaluate": (evaluate, "refinesynth.evaluate.settings:Evaluation", None),
}
"""Commands whose options are fields, the model that has them, and which; None for all that are marked."""


@cache
def _with_options(name: str) -> Any:
    from refinesynth.cli.fields import options_from

    command, model, only = _SETTINGS[name]
    module, _, model_name = model.partition(":")
    of_one = typer.Typer(context_settings=_HELP, add_completion=False)
    of_one.command(name, cls=ListsPlays)(options_from(getattr(import_module(module), model_name), command, only=only))
    return typer.main.get_command(of_one)


def _listed(command: Callable[..., None]) -> Callable[[], None]:
    """The command as it stands in the list of commands, without its options."""

    def without_options() -> None:
        raise AssertionError("its options are added before it is called")

    without_options.__doc__ = command.__doc__
    return without_options


for panel, commands in _COMMANDS.items():
    for name, command in commands.items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, rich_help_panel=panel)
        else:
            kind = ListsPlays if command is check_backend else None
            app.command(name, cls=kind, rich_help_panel=panel)(_listed(command) if name in _SETTINGS else command)


def main() -> None:
    """The entry point of the process."""
    for stream in (sys.stdout, sys.stderr):
        # What their encoding lacks is written as an escape instead of failing.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except SystemExit as ending:
        # Here and not in the application, which others run within a process of theirs.
        if ending.code in EXIT_CODES.values():
            end_promptly(ExitCode(ending.code))
        raise
