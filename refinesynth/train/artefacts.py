"""What a training leaves in its output folder beside the model: everything to understand it and to repeat it."""

import json
import math
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from refinesynth._version import __version__
from refinesynth.errors import StorageError
from refinesynth.extras import require
from refinesynth.files.atomic_write import write_file, write_json_file, write_text_file
from refinesynth.files.output_folder import FolderLock
from refinesynth.files.regular import open_to_append
from refinesynth.text.jsontext import write_json
from refinesynth.text.markdown import code_in_table
from refinesynth.train import events, folder
from refinesynth.train.config import TrainConfig
from refinesynth.train.conversation import LossOn
from refinesynth.train.events import NullEvents, TrainResult
from refinesynth.train.layers import published
from refinesynth.train.passthrough import deciding
from refinesynth.train.plan import Devices, Plan

_TEMPLATE: Final = Path(__file__).with_name("card.md.jinja")
_HUB_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+")

LOSSES: Final[Mapping[LossOn, str]] = {
    LossOn.REFINEMENT: "Refinement loss (equation 1 of the paper): every assistant turn gives loss but those that were flagged as "
    "mistakes. A mistake stays in the context, so that the turn that repairs it is learned from it.",
    LossOn.ALL_TURNS: "All assistant turns give loss, mistakes included (the paper's ablation with erroneous loss).",
    LossOn.NO_REFINEMENT_TURNS: "Neither mistakes nor the turns that repair them give loss (the paper's ablation without refinement "
    "loss).",
}
METRIC_TITLES: Final[Mapping[str, str]] = {
    events.LOSS: "trained tokens",
    events.LOSS_CORRECT: "correct turns",
    events.LOSS_REFINEMENT: "refinements",
    events.LOSS_MISTAKE: "mistakes (not trained on)",
}
"""What the held-out losses are of, in the order in which they are shown."""

_SHOWN: Final = (
    "revision",
    "tokenizer_revision",
    "learning_rate",
    "schedule",
    "warmup",
    "batch_size",
    "epochs",
    "max_steps",
    "max_length",
    "over_length",
    "weight_decay",
    "max_grad_norm",
    "seed",
)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the card says."""

    config: TrainConfig
    plan: Plan
    result: TrainResult
    versions: Mapping[str, str | int]


def shown_name(name: str) -> str:
    """A hub name or relative path as it was given; of an absolute path, which may name a user, the end."""
    return Path(name).name if Path(name).is_absolute() or name.startswith("~") else name


def header(facts: ModelFacts) -> str:
    """The YAML header, without its fences."""
    lora = facts.config.lora is not None
    base = published(facts.plan.model.name)[0]
    is_hub_name = _HUB_NAME.fullmatch(base) is not None and not Path(base).exists()
    values: dict[str, Any] = {
        "library_name": "peft" if lora else "transformers",
        "pipeline_tag": "text-generation",
        **({"base_model": base} if is_hub_name else {}),
        "tags": ["refinesynth", "refinement-tuning", "agent", *(["lora"] if lora else [])],
    }
    text: str = require("yaml", "train").safe_dump(values, sort_keys=False, allow_unicode=False)
    return text.rstrip("\n")


def render_card(facts: ModelFacts) -> str:
    """The card's text."""
    from jinja2 import Environment, StrictUndefined

    # Markdown, not HTML: all text of others goes through the filter `code`.
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)  # noqa: S701
    environment.filters.update(code=code_in_table, name=shown_name, json=json.dumps, count=lambda number: f"{number:,}")
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    config = facts.config
    settings = {name: getattr(config, name) for name in _SHOWN if getattr(config, name) is not None}
    settings |= {f"trainer.{name}": value for name, value in deciding(config.trainer).items()}
    if config.max_steps is not None:
        settings.pop("epochs")
    losses = facts.result.held_out
    by_source = {name: code_in_table(of) for name in losses if (of := name.removeprefix(events.LOSS_OF_SOURCE)) != name}
    held_out = {
        what: f"{losses[name]:.4f}"
        for name, what in {**METRIC_TITLES, **by_source}.items()
        if math.isfinite(losses.get(name, math.nan))
    }
    return (
        template.render(
            facts=facts,
            base=published(facts.plan.model.name)[0],
            header=header(facts),
            title=shown_name(config.output.rstrip("/")),
            loss=LOSSES[config.loss_on],
            settings=settings,
            held_out=held_out,
            counts=facts.plan.sizes.counts,
        ).strip()
        + "\n"
    )


MetricsKind = Literal["train", "held_out"]
_FIXED: Final = {"kind", "step", "time"}


@dataclass(frozen=True, slots=True)
class Measured:
    """One line of metrics."""

    kind: MetricsKind
    step: int
    """Optimizer steps done."""
    values: Mapping[str, float]
    """By the names in `train/events.py`."""


class MetricsFile(NullEvents):
    """Writes `metrics.jsonl` from a training's events.

    When a training goes on from a checkpoint, the lines of steps that are done again are taken out first, so that each
    step is there once. Infinite and undefined numbers are written as null.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fresh = True

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        self._write("train", step, metrics)

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        self._write("held_out", step, metrics)

    def _write(self, kind: MetricsKind, step: int, metrics: Mapping[str, float]) -> None:
        if self._fresh:
            self._fresh = False
            _forget_from(self._path, step)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = write_json({"kind": kind, "step": step, **metrics, "time": now})
        try:
            with open_to_append(self._path) as file:
                file.write(line + b"\n")
        except OSError as error:
            raise StorageError(f"{str(self._path)!r} cannot be written: {error.strerror}") from error


def read_metrics(path: Path) -> Iterator[Measured]:
    """The lines of a `metrics.jsonl`, in order; none if there is no such file. A torn line, at the end after a crash,
    is left out.
    """
    for _, found in _lines(path):
        yield found


def _lines(path: Path) -> Iterator[tuple[bytes, Measured]]:
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    for line in lines:
        try:
            found: Any = orjson.loads(line)
            values = {name: _number(value) for name, value in found.items() if name not in _FIXED}
            yield line, Measured(found["kind"], int(found["step"]), values)
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
            continue


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _forget_from(path: Path, step: int) -> None:
    """Take out the lines of `step` and later ones, and torn ones."""
    kept = [line for line, found in _lines(path) if found.step < step]
    if path.exists():
        write_file(path, b"".join(line + b"\n" for line in kept))


_PACKAGES: Final = (
    *("torch", "transformers", "accelerate", "peft", "deepspeed", "tokenizers", "safetensors", "datasets", "numpy"),
    *("liger-kernel", "flash-attn"),
)


class Artefacts(NullEvents):
    """Writes settings, plan, versions and metrics as a training goes on, and its card when it is finished; for rank 0.

    Raises:
        StorageError: From every method: a file cannot be written.
    """

    def __init__(self, config: TrainConfig) -> None:
        self._config = config
        self._output = Path(config.output)
        self._metrics = MetricsFile(self._output / folder.METRICS)
        self._plan: Plan | None = None
        self._lock: FolderLock | None = None

    def planned(self, plan: Plan) -> None:
        self._plan = plan
        self.close()
        self._lock = folder.open_output(self._config, plan)
        write_json_file(self._output / folder.VERSIONS, versions(plan.devices))

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        self._metrics.logged(step, metrics)

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        self._metrics.evaluated(step, metrics)

    def finish(self, result: TrainResult) -> None:
        """Write the card and the result of a training that is finished, and not interrupted."""
        if result.signal is None and self._plan is not None:
            facts = ModelFacts(self._config, self._plan, result, versions(self._plan.devices))
            write_text_file(self._output / folder.CARD, render_card(facts))
            folder.note_result(result)

    def close(self) -> None:
        """Let other trainings have the folder, however this one ended."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def versions(devices: Devices) -> dict[str, str | int]:
    """What a training ran on, so that it can be repeated: packages by name, Python, operating system and device.

    What is not installed is left out, and so is all that names a person or a machine.
    """
    found: dict[str, str | int] = {"refinesynth": __version__}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        **found,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": devices.name,
        "ranks": devices.ranks,
    }
