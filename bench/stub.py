"""An episode that is made up, in whatever process: everything around episodes is as it is, and nothing is asked.

Importing this puts it in the place of episodes. Workers do so when they read `Nobody`, the completion function.
"""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio.lowlevel import checkpoint

from refinesynth import episode
from refinesynth.outcome import EpisodeOutcome
from refinesynth.trajectory import Persona, Trajectory

_SAMPLES: list[Trajectory] = []
"""Of each that was read in this process, as a trajectory."""


@dataclass(frozen=True)
class Nobody:
    """Is never asked."""

    sample: str
    """A trajectory as JSON: each episode gives this one."""

    def __post_init__(self) -> None:
        _SAMPLES.append(Trajectory.model_validate_json(self.sample))

    def __reduce__(self) -> tuple[type["Nobody"], tuple[str]]:
        return Nobody, (self.sample,)

    async def __call__(self, **_: Any) -> object:
        raise NotImplementedError


async def play(persona: Persona, *, index: int, **_: Any) -> EpisodeOutcome:
    """Episodes end out of their order, as they do."""
    for _turn in range(random.randrange(20)):
        await checkpoint()
    name, sample = f"{index:06d}-bench", _SAMPLES[-1]
    trajectory = sample.model_copy(update={"id": name, "persona": persona})
    return EpisodeOutcome(
        index=index, id=name, persona=persona, trajectories=(trajectory,), usage=sample.provenance.usage
    )


episode.play_episode = play


def sample_in(folder: Path) -> str:
    """The first trajectory of a run."""
    return (folder / "trajectories.jsonl").read_text(encoding="utf-8").splitlines()[0]
