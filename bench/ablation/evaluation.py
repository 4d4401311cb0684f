"""How a tuned model plays, through the evaluation wing, from four kinds of start."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import torch

from bench.ablation.playing import MOST_ACTIONS, play
from bench.ablation.worlds import UNSEEN, scene_of
from refinesynth.settings.mistakes import spread

MOST_TOKENS = 40
"""Of one turn; the longest right one has about half of that."""

_PROCESSES = 4
"""Of environments."""
_SLIPS = 0.2
_SOON = 3
"""Turns within which a mistake is to be repaired: those of `RealRefinement`."""


@dataclass(frozen=True)
class Start:
    """Where plays begin, and how turns are drawn."""

    name: str
    task: str
    """`worlds` or `mistakes`, of the file that `write_starts` writes under `kind`."""
    kind: str
    worlds: int
    temperature: float = 0.0


def starts(worlds: int) -> tuple[Start, ...]:
    """The primary endpoint in so many worlds, the others in a quarter."""
    few = max(1, worlds // 4)
    return (
        Start("mistake", "mistakes", "mistake", worlds),
        Start("mistake, T = 1", "mistakes", "mistake", few, temperature=1.0),
        Start("clean", "worlds", "clean", few),
        Start("clean, T = 1", "worlds", "clean", few, temperature=1.0),
        Start("slips", "worlds", "slips", few),
        Start("unseen names", "worlds", "unseen", few),
    )


Kinds = Mapping[str, Iterator[dict[str, Any]]]
"""Of each kind of start the records of its file, the same for every model: held-out worlds that no training has seen."""


def kinds_of(worlds: int) -> Kinds:
    """Those of `starts`."""
    return {
        "clean": (_world(f"held out {at}") for at in range(worlds)),
        "slips": (_world(f"held out {at}") | {"slips": _SLIPS} for at in range(worlds)),
        "unseen": (_world(f"held out {at}", unseen=True) for at in range(worlds)),
        "mistake": (_mistaken(f"held out {at}", at) for at in range(worlds)),
    }


def write_starts(folder: Path, kinds: Kinds) -> None:
    """A file of each kind."""
    for kind, records in kinds.items():
        (folder / f"{kind}.jsonl").write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in records))


def _world(name: str, *, unseen: bool = False) -> dict[str, Any]:
    scene = scene_of(name, UNSEEN) if unseen else scene_of(name)
    return {"script": orjson.loads(scene.script.to_json())}


def _mistaken(name: str, number: int) -> dict[str, Any]:
    return orjson.loads(play(name, scene_of(name), spread(1.0, clean=0), episode=number).to_json())


def measured(model: Path, begun: Path, which: tuple[Start, ...], *, seed: int) -> dict[str, Any]:
    """Start's name to what was measured: `success` of each world in the order of their ids, and shares in percent."""
    return {one.name: _measured(model, begun, one, seed=seed) for one in which}


def _measured(model: Path, begun: Path, start: Start, *, seed: int) -> dict[str, Any]:
    from inspect_ai import eval as play_all  # pyright: ignore[reportUnknownVariableType]
    from inspect_ai.model import GenerateConfig, get_model

    from bench.ablation import batching
    from refinesynth.evaluate.episode_counts import SCORE, Counts
    from refinesynth.evaluate.settings import TaskSettings
    from refinesynth.evaluate.task import benchmark_task, environment_pools

    torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
    options = TaskSettings(argument=str(begun / f"{start.kind}.jsonl"), steps=MOST_ACTIONS // 2)
    with environment_pools(environments=_PROCESSES, pythons={}):
        log = play_all(
            benchmark_task(start.task, options),
            model=get_model(f"{batching.NAME}/{model}", memoize=False),
            limit=start.worlds,
            log_dir=str(model / "evaluations"),
            display="none",
            log_realtime=False,
            max_samples=start.worlds,
            **GenerateConfig(temperature=start.temperature, max_tokens=MOST_TOKENS).model_dump(exclude_none=True),
        )[0]
    samples = sorted(log.samples or [], key=lambda sample: str(sample.id))
    if log.status != "success" or len(samples) != start.worlds:
        raise RuntimeError(
            f"the evaluation of {model.name} from {start.name} is not complete: {log.error or log.status}"
        )
    scores: list[Any] = [sample.scores[SCORE] for sample in samples if sample.scores]
    counts = sum((Counts(**score.metadata["counts"]) for score in scores), Counts())
    return {
        "success": "".join(str(int(score.value["success"])) for score in scores),
        "progress": 100 * sum(score.value["progress"] for score in scores) / len(scores),
        "refused": 100 * (counts.refused + counts.format_errors) / counts.turns,
        "repeated": 100 * counts.repeated / counts.after_failure if counts.after_failure else None,
        "recovered": 100 * counts.recovered / counts.failures if counts.failures else None,
        "soon": 100 * sum(_soon(sample.messages) for sample in samples) / len(samples)
        if start.task == "mistakes"
        else None,
    }


def _soon(messages: list[Any]) -> bool:
    """Whether one of the first three answers to the model says that its action was taken."""
    answers = [message.metadata["refused"] for message in messages if message.role == "user" and message.metadata]
    return not all(answers[:_SOON])
