"""`refinesynth run`: the main job."""

from collections.abc import Callable, Mapping
from typing import Any

import typer

from refinesynth.cli import run_options
from refinesynth.cli.invocation import Invocation
from refinesynth.cli.plays import PlayOption
from refinesynth.cli.supervised import supervise


def run(
    ctx: typer.Context,
    personas: run_options.Personas = None,
    *,
    column: run_options.Column = None,
    scripts: run_options.Scripts = None,
    number: run_options.Number = None,
    config: run_options.Config = None,
    backend: run_options.BackendOption = None,
    set_: run_options.Set = None,
    output: run_options.Output = None,
    fresh: run_options.Fresh = False,
    retry_failed: run_options.RetryFailed = False,
    play: PlayOption = None,
    terse: run_options.Terse = None,
    difficulty: run_options.DifficultyOption = None,
    transient: run_options.Transient = None,
    mix: run_options.MixOption = None,
    branches: run_options.Branches = None,
    episodes_per_script: run_options.EpisodesPerScript = None,
    near_duplicates: run_options.NearDuplicates = None,
    contamination: run_options.Contamination = None,
    contaminated: run_options.ContaminatedOption = None,
    preset: run_options.PresetOption = None,
    rules: run_options.Rules = None,
    script_rules: run_options.ScriptRules = None,
    player_form: run_options.PlayerFormOption = None,
    mistakes: run_options.MistakesOption = None,
    attempts: run_options.AttemptsOption = None,
    concurrency: run_options.Concurrency = None,
    seed: run_options.Seed = None,
    shard: run_options.ShardOption = None,
    max_turns: run_options.MaxTurns = None,
    prompts: run_options.Prompts = None,
    judge: run_options.Judge = None,
    budget: run_options.BudgetOption = None,
    patience: run_options.PatienceOption = None,
    fallback: run_options.Fallback = None,
    deadline: run_options.Deadline = None,
    batch: run_options.Batch = False,
    workers: run_options.Workers = None,
    cluster: run_options.Cluster = None,
    journals: run_options.Journals = None,
    log_level: run_options.LogLevel = None,
    otel: run_options.Otel = False,
    dry_run: run_options.DryRun = False,
    sample: run_options.Sample = None,
    show_config: run_options.ShowConfig = False,
    json: run_options.AsJson = False,
) -> None:
    """Make N verified trajectories from personas. The same command again continues a run that was interrupted.

    Exits with 0 when N were accepted, 1 when there are fewer or it stopped early, 2 when it was asked wrongly, 3 when
    the folder cannot be written, 130 after Ctrl-C.
    """
    typed = locals()
    from refinesynth.cli import options
    from refinesynth.cli.running import run_and_report
    from refinesynth.cli.tuning import split_fallback, tuned, tuned_fallback
    from refinesynth.episode import plays
    from refinesynth.errors import InputError
    from refinesynth.run import free_run_folder
    from refinesynth.settings import RunSettings
    from refinesynth.synthesis.configured import settings_of

    of_file = {} if config is None else settings_of(config)
    given = _given(typed, of_file)
    named = None if preset is None else preset.value
    layers = [(f"preset {named}", options.preset(named)), (str(config), of_file)]
    options.check_preset(named, layers[0][1], given)
    layers.append(("command line", {name: value for name, value in given.items() if value is not None}))
    asked: dict[str, Any] = {name: value for _, layer in layers for name, value in layer.items()}
    if "n" not in asked and not show_config:
        raise typer.BadParameter("give -n NUMBER, or n in a file for --config", param_hint="'-n'")
    checked = RunSettings.of({name: value for name, value in asked.items() if name in RunSettings.model_fields})
    plays.checked(checked.play)
    asked.update((name, getattr(checked, name)) for name in checked.model_fields_set)
    of_fallback, of_roles = split_fallback(set_ or [])
    asked["backend"] = tuned(asked.get("backend", "rehearsal"), of_roles)
    if (second := tuned_fallback(fallback, of_fallback)) is not None:
        asked["fallback"] = second
    if show_config:
        options.show_config(asked, layers)
        return
    if retry_failed:
        options.check_retry_failed(asked.get("output"), fresh=fresh, dry_run=dry_run)
    if dry_run:
        asked.pop("output", None)
        from refinesynth.cli.dry_running import estimate_and_report

        code = estimate_and_report(asked, sample=sample, json=json)
        raise typer.Exit(code)
    if sample is not None:
        raise InputError("--sample is for --dry-run alone; give that too, or leave it out")
    invocation: Invocation = ctx.obj
    place = asked.pop("output", None) or free_run_folder()
    if invocation.own_process and (asked.get("cluster") or (asked.get("workers") or 1) > 1):
        supervise()
    raise typer.Exit(
        run_and_report({**asked, "fresh": fresh, "retry_failed": retry_failed}, place, invocation.arguments, json=json)
    )


def _given(typed: Mapping[str, Any], of_file: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed, in the form of the settings; None for what was not."""
    from refinesynth.cli import options
    from refinesynth.client.tracing import Tracing
    from refinesynth.settings import RunSettings

    def read(name: str, reader: Callable[..., Any], *before: str) -> Any:
        return None if typed[name] is None else reader(*before, typed[name])

    of_grounding = {name: typed[name] for name in ("terse", "difficulty", "transient", "mix")}
    return {
        **{name: value for name, value in typed.items() if name in RunSettings.model_fields},
        "n": typed["number"],
        "concurrency": read("concurrency", options.in_flight),
        "backend": options.backend_spec(typed["backend"] or []),
        "grounding": options.grounding(typed["play"] or of_file.get("play"), of_grounding, of_file.get("grounding")),
        "curation": options.curation(typed["near_duplicates"], typed["contamination"] or [], read("contaminated", str)),
        "rules": read("rules", options.chain, "--rules"),
        "script_rules": read("script_rules", options.chain, "--script-rules"),
        "mistakes": read("mistakes", options.mistakes_policy),
        "attempts": read("attempts", options.attempts_bounds),
        "fallback": None,
        "batch": typed["batch"] or None,
        "player_form": read("player_form", str),
        "log_level": read("log_level", str),
        "tracing": Tracing() if typed["otel"] else None,
    }
