"""Commands `export` and `publish`: trajectories in the formats of trainers, and as a dataset on the Hub."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Protocol

import typer

from refinesynth.cli.exit_codes import ExitCode
from refinesynth.cli.field_options import option
from refinesynth.cli.run_records import Run, RunOrFile, is_run, note_waiting, records
from refinesynth.cli.terminal import note, say
from refinesynth.cli.train import Set, typed_settings
from refinesynth.environments.grounded import START_HELP, share_of_mistakes
from refinesynth.errors import InputError, RefinesynthError
from refinesynth.export import (
    TOKENS,
    ExportReport,
    Form,
    Masking,
    check_languages,
    check_licence,
    write_export,
)
from refinesynth.export.formats import WorldFormat
from refinesynth.export.publishing import check_key, check_repo, files_of, upload, write_dataset
from refinesynth.files.atomic_write import exclusive_access, refuse_file_of_run
from refinesynth.files.compressed import COMPRESSIONS
from refinesynth.lazy_imports import check_installed
from refinesynth.outcome import Refused
from refinesynth.run import RunFolder
from refinesynth.synthesis import SynthesisResult
from refinesynth.text.formatting import counted, in_bytes
from refinesynth.train.training_folder import short_name
from refinesynth.trajectory import Trajectory


def export(
    source: RunOrFile,
    *,
    format_name: Annotated[str, option("--format", metavar="NAME")],
    output: Annotated[Path | None, option("-o", "--output", metavar="FILE")] = None,
    masking: Annotated[str | None, option(metavar="HOW")] = None,
    form: Form = "react",
    overwrite: bool = False,
    start: Annotated[str, option(help=f"For --format rl, where plays begin: {START_HELP}", metavar="WHERE")] = "clean",
    model: Annotated[str | None, option("--model", "-m", metavar="NAME")] = None,
    set_: Set = None,
    **settings: Any,
) -> None:
    """Write the accepted trajectories in the form that a trainer reads, mistakes kept out of training.

    docs/export.md describes the formats and their trainers.

    Options:
        format_name: sharegpt, llamafactory, openai, trl, trl-split, axolotl, agentinstruct, ms-swift, paper,
            preference, atif, rl (the worlds of grounded play, each once), or tokens with --model.
        output: JSONL to write; .gz compresses it. By default NAME.FORMAT.jsonl here, for runs/NAME.
        masking: How mistakes stay out of training: flag, split or drop. By default the best that the format can say.
        form: Turns as ReAct text, or with actions as tool calls; not every format can.
        overwrite: Replace FILE if it is there.
        model: For --format tokens, as are the options below: whose tokenizer and chat template, a hub name, a folder or
            a GGUF file.
    """
    unreadable: dict[str, None] = {}
    write = _writer(format_name, masking, {"model": model, **settings}, set_ or [], form=form, start=start)
    if output is None:
        name = source.resolve().name
        stem = name.removesuffix(source.suffix if source.suffix.lower() in COMPRESSIONS else "").removesuffix(".jsonl")
        output = Path(f"{stem}.{format_name}.jsonl")
    with exclusive_access(output):
        _refuse_replacing_the_source(source, output)
        note_waiting(source)
        report = write(_trajectories(source, unreadable), output, overwrite=overwrite)
        _print_report(report)
        say(report.advice)
        _report_unreadable(unreadable)


class _Writer(Protocol):
    def __call__(self, trajectories: Iterable[Trajectory], path: Path, /, *, overwrite: bool) -> ExportReport: ...


def _writer(
    format_name: str,
    masking: str | None,
    settings: Mapping[str, Any],
    assignments: list[str],
    *,
    form: Form,
    start: str,
) -> _Writer:
    """The writer of a format; raises InputError for options that the format does not have."""
    plain_name = format_name.strip().casefold()
    if start != "clean" and plain_name != "rl":
        raise InputError("--start is for --format rl alone; leave it out, or give that format")
    if plain_name in {TOKENS, "atif"} and form != "react":
        raise InputError(f"--form {form} is not for --format {format_name}; leave it out")
    if plain_name == TOKENS:
        return _token_writer(settings, assignments, masking)
    token_options = [f"--{name.replace('_', '-')}" for name, value in settings.items() if value is not None]
    if token_options := [*token_options, *(["--set"] if assignments else [])]:
        raise InputError(f"{', '.join(token_options)} is for --format tokens alone; leave it out, or give that format")
    if plain_name == "rl":
        share_of_mistakes(start)

        def write(trajectories: Iterable[Trajectory], path: Path, /, *, overwrite: bool) -> ExportReport:
            # Each file needs its own format object, which remembers the worlds already written.
            world = WorldFormat(form, start=start)
            return write_export(trajectories, path, world, masking=masking, overwrite=overwrite)

        return write
    return partial(write_export, format=format_name, masking=masking, form=form)


def _token_writer(options: Mapping[str, Any], assignments: list[str], masking: str | None) -> _Writer:
    """The writer of the format `tokens`; raises InputError for a missing model or an unknown setting."""
    settings = typed_settings(options, assignments=assignments)
    if not settings.get("model"):
        raise InputError("--format tokens needs --model NAME-OR-PATH: token ids are those of its tokenizer")
    if masking not in {None, Masking.FLAG}:
        raise InputError(
            "--masking is for chat messages; --format tokens says of every token whether it is learned. --loss-on says of which "
            "turns, and --set without_refinement=true takes mistakes out"
        )
    if bad := sorted({"data", "output", "path", "overwrite"} & settings.keys()):
        raise InputError(f"--set {bad[0]} cannot be given here: RUN and -o say what is read and where it is written")
    # Absolute paths may name the user and are cut to their last part.
    shown = {name: short_name(str(value)) for name, value in settings.items() if value is not None}
    other_settings = [f", {name} {value}" for name, value in shown.items() if name != "model"]
    tokenizer_remark = f"Token ids of the tokenizer of {shown['model']}{''.join(other_settings)}."

    template = shown.get("chat_template")
    template_advice = f" Give the tokenizer that you save the chat template {template}." if template else ""
    if variables := sorted(name.partition(".")[2] for name in settings if name.startswith("chat_template_kwargs.")):
        template_advice += f" Ask the tuned model with the same {', '.join(variables)} as here, which the tokenizer does not know by itself."
    advice = (
        "TRL's SFTTrainer takes `input_ids` and `labels` as they are. Set `max_length=None`: by default it cuts at 1,024 tokens. To pack, set "
        f"`packing=True` and a `max_length` of the longest record or more, and flash attention. Leave `assistant_only_loss` off.{template_advice}"
    )

    def write(trajectories: Iterable[Trajectory], path: Path, /, *, overwrite: bool) -> ExportReport:
        check_installed("train", "numpy", "torch", "transformers")
        from refinesynth.cli.train_display import lost_conversations
        from refinesynth.train import write_tokens

        written = write_tokens(trajectories, path, overwrite=overwrite, **settings)
        counts = written.counts
        size_remark = f"{counts.tokens:,} tokens, {counts.trained_tokens:,} of them trained on; the longest record has {counts.longest:,}."
        return ExportReport(
            path=path,
            format=TOKENS,
            masking=Masking.FLAG,
            trajectories=counts.conversations,
            left_out=counts.dropped_untrained + counts.dropped_long + counts.dropped_forged,
            records=counts.records,
            trained=counts.trained_turns,
            masked=counts.other_turns,
            advice=advice,
            remarks=(
                tokenizer_remark,
                size_remark,
                *written.remarks,
                *([f"{lost}."] if (lost := lost_conversations(counts)) else []),
            ),
        )

    return write


def _print_report(report: ExportReport) -> None:
    records = f"{counted(report.records, 'record')} of {counted(report.trajectories, 'trajectory', 'trajectories')}"
    left_out = f", {report.left_out:,} left out" if report.left_out else ""
    masking = f" with masking {report.masking}; {counted(report.trained, 'turn')} trained on, {report.masked:,} not"
    is_world = report.masking == "world"
    say(f"{report.path}: {records}{'' if is_world else left_out}, as {report.format}{'' if is_world else masking}")
    for remark in report.remarks:
        say(remark)


def _report_unreadable(unreadable: Mapping[str, None]) -> None:
    """Print the number of lines left out and the first error, and exit with 1; nothing without such lines."""
    if not unreadable:
        return
    note(f"{counted(len(unreadable), 'line')} left out: {next(iter(unreadable))}")
    note("`refinesynth verify` lists all lines that cannot be read")
    raise typer.Exit(ExitCode.INCOMPLETE)


def _refuse_replacing_the_source(source: Path, output: Path) -> None:
    """Raise InputError if the export would replace its source or another file of a run."""
    refuse_file_of_run(output)
    if output.exists() and source.is_file() and output.samefile(source):
        raise InputError(f"{str(output)!r} is what a run wrote, and it would be replaced; choose another name")


def _trajectories(source: Path, unreadable: dict[str, None]) -> Iterator[Trajectory]:
    """Trajectories of a run or file. Errors of unreadable lines go to `unreadable`; a refused draft, or no readable line, raises InputError."""
    is_empty = True

    def add(error: RefinesynthError) -> None:
        unreadable.setdefault(str(error))

    for record in RunFolder.open(source).trajectories(on_invalid=add) if is_run(source) else records(source, add):
        if isinstance(record, Refused):
            raise InputError(f"{record.episode} in {source} was refused, so it is no trajectory to train on")
        is_empty = False
        yield record
    if is_empty and unreadable:
        raise InputError(f"{str(source)!r} has no line that is a trajectory: {next(iter(unreadable))}")


def facts_of_run(source: Path) -> dict[str, Any]:
    """Fields of `CardFacts` about a run; none for a file."""
    if not is_run(source):
        return {}
    result = SynthesisResult.open(source)
    funnel = {
        "personas started": result.episodes + result.pending,
        "scripts refused": result.scripts_refused,
        "drafts refused": result.drafts_refused,
        "trajectories accepted": len(result),
    }
    return {"funnel": funnel, "estimated": result.spending.estimated.usage.requests > 0}


def publish(
    run: Run,
    repo: Annotated[str, typer.Argument(metavar="OWNER/NAME")],
    *,
    license_id: Annotated[str, option("--license", metavar="ID")],
    format_name: Annotated[str, option("--format", metavar="NAME")] = "openai",
    masking: Annotated[str | None, option(metavar="HOW")] = None,
    held_out: Annotated[float | None, option(metavar="SHARE")] = None,
    title: str | None = None,
    language: Annotated[list[str] | None, option(metavar="CODE")] = None,
    public: bool = False,
    dry_run: bool = False,
    output: Annotated[Path | None, option("-o", metavar="FOLDER")] = None,
) -> None:
    """Publish the accepted trajectories as a dataset: Parquet files with splits, and a card. Needs a key of the Hub
    (`hf auth login`, or HF_TOKEN).

    Options:
        repo: Dataset on the Hub; it is created if missing.
        license_id: Licence of your data, as the Hub writes it.
        format_name: Format of the records, as for export; or traces, for the Hub's trace viewer.
        masking: As for export.
        held_out: Share of the scripts for the split test.
        title: Title of the card; by default the name.
        language: Language of the data.
        public: Create a public dataset; by default it is private.
        dry_run: Write the files and list them; send nothing.
        output: Folder for the files; by default a temporary one.
    """
    check_repo(repo)
    licence, languages = check_licence(license_id), check_languages(language or ())
    if not dry_run:
        check_key()
    note_waiting(run)
    with TemporaryDirectory() as scratch:
        folder = output or Path(scratch) / "dataset"
        reports = write_dataset(
            run,
            folder,
            repo,
            licence=licence,
            format=format_name,
            masking=masking,
            held_out=held_out,
            title=title or "",
            language=languages,
            facts=facts_of_run(run),
        )
        for split, report in reports.items():
            trajectories = counted(report.trajectories, "trajectory", "trajectories")
            say(f"{split}: {counted(report.records, 'record')} of {trajectories}")
        for name, size in files_of(folder):
            say(f"  {name}  {in_bytes(size)}")
        if dry_run:
            say("nothing was sent")
            return
        say(f"published: {upload(folder, repo, public=public)}")
