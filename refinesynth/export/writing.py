"""Trajectories to records, and records to a file."""

import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from os import PathLike
from pathlib import Path

from pydantic import JsonValue

from refinesynth.errors import InputError
from refinesynth.export.dataset_info import DatasetInfo
from refinesynth.export.formats import Form, Format, find_format, find_masking
from refinesynth.export.masking import Masking
from refinesynth.export.shapes import Record
from refinesynth.files.atomic_write import COMPRESSED, output_file, refuse_existing
from refinesynth.run.folder import stored_trajectories
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
    trajectories: Iterable[Trajectory] | str | PathLike[str],
    format: str | Format,  # noqa: A002 - the word that users type
    *,
    masking: str | None = None,
    form: Form = "react",
) -> Iterator[dict[str, JsonValue]]:
    """Records in the named format, lazily and in order.

    A trajectory without anything to train on gives no record, except in the format `paper`.

    Args:
        trajectories: What to export, read once; or the path of a run folder, or of a JSONL file of trajectories.
        format: A name in `FORMATS`, or a format with settings of its own, such as `AtifFormat("1.7")`.
        masking: `flag`, `split` or `drop` (see `Masking`); the format's own default if None.
        form: `tools` for tool calls in the place of ReAct text; a few formats have them.

    Raises:
        InputError: There is no such format, or it cannot keep mistakes out of training in this way, or has no tool
            calls; or nothing can be read from the path. At once, not on the first record.
    """
    found = find_format(format, form)
    mask = find_masking(found, masking)
    return (
        record.data
        for trajectory in _opened(trajectories)
        for record in found.records(trajectory, mask)
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
    """Write an export as JSONL, one record per line, and say what was written.

    The file appears whole or not at all; `.gz` and `.zst` compress it. The format `sharegpt` also adds its entry to the
    `dataset_info.json` beside the file, unless the file is compressed, which LLaMA-Factory does not read. The format
    `atif` writes a folder with one file per trajectory where `path` does not end in `.jsonl`, `.json`, `.gz` or `.zst`,
    since Harbor and Scout read such.

    Raises:
        InputError: As `export`; or the file exists and may not be overwritten, cannot be written, or no trajectory
            gives a record.
    """
    path = Path(path)
    found = find_format(format, form)
    mask = find_masking(found, masking)
    in_files = found.name == "atif" and path.suffix not in (".jsonl", ".json", *COMPRESSED)
    if in_files and path.is_dir():
        raise InputError(f"the folder {path} exists already; name a new one")
    refuse_existing(path, overwrite=overwrite)
    info = DatasetInfo(path, overwrite=overwrite) if found.name == "sharegpt" and DatasetInfo.is_for(path) else None
    counts = _Count()
    with _folder_of_files(path) if in_files else _lines(path, overwrite=overwrite) as put:
        for record in counts.watch(_opened(trajectories), found, mask):
            put(write_json(record.data))
        if not counts.records:
            wanted = "a grounded script with a solution" if mask is Masking.WORLD else "a turn to train on"
            raise InputError(f"nothing to export: none of {counts.trajectories} trajectories has {wanted}")
    return ExportReport(
        path=path,
        format=found.name,
        masking=mask,
        trajectories=counts.trajectories,
        left_out=counts.left_out,
        records=counts.records,
        trained=counts.trained,
        masked=counts.masked,
        advice=found.advice[mask],
        dataset_info=info.write() if info else None,
        remarks=tuple(f"Left out, {why}: {counted:,}." for why, counted in counts.omitted.items()),
    )


def _opened(source: Iterable[Trajectory] | str | PathLike[str]) -> Iterable[Trajectory]:
    return stored_trajectories(source) if isinstance(source, str | PathLike) else source


@contextmanager
def _lines(path: Path, *, overwrite: bool) -> Generator[Callable[[bytes], object]]:
    with output_file(path, overwrite=overwrite) as file:
        yield lambda record: file.write(record + b"\n")


@contextmanager
def _folder_of_files(path: Path) -> Generator[Callable[[bytes], object]]:
    """What puts one file after another, `000001.json`, into a new folder that appears whole or not at all."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    numbers = count(1)

    def put(record: bytes) -> None:
        (unfinished / f"{next(numbers):06}.json").write_bytes(record)

    try:
        unfinished.mkdir(parents=True)
        yield put
        unfinished.rename(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


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
