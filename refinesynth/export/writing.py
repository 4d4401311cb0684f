"""Trajectories to records, and records to a file."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from refinesynth.errors import InputError
from refinesynth.export.dataset_info import DatasetInfo
from refinesynth.export.formats import Format, find_format, find_masking
from refinesynth.export.masking import Masking
from refinesynth.export.shapes import Record
from refinesynth.files.atomic_write import output_file, refuse_existing
from refinesynth.text.jsontext import write_json
from refinesynth.trajectory import Trajectory


@dataclass(frozen=True)
class ExportReport:
    """What an export wrote."""

    path: Path
    format: str
    masking: Masking
    trajectories: int
    """Trajectories read."""
    left_out: int
    """Of these, how many hold nothing to train on, so that no record was written."""
    records: int
    trained: int
    """Assistant messages that a trainer learns to write, summed over records."""
    masked: int
    """Assistant messages that are context only, summed over records; split records repeat their history."""
    advice: str
    """What to set in the trainer so that it honours the masking."""
    dataset_info: Path | None = None
    """The `dataset_info.json` that got an entry, if the format has one."""
    remarks: tuple[str, ...] = ()
    """What is left out or cut besides, a sentence each."""


def export(
    trajectories: Iterable[Trajectory],
    format: str,  # noqa: A002 - the word that users type
    *,
    masking: str | None = None,
) -> Iterator[dict[str, JsonValue]]:
    """Records in the named format, lazily and in order.

    A trajectory without anything to train on gives no record, except in the format `paper`.

    Args:
        trajectories: What to export; read once.
        format: A name in `FORMATS`.
        masking: `flag`, `split` or `drop` (see `Masking`); the format's own default if None.

    Raises:
        InputError: There is no such format, or it cannot keep mistakes out of training in this way. At once, not on
            the first record.
    """
    form = find_format(format)
    mask = find_masking(form, masking)
    return (
        record.data for trajectory in trajectories for record in form.records(trajectory, mask) if not record.omitted
    )


def write_export(
    trajectories: Iterable[Trajectory],
    path: str | Path,
    format: str,  # noqa: A002 - the word that users type
    *,
    masking: str | None = None,
    overwrite: bool = False,
) -> ExportReport:
    """Write an export as JSONL, one record per line, and say what was written.

    The file appears whole or not at all; `.gz` and `.zst` compress it. The format `sharegpt` also adds its entry to the
    `dataset_info.json` beside the file, unless the file is compressed, which LLaMA-Factory does not read.

    Raises:
        InputError: As `export`; or the file exists and may not be overwritten, cannot be written, or no trajectory
            gives a record.
    """
    path = Path(path)
    form = find_format(format)
    mask = find_masking(form, masking)
    refuse_existing(path, overwrite=overwrite)
    info = DatasetInfo(path, overwrite=overwrite) if form.name == "sharegpt" and DatasetInfo.is_for(path) else None
    count = _Count()
    with output_file(path, overwrite=overwrite) as file:
        for record in count.watch(trajectories, form, mask):
            file.write(write_json(record.data) + b"\n")
        if not count.records:
            raise InputError(f"nothing to export: none of {count.trajectories} trajectories has a turn to train on")
    return ExportReport(
        path=path,
        format=form.name,
        masking=mask,
        trajectories=count.trajectories,
        left_out=count.left_out,
        records=count.records,
        trained=count.trained,
        masked=count.masked,
        advice=form.advice[mask],
        dataset_info=info.write() if info else None,
        remarks=tuple(f"Left out, mistakes {why}: {counted:,}." for why, counted in count.omitted.items()),
    )


@dataclass
class _Count:
    trajectories: int = 0
    left_out: int = 0
    records: int = 0
    trained: int = 0
    masked: int = 0
    omitted: Counter[str] = field(default_factory=Counter[str])

    def watch(self, trajectories: Iterable[Trajectory], form: Format, masking: Masking) -> Iterator[Record]:
        for trajectory in trajectories:
            self.trajectories += 1
            before = self.records
            for record in form.records(trajectory, masking):
                if record.omitted:
                    self.omitted[record.omitted] += 1
                    continue
                self.records += 1
                self.trained += record.trained
                self.masked += record.masked
                yield record
            self.left_out += self.records == before
