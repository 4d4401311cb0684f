"""`refinesynth run`: synthesis of trajectories from personas."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer

from refinesynth.cli.app import Invocation
from refinesynth.cli.backend_options import BackendOption, Set, backend_spec, split_fallback, tuned, tuned_fallback
from refinesynth.cli.field_options import PlayOption, flag, option, option_names, values_by_field
from refinesynth.cli.interrupt import supervise
from refinesynth.cli.terminal import note
from refinesynth.errors import ConfigurationError, InputError
from refinesynth.option import ADVANCED, INPUT, MODEL, OUTPUT
from refinesynth.settings import RunSettings


def run(
    ctx: typer.Context,
    personas: Annotated[str | None, typer.Argument(metavar="PERSONAS")] = None,
    *,
    preset: Annotated[Literal["paper", "small"] | None, option(panel=INPUT)] = None,
    config: Annotated[Path | None, option(panel=INPUT, metavar="FILE")] = None,
    backend: BackendOption = None,
    set_: Set = None,
    fallback: Annotated[str | None, option(panel=MODEL, metavar="NAME")] = None,
    play: PlayOption = None,
    fresh: Annotated[bool, option(panel=OUTPUT)] = False,
    json: Annotated[bool, option(panel=OUTPUT)] = False,
    dry_run: Annotated[bool, option(panel=ADVANCED)] = False,
    sample: Annotated[int | None, option(panel=ADVANCED, min=1)] = None,
    retry_failed: Annotated[bool | None, option(hidden=True)] = None,
    **settings: Any,
) -> None:
    """Make N verified trajectories from personas. The same command again continues a run that was interrupted.

    Exits with 0 when N were accepted, 1 when there are fewer or it stopped early, 2 when an option or a file cannot be
    used, 3 when the folder cannot be written, 130 after Ctrl-C.

    Options:
        personas: JSONL with `persona` or `text`, CSV, TSV or plain text, .gz too; - for
            standard input. By default the personas that come with refinesynth.
        preset: The paper's procedure, or settings for local models below about 8B; other options override parts of it.
        config: Settings by name in YAML or JSON; options override them.
        fallback: A second backend, asked while the first is down or cannot be asked any more. --set
            fallback.SETTING=VALUE sets it alone.
        fresh: Start over; a run that is in FOLDER is kept beside it, as FOLDER.old-1.
        json: The report as one JSON object.
        dry_run: Play a handful of personas for real, which costs money, and say what N will take. Writes nothing to -o.
        sample: With --dry-run: how many personas to play, by default 8.
    """
    from refinesynth.cli.run_display import estimate_and_report, run_and_report
    from refinesynth.episode import plays
    from refinesynth.run import free_run_folder
    from refinesynth.settings.setting_presets import paper, small
    from refinesynth.synthesis.request import settings_of

    if retry_failed is not None:
        note("! --retry-failed is gone and does nothing; give the failed personas to a new run, and merge both")
    file_settings = {} if config is None else settings_of(config)
    explicit = {"personas": personas, "play": play, "backend": backend_spec(backend or [])}
    typed = _typed_settings({**settings, **explicit}, file_settings)
    presets = {"paper": paper, "small": partial(small, typed.get("play") or file_settings.get("play") or "live")}
    preset_settings = {} if preset is None else presets[preset]()
    _check_preset(preset, preset_settings, typed)
    merged: dict[str, Any] = {**preset_settings, **file_settings, **typed}
    if "n" not in merged:
        raise typer.BadParameter("give -n NUMBER, or n in a file for --config", param_hint="'-n'")
    checked = RunSettings.make(merged, names=option_names(RunSettings, settings))
    plays.PLAYS.entry(checked.play)
    merged.update((name, getattr(checked, name)) for name in checked.model_fields_set)
    fallback_settings, role_settings = split_fallback(set_ or [])
    merged["backend"] = tuned(merged.get("backend", "rehearsal"), role_settings)
    if (fallback_backend := tuned_fallback(fallback, fallback_settings)) is not None:
        merged["fallback"] = fallback_backend
    if dry_run:
        merged.pop("output", None)
        raise typer.Exit(estimate_and_report(merged, sample=sample, json=json))
    if sample is not None:
        raise InputError("--sample is for --dry-run alone; give that too, or leave it out")
    invocation: Invocation = ctx.obj
    location = merged.pop("output", None) or free_run_folder()
    if invocation.own_process and (merged.get("cluster") or (merged.get("workers") or 1) > 1):
        supervise()
    raise typer.Exit(run_and_report({**merged, "fresh": fresh}, location, invocation.arguments, json=json))


def _typed_settings(typed: Mapping[str, Any], file_settings: Mapping[str, Any]) -> dict[str, Any]:
    """The typed settings; those of grounded play are merged over the file's. Raises ConfigurationError."""
    from refinesynth.cli.rules import read_chain
    from refinesynth.episode import plays

    arguments = {name: typed[name] for name in ("personas", "play", "backend") if typed[name] is not None}
    values = values_by_field(RunSettings, typed) | arguments
    if grounding := values.get("grounding"):
        play = typed["play"] or file_settings.get("play")
        if play is None or not plays.find(play).executed:
            flags = ", ".join(map(flag, grounding))
            raise ConfigurationError(f"{flags}: for grounded play alone; give --play grounded too, or leave it out")
        file_grounding: object = file_settings.get("grounding") or {}
        if not isinstance(file_grounding, Mapping):
            raise ConfigurationError(
                f"grounding is {file_grounding!r} in the file; expected its settings by name, such as terse: true"
            )
        values["grounding"] = {**cast("Mapping[str, Any]", file_grounding), **grounding}
    for name in values.keys() & {"rules", "script_rules"}:
        values[name] = read_chain(flag(name), values[name])
    return values


def _check_preset(name: str | None, settings: Mapping[str, Any], typed: Mapping[str, Any]) -> None:
    """Raise ConfigurationError if the preset's bound on completions is meant for another play than the given one."""
    if name is None or typed.get("play") in {None, settings["play"]} or "attempts" in typed:
        return
    calls = settings["attempts"].calls
    raise ConfigurationError(
        f"--play {typed['play']}: --preset {name} allows an episode {calls} completions, and each turn takes one; give --attempts "
        f"drafts=4 too, which sets no such bound, or leave --play out"
    )
