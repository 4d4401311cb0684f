"""The format `tokens` of `refinesynth export`: what our own trainer would train on, for everybody's."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refinesynth.cli.train_display import lost_of
from refinesynth.cli.train_settings import given
from refinesynth.errors import InputError
from refinesynth.export import ExportReport, Masking
from refinesynth.train.artefacts import shown_name

if TYPE_CHECKING:
    from refinesynth.trajectory import Trajectory

_NOT_SET = frozenset({"data", "output", "path", "overwrite"})
_NO_MASKING = (
    "--masking is for chat messages; --format tokens says of every token whether it is learned. --loss-on says of which turns, and "
    "--set without_refinement=true takes mistakes out"
)


class TokensExport:
    """Writes one side of an export after the other."""

    def __init__(self, options: Mapping[str, Any], assignments: list[str], masking: str | None) -> None:
        """Take the settings that were given.

        Raises:
            InputError: There is no model, or a setting is none.
        """
        self._settings = given(options, assignments=assignments)
        if not self._settings.get("model"):
            raise InputError("--format tokens needs --model NAME-OR-FOLDER: token ids are those of its tokenizer")
        if masking not in {None, Masking.FLAG}:
            raise InputError(_NO_MASKING)
        if named := sorted(_NOT_SET & self._settings.keys()):
            raise InputError(
                f"--set {named[0]} cannot be given here: RUN and -o say what is read and where it is written"
            )

    def write(self, trajectories: "Iterable[Trajectory]", path: Path, *, overwrite: bool) -> ExportReport:
        """Write these."""
        from refinesynth.train import write_tokens

        found = write_tokens(trajectories, path, overwrite=overwrite, **self._settings)
        counts = found.counts
        lost = lost_of(counts)
        return ExportReport(
            path=path,
            format="tokens",
            masking=Masking.FLAG,
            trajectories=counts.conversations,
            left_out=counts.dropped_untrained + counts.dropped_long,
            records=counts.records,
            trained=found.trained_turns,
            masked=found.other_turns,
            advice=_advice(self._settings),
            remarks=(
                f"{_inputs(self._settings)}.",
                f"{counts.tokens:,} tokens, {counts.trained_tokens:,} of them trained on; the longest record has {found.longest:,}.",
                *([f"{lost}."] if lost else []),
            ),
        )


def _inputs(settings: Mapping[str, Any]) -> str:
    others = [f", {name} {_shown(value)}" for name, value in settings.items() if name != "model" and value is not None]
    return f"Token ids of the tokenizer of {_shown(settings['model'])}{''.join(others)}"


def _shown(value: object) -> str:
    """Without the folders of the exporting user."""
    return shown_name(str(value))


def _advice(settings: Mapping[str, Any]) -> str:
    template = settings.get("chat_template")
    saved = f" Give the tokenizer that you save the chat template {_shown(template)}." if template else ""
    variables = sorted(name.partition(".")[2] for name in settings if name.startswith("chat_template_kwargs."))
    if variables:
        saved += f" Ask the tuned model with the same {', '.join(variables)} as here, which the tokenizer does not know by itself."
    return (
        "TRL's SFTTrainer takes `input_ids` and `labels` as they are. Set `max_length=None`: by default it cuts at 1,024 tokens. To pack, set "
        f"`packing=True` and a `max_length` of the longest record or more, and flash attention. Leave `assistant_only_loss` off.{saved}"
    )
