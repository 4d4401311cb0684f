"""Records of trajectories, their files, and the split of a dataset by script."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from refinesynth.errors import InputError
from refinesynth.export.chat_shapes import Masking
from refinesynth.export.formats import Form, Format, WorldFormat, find_format, find_masking
from refinesynth.files.atomic_write import output_file, refuse_existing
from refinesynth.run.run_folder import stored_trajectories
from refinesynth.text.json_reader import write_json
from refinesynth.trajectory import Trajectory


@dataclass(frozen=True)
class ExportReport:
    path: Path
    format: str
    masking: Masking
    trajectories: int
    left_out: int
    """Number of trajectories without a record."""
    records: int
    trained: int
    """Number of trained assistant messages, summed over records."""
    masked: int
    """Number of masked assistant messages, summed over records; with `split`, records repeat their history."""
    advice: str
    """Settings with which the trainer honours the masking."""
    remarks: tuple[str, ...] = ()
    """Sentences about omissions."""


def export(
    trajectories: Iterable[Trajectory] | str | PathLike[str],
    format: str | Format,  # noqa: A002 - the word that users type
    *,
    masking: str | None = None,
    form: Form = "react",
) -> Iterator[dict[str, JsonValue]]:
    """Yield records in the named format, lazily and in order.

    Args:
        trajectories: Trajectories, read once; or the path of a run folder or of a JSONL file.
        format: A name in `FORMATS`, or a format with settings of its own, such as `WorldFormat(start="mistakes")`.
        masking: `flag`, `split` or `drop` (see `Masking`); the format's default if None.
        form: `react`, or `tools` for tool calls.

    Raises:
        InputError: Unknown format, unsupported masking or form, or an unreadable path; raised at once.
    """
    export_format = find_format(format, form)
    mask = find_masking(export_format, masking)
    return (
        record.data
        for trajectory in _trajectories(trajectories)
        for record in export_format.records(trajectory, mask)
        if not record.omitted
    )


def write_export(
    trajectories: Iterable[Trajectory] | str | PathLike[str],
    path: str | Path,
    format: str | Format,  # noqa: A002 - the word that users type
    *,
    masking: str | None = None,
    form: Form = "react",
    overwrite: bool = False,
) -> ExportReport:
    """Write an export as JSONL atomically; the suffix `.gz` compresses it.

    Raises:
        InputError: As for `export`; or the file exists, cannot be written, or would be empty.
    """
    path = Path(path)
    export_format = find_format(format, form)
    mask = find_masking(export_format, masking)
    refuse_existing(path, overwrite=overwrite)
    counts, omitted = Counter[str](), Counter[str]()
    with output_file(path, overwrite=overwrite) as file:
        for trajectory in _trajectories(trajectories):
            before = counts["records"]
            for record in export_format.records(trajectory, mask):
                if record.omitted:
                    omitted[record.omitted] += 1
                    continue
                counts.update(records=1, trained=record.trained, masked=record.masked)
                file.write(write_json(record.data) + b"\n")
            counts.update(trajectories=1, left_out=counts["records"] == before)
        if not counts["records"]:
            requirement = "a turn to train on"
            if isinstance(export_format, WorldFormat):
                requirement = "a grounded script with a solution" + (
                    " and a mistake" if export_format.start == "mistakes" else ""
                )
            raise InputError(f"nothing to export: none of {counts['trajectories']} trajectories has {requirement}")
    return ExportReport(
        path=path,
        format=export_format.name,
        masking=mask,
        advice=export_format.advice[mask],
        remarks=tuple(f"Left out, {reason}: {count:,}." for reason, count in omitted.items()),
        **{name: counts[name] for name in ("trajectories", "left_out", "records", "trained", "masked")},
    )


def _trajectories(source: Iterable[Trajectory] | str | PathLike[str]) -> Iterable[Trajectory]:
    return stored_trajectories(source) if isinstance(source, str | PathLike) else source


Side = Literal["train", "held_out"]


def group_of(trajectory: Trajectory) -> str:
    """Return the group of a trajectory in a split: its script, or its persona if no script is recorded."""
    script = trajectory.provenance.script_id
    return f"persona {trajectory.persona.text}" if script is None else f"script {script}"


def one_side(trajectories: Iterable[Trajectory], side: Side, *, held_out: float, seed: int = 0) -> Iterator[Trajectory]:
    """Yield the trajectories of one side of a split, in order; the sides share no group.

    The hash of group and `seed` holds a group out with the probability `held_out`, independently of other groups: it
    keeps its side when a run grows. With few groups, a side may be empty.

    Raises:
        InputError: `held_out` is not in (0, 1); raised at once.
    """
    if not 0 < held_out < 1:
        raise InputError(
            f"held_out is {held_out!r}; expected the share of the scripts to hold out, above 0 and below 1"
        )

    def is_held_out(trajectory: Trajectory) -> bool:
        text = f"{seed}\n{group_of(trajectory)}".encode("utf-8", "surrogatepass")
        return int.from_bytes(blake2b(text, digest_size=8).digest()) < held_out * 2**64

    return (trajectory for trajectory in trajectories if is_held_out(trajectory) == (side == "held_out"))
