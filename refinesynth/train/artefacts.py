"""Files of a training beside the model: card, metrics, versions."""

import json
import math
import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from refinesynth._version import __version__
from refinesynth.errors import StorageError
from refinesynth.extras import require
from refinesynth.files.atomic_write import open_to_append, write_file, write_json_file, write_text_file
from refinesynth.files.output_folder import FolderLock
from refinesynth.text.json_reader import write_json
from refinesynth.text.markup import code_in_table
from refinesynth.train import events, training_folder
from refinesynth.train.config import TrainConfig
from refinesynth.train.events import Events, TrainResult
from refinesynth.train.labelled_conversation import LossOn
from refinesynth.train.layered_settings import published
from refinesynth.train.plan import Devices, Plan

_TEMPLATE: Final = Path(__file__).with_name("card.md.jinja")
_HUB_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+")

LOSSES: Final[Mapping[LossOn, str]] = {
    LossOn.REFINEMENT: "Refinement loss (equation 1 of the paper): every assistant turn gives loss but those that were flagged as "
    "mistakes. A mistake stays in the context, so that the turn that repairs it is learned from it.",
    LossOn.ALL_TURNS: "All assistant turns give loss, mistakes included (the paper's ablation with erroneous loss).",
    LossOn.REPAIRS: "Only repairs give loss: right turns after a mistake, and those of a repairer.",
    LossOn.NO_REFINEMENT_TURNS: "Neither mistakes nor the turns that repair them give loss (the paper's ablation without refinement "
    "loss).",
}
METRIC_TITLES: Final[Mapping[str, str]] = {
    events.LOSS: "trained tokens",
    events.LOSS_CORRECT: "correct turns",
    events.LOSS_REFINEMENT: "refinements",
    events.LOSS_MISTAKE: "mistakes (not trained on)",
}
"""Titles of the held-out losses, in the order in which they are shown."""

_SHOWN: Final = (
    *("revision", "tokenizer_revision", "learning_rate", "schedule", "warmup", "batch_size", "epochs", "max_steps"),
    *("max_length", "over_length", "weight_decay", "max_grad_norm", "seed"),
)
"""Settings in the card, in its order."""


def shown_name(name: str) -> str:
    """The name as given; of an absolute path, which may name a user, its last part."""
    return Path(name).name if Path(name).is_absolute() or name.startswith("~") else name


def _header(base: str, *, lora: bool) -> str:
    is_hub_name = _HUB_NAME.fullmatch(base) is not None and not Path(base).exists()
    values: dict[str, Any] = {
        "library_name": "peft" if lora else "transformers",
        "pipeline_tag": "text-generation",
        **({"base_model": base} if is_hub_name else {}),
        "tags": ["refinesynth", "refinement-tuning", "agent", *(["lora"] if lora else [])],
    }
    text: str = require("yaml", "train").safe_dump(values, sort_keys=False, allow_unicode=False)
    return text.rstrip("\n")


def render_card(config: TrainConfig, plan: Plan, result: TrainResult) -> str:
    """The model card: a README.md for the Hugging Face Hub.

    Names of data and models are untrusted text: PyYAML quotes them in the header, the body shows them in code spans.
    """
    from jinja2 import Environment, StrictUndefined

    # Markdown, not HTML: all text of others goes through the filter `code`.
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)  # noqa: S701
    environment.filters.update(code=code_in_table, name=shown_name, json=json.dumps, count=lambda number: f"{number:,}")
    left_out = "max_steps" if config.max_steps is None else "epochs"
    settings = {name: value for name in _SHOWN if (value := getattr(config, name)) is not None and name != left_out}
    settings |= {f"trainer.{name}": value for name, value in config.trainer.deciding().items()}
    by_source = {
        name: code_in_table(name.removeprefix(events.LOSS_OF_SOURCE))
        for name in result.held_out
        if name.startswith(events.LOSS_OF_SOURCE)
    }
    held_out = {
        what: f"{loss:.4f}"
        for name, what in {**METRIC_TITLES, **by_source}.items()
        if math.isfinite(loss := result.held_out.get(name, math.nan))
    }
    base = published(plan.model.name)[0]
    text = environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        config=config,
        plan=plan,
        result=result,
        versions=versions(plan.devices),
        base=base,
        header=_header(base, lora=config.lora is not None),
        title=shown_name(config.output.rstrip("/")),
        loss=LOSSES[config.loss_on],
        settings=settings,
        held_out=held_out,
        counts=plan.sizes.counts,
    )
    return f"{text.strip()}\n"


class MetricsFile:
    """Writer of `metrics.jsonl`, one line per report of training or held-out metrics.

    On resuming, lines of steps that are repeated are removed first. Infinite and undefined numbers are written as null.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fresh = True

    def write(self, kind: Literal["train", "held_out"], step: int, metrics: Mapping[str, float]) -> None:
        """Append a line. Raises `StorageError` if the file cannot be read or written."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = write_json({"kind": kind, "step": step, **metrics, "time": now})
        try:
            if self._fresh and self._path.exists():
                # A crash may have left a whole line without its line feed.
                kept = [each for each in self._path.read_bytes().splitlines() if _step_of(each) < step]
                write_file(self._path, b"".join(each + b"\n" for each in kept))
            self._fresh = False
            with open_to_append(self._path) as file:
                file.write(line + b"\n")
        except OSError as error:
            raise StorageError(f"{str(self._path)!r} cannot be written: {error.strerror}") from error


def _step_of(line: bytes) -> float:
    """The step of a line of metrics; infinite for a torn line, as a crash leaves it."""
    try:
        return int(orjson.loads(line)["step"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return math.inf


_PACKAGES: Final = (
    *("torch", "transformers", "accelerate", "peft", "deepspeed", "tokenizers", "safetensors", "datasets", "numpy"),
    "flash-attn",
)


class Artefacts:
    """Writer of settings, plan, versions and metrics that passes events on; for rank 0. Methods raise `StorageError`."""

    def __init__(self, config: TrainConfig, events: Events) -> None:
        self._config = config
        self._events = events
        self._output = Path(config.output)
        self._metrics = MetricsFile(self._output / training_folder.METRICS)
        self._plan: Plan | None = None
        self._lock: FolderLock | None = None
        self.saved = events.saved
        self.note = events.note

    def planned(self, plan: Plan) -> None:
        self._plan = plan
        self.close()
        self._lock = training_folder.open_output(self._config, plan)
        write_json_file(self._output / training_folder.VERSIONS, versions(plan.devices))
        self._events.planned(plan)

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        self._metrics.write("train", step, metrics)
        self._events.logged(step, metrics)

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        self._metrics.write("held_out", step, metrics)
        self._events.evaluated(step, metrics)

    def finish(self, result: TrainResult) -> None:
        """Write card and result of a training that was not interrupted."""
        if result.signal is None and self._plan is not None:
            write_text_file(self._output / training_folder.CARD, render_card(self._config, self._plan, result))
            training_folder.note_result(result)

    def close(self) -> None:
        """Release the output folder."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def versions(devices: Devices) -> dict[str, str | int]:
    """Versions of packages, Python, operating system and device; nothing that names a person or a machine."""
    found: dict[str, str | int] = {"refinesynth": __version__}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return {
        **found,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": devices.name,
        "ranks": devices.ranks,
    }
