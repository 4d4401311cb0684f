"""Output folder of a training: lock, checks of existing content, and the files next to the model."""

import json
import math
import platform
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal, cast

import orjson

from refinesynth._version import __version__
from refinesynth.errors import InputError, RefinesynthError, StorageError
from refinesynth.files.atomic_write import (
    irregular_kind,
    open_to_append,
    storage_errors,
    write_file,
    write_json_file,
    write_text_file,
)
from refinesynth.files.output_folder import FolderLock
from refinesynth.files.settings_file import read_settings
from refinesynth.lazy_imports import require
from refinesynth.text.formatting import code_in_table, render_markdown
from refinesynth.text.json_reader import write_json
from refinesynth.train import events
from refinesynth.train.config import HUB_NAME, PATH_FIELDS, WEIGHT_SETTINGS, TrainConfig
from refinesynth.train.events import Events, TrainResult
from refinesynth.train.labelled_conversation import LossOn, TurnLabel
from refinesynth.train.layered_settings import portable, portable_config, published, to_yaml
from refinesynth.train.plan import Devices, Plan

MARKER: Final = ".refinesynth-training"
"""Marker file, written first and locked while a training runs. Only folders with a marker are changed."""
CONFIG: Final = "train.yaml"
PLAN: Final = "plan.json"
METRICS: Final = "metrics.jsonl"
VERSIONS: Final = "versions.json"
RESULT: Final = "result.json"
CARD: Final = "README.md"
TENSORBOARD: Final = "tensorboard"
CHECKPOINTS: Final = "checkpoints"

_FREE_SETTINGS = (
    "output recipe tokens_per_pack packing gradient_checkpointing attention parallel device "
    "save_every keep log_every save_dtype trust_remote_code"
)
FREE_SETTINGS: Final = frozenset(_FREE_SETTINGS.split())
"""Settings that may differ on resuming, because they do not change what the model learns."""


def check_output(config: TrainConfig) -> TrainResult | None:
    """Check that the output folder can be used, without changes. All ranks get the same answer.

    Returns the result if the training in the folder has the same settings and is finished, else None.

    Raises:
        InputError: The folder contains something else or a finished training with other settings.
        StorageError: The folder cannot be read.
    """
    output = Path(config.output)
    # The checkpoints of an unfinished training say whether they are of these settings and data.
    if not _has_training(output) or (result := read_result(output)) is None:
        return None
    _check_same_settings(output, config)
    return result


def refuse_other_data(output: Path, digest: tuple[str, int] | None) -> None:
    """Raises: InputError: The finished training in the folder learned data with another digest (`engine.data_digest`).

    Without a digest in `plan.json`, or with None, nothing is compared.
    """
    try:
        sizes = orjson.loads((output / PLAN).read_bytes())["sizes"]
        previous = sizes["digest"], sizes["held_out"]["tokens"] if sizes["held_out"] else 0
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return
    if digest is not None and digest != previous:
        raise InputError(
            f"a training on other data is in {str(output)!r}: since it was finished, the data or the tokens that the chat template makes of it have "
            "changed. Give the same data, or another -o"
        )


def open_output(config: TrainConfig, plan: Plan) -> FolderLock:
    """Prepare and lock the output folder, and write settings and plan; for rank 0. Returns the lock.

    Raises:
        InputError: The folder contains something else, or another training has its lock.
        StorageError: The folder cannot be written.
    """
    output = Path(config.output)
    _has_training(output)
    lock = _lock_folder(output)
    values = plan.as_json()
    values["model"]["name"] = portable(plan.model.name)
    write_json_file(output / PLAN, values)
    write_text_file(output / CONFIG, to_yaml(config))
    return lock


def read_result(output: Path) -> TrainResult | None:
    """The result of the finished training in a folder, or None."""
    try:
        values: dict[str, Any] = {**orjson.loads((output / RESULT).read_bytes()), "output": output}
        return TrainResult(**values)
    except (OSError, orjson.JSONDecodeError, TypeError):
        return None


def write_result(result: TrainResult) -> None:
    """Write the result of a finished training. Raises `StorageError` if the file cannot be written."""
    fields = result.as_json()
    del fields["output"]
    write_json_file(result.output / RESULT, fields)


def _has_training(output: Path) -> bool:
    """Return True if the folder contains a training. Raises `InputError` for other content and irregular files."""
    with storage_errors(output, "read"):
        if output.exists() and not output.is_dir():
            raise InputError(f"the output {str(output)!r} is a file; give a new or empty folder with -o")
        entries = sorted(output.iterdir()) if output.exists() else []
        checkpoints = output / CHECKPOINTS
        if entries == [checkpoints] and checkpoints.is_dir() and not any(checkpoints.iterdir()):
            return False  # another rank may already have made this folder
    if output / MARKER in entries:
        if entry := next(filter(irregular_kind, entries), None):
            raise InputError(
                f"{str(entry)!r} is {irregular_kind(entry)}; a training writes regular files and folders alone: remove it, or give another -o"
            )
        return True
    if entries:
        names = ", ".join(path.name for path in entries[:3])
        raise InputError(
            f"the output {str(output)!r} holds something else ({names}, ...); give a new or empty folder with -o"
        )
    return False


def _lock_folder(output: Path) -> FolderLock:
    """Create the folder and lock its marker, except on file systems without locks."""
    lock = FolderLock(output, MARKER, work="training", names_holder=False)
    with storage_errors(output, "written"):
        output.mkdir(parents=True, exist_ok=True)
        with suppress(StorageError):
            lock.acquire()
        (output / MARKER).touch()
    return lock


def _check_same_settings(output: Path, config: TrainConfig) -> None:
    """Raises: InputError: The finished training in the folder has other settings; the message names all differences."""

    def weight_settings(values: Mapping[str, Any]) -> dict[str, Any]:
        return {f"trainer.{name}": values["trainer"].get(name) for name in WEIGHT_SETTINGS}

    previous: dict[str, Any] = {}
    with suppress(RefinesynthError, KeyError, AttributeError):
        previous = read_settings(output / CONFIG)  # settings that are no more are not compared
        previous |= weight_settings(previous)
    current = portable_config(config) | weight_settings(config.model_dump(mode="json"))
    # The finished model is not written again, in no other type.
    compared = previous.keys() & current.keys() - (FREE_SETTINGS - {"save_dtype"}) - {"trainer"}
    names = differing_names({name: previous[name] for name in compared}, {name: current[name] for name in compared})
    if names:
        differences = "; ".join(f"{name} was {previous[name]!r} and is {current[name]!r}" for name in names)
        raise InputError(
            f"a training with other settings is in {str(output)!r}: {differences}. Give the same settings, "
            "or another -o"
        )


def differing_names(previous: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Names of the settings that differ. Paths to the same place are equal."""
    names = sorted({*previous, *current})
    return [name for name in names if _real_path(name, previous.get(name)) != _real_path(name, current.get(name))]


def _real_path(name: str, value: object) -> object:
    if name not in PATH_FIELDS:
        return value
    if isinstance(value, list | tuple):
        return [_real_path(name, item) for item in cast("Iterable[object]", value)]
    path = Path(value).expanduser() if isinstance(value, str) and value else None
    return str(path.resolve()) if path is not None and path.exists() else value


_TEMPLATE: Final = Path(__file__).with_name("card.md.jinja")

METRIC_TITLES: Final[Mapping[str, str]] = {
    events.LOSS: "trained tokens",
    events.LOSS_CORRECT: "correct turns",
    events.LOSS_REFINEMENT: "refinements",
}
"""Titles of the held-out losses of trained turns, in display order."""


def mistakes_title(loss_on: LossOn) -> str:
    """Title of the held-out loss of mistakes."""
    return "mistakes" if loss_on.trains(TurnLabel.MISTAKE) else "mistakes (not trained on)"


def short_name(name: str) -> str:
    """The name, or the last part of an absolute path, which may contain a user's name."""
    return Path(name).name if Path(name).is_absolute() or name.startswith("~") else name


def _header(base: str, *, lora: bool) -> str:
    is_hub_name = HUB_NAME.fullmatch(base) is not None and not Path(base).exists()
    values: dict[str, Any] = {
        "library_name": "peft" if lora else "transformers",
        "pipeline_tag": "text-generation",
        **({"base_model": base} if is_hub_name else {}),
        "tags": ["refinesynth", "refinement-tuning", "agent", *(["lora"] if lora else [])],
    }
    text: str = require("yaml", "train").safe_dump(values, sort_keys=False, allow_unicode=False)
    return text.rstrip("\n")


def render_card(config: TrainConfig, plan: Plan, result: TrainResult) -> str:
    """Render the model card: a README.md for the Hugging Face Hub.

    Names of data and models are untrusted text: PyYAML quotes them in the header, and the body puts them in code spans.
    """
    by_source = {
        name: code_in_table(name.removeprefix(events.SOURCE_LOSS))
        for name in result.held_out
        if name.startswith(events.SOURCE_LOSS)
    }
    held_out = {
        title: f"{loss:.4f}"
        for name, title in {**METRIC_TITLES, events.LOSS_MISTAKE: mistakes_title(config.loss_on), **by_source}.items()
        if math.isfinite(loss := result.held_out.get(name, math.nan))
    }
    base = published(plan.model.name)
    return render_markdown(
        _TEMPLATE,
        {"code": code_in_table, "name": short_name, "json": json.dumps, "count": "{:,}".format},
        config=config,
        plan=plan,
        result=result,
        versions=versions(plan.devices),
        base=base,
        header=_header(base, lora=config.lora is not None),
        title=short_name(config.output.rstrip("/")),
        held_out=held_out,
        counts=plan.sizes.counts,
    )


class MetricsFile:
    """Writer of `metrics.jsonl`, one line per report of training or held-out metrics.

    Infinities and NaN are written as null.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, kind: Literal["train", "held_out"], step: int, metrics: Mapping[str, float]) -> None:
        """Append a line. Raises `StorageError` if the file cannot be read or written."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = write_json({"kind": kind, "step": step, **metrics, "time": now})
        with storage_errors(self._path, "written"), open_to_append(self._path) as file:
            file.write(line + b"\n")


def cut_metrics(output: Path, step: int) -> None:
    """Remove the metrics of steps after `step`, from which a training begins. Raises `StorageError`."""
    path = output / METRICS
    with storage_errors(path, "written"):
        if path.exists():
            # A crash may have left a complete line without a line feed.
            kept = [line for line in path.read_bytes().splitlines() if _read_step(line) <= step]
            write_file(path, b"".join(line + b"\n" for line in kept))


def _read_step(line: bytes) -> float:
    """The step of a line of metrics; infinity for a truncated line, which a crash may leave."""
    try:
        return int(orjson.loads(line)["step"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return math.inf


_PACKAGES: Final = (
    *("torch", "transformers", "accelerate", "peft", "deepspeed", "tokenizers", "safetensors", "datasets", "numpy"),
    "flash-attn",
)


class ArtefactWriter:
    """Writer of settings, plan, versions and metrics, for rank 0; forwards events. Methods raise `StorageError`."""

    def __init__(self, config: TrainConfig, events: Events) -> None:
        self._config = config
        self._events = events
        self._output = Path(config.output)
        self._metrics = MetricsFile(self._output / METRICS)
        self._plan: Plan | None = None
        self._lock: FolderLock | None = None
        self.saved = events.saved
        self.note = events.note

    def planned(self, plan: Plan) -> None:
        self._plan = plan
        self.close()
        self._lock = open_output(self._config, plan)
        write_json_file(self._output / VERSIONS, versions(plan.devices))
        self._events.planned(plan)

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        self._metrics.write("train", step, metrics)
        self._events.logged(step, metrics)

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        self._metrics.write("held_out", step, metrics)
        self._events.evaluated(step, metrics)

    def finish(self, result: TrainResult) -> None:
        """Write model card and result, unless a signal interrupted the training."""
        if result.signal is None and self._plan is not None:
            write_text_file(self._output / CARD, render_card(self._config, self._plan, result))
            write_result(result)

    def close(self) -> None:
        """Release the lock of the output folder."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def versions(devices: Devices) -> dict[str, str | int]:
    """Versions of packages and Python, operating system, device and ranks; without names of persons or machines."""
    package_versions: dict[str, str | int] = {"refinesynth": __version__}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            package_versions[name] = metadata.version(name)
    return {
        **package_versions,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": devices.name,
        "ranks": devices.ranks,
    }
