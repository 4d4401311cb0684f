"""Episodes that are made up: what becomes of them is said beforehand, and they take so many turns of the event loop."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio.lowlevel import checkpoint
from hypothesis import strategies as st
from run_records import CONFIG
from samples import POT, dm, player, provenance
from samples import trajectory as sample

from refinesynth.errors import RunStopped
from refinesynth.outcome import EpisodeOutcome, Refused
from refinesynth.personas import Personas, open_personas
from refinesynth.rules import Violation
from refinesynth.run import CompletedEpisode, RunConfig, RunWriter
from refinesynth.synthesis.concurrency import EpisodeLimit
from refinesynth.synthesis.pool import Curate, Pool
from refinesynth.synthesis.progress import Progress
from refinesynth.trajectory import Draft, Persona, Usage


def config(**settings: int) -> RunConfig:
    return CONFIG.model_copy(update={"n": 1, "concurrency": 1, "seed": 0, **settings})


class Interruption:
    """Cancels a scope at the so-many-th change of a run."""

    def __init__(self, scope: anyio.CancelScope, *, at: int) -> None:
        self._scope = scope
        self._left = at

    def __call__(self, _: Progress) -> None:
        self._left -= 1
        if self._left == 0:
            self._scope.cancel()


@dataclass(frozen=True)
class Fate:
    """What is to become of an episode: how many turns of the loop it takes, and what comes out."""

    steps: int = 0
    accepted: bool = True
    gives: int = 1
    """Trajectories, if it is accepted."""
    refusals: tuple[str, ...] = ()
    """Rules that refuse a draft each."""
    cost: float | None = 0.25
    lost: bool = False
    """True if it is not accepted and its backend ended it."""
    doubtful: bool = False
    """True if it is not accepted and its settings may be wrong."""


def some_fates(**further: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Fate]]:
    refusals = st.lists(st.sampled_from(["TurnLimit", "TaskSucceed"]), max_size=2).map(tuple)
    fate = st.builds(Fate, steps=st.integers(0, 12), accepted=st.booleans(), refusals=refusals, **further)
    return st.lists(fate, min_size=1, max_size=12)


def outcome(index: int, persona: Persona, fate: Fate) -> EpisodeOutcome:
    name = f"{index:06d}"
    refused = tuple(
        Refused(
            episode=name,
            persona=persona,
            stage="draft",
            attempt=at,
            draft=Draft(script=POT, turns=(player("take pan"),)),
            violations=(Violation(rule=rule, turn=0, code="wrong", message="No."),) * 2,
        )
        for at, rule in enumerate(fate.refusals, start=1)
    )
    usage = Usage(requests=2 + index % 3, input_tokens=100, output_tokens=10)
    trajectory = sample(
        player("take pot", f"As {persona.text}"),
        dm("Task Succeed"),
        script=POT,
        id=name,
        persona=persona,
        origin=provenance(seed=index, usage=usage),
    )
    return EpisodeOutcome(
        index=index,
        id=name,
        persona=persona,
        trajectories=tuple(
            trajectory.model_copy(update={"id": f"{name}-{number}" if number else name}) for number in range(fate.gives)
        )
        if fate.accepted
        else (),
        refused=refused,
        reason=None if fate.accepted else "too many drafts were refused",
        lost=fate.lost and not fate.accepted,
        doubtful=fate.doubtful and not fate.accepted,
        usage=usage,
        cost_usd=fate.cost,
    )


def people(count: int) -> list[str]:
    return [f"Somebody with the number {number}" for number in range(count)]


@dataclass
class Fates:
    """Plays fates, and watches how many are in flight."""

    fates: list[Fate]
    stop_at: int | None = None
    """Index of an episode that stops the run."""
    played: list[int] = field(default_factory=list[int])
    """Indices in the order in which they were started."""
    finished: dict[int, bool] = field(default_factory=dict[int, bool])
    """Index to whether it was accepted."""
    in_flight: int = 0

    async def play(self, index: int, persona: Persona) -> CompletedEpisode:
        return CompletedEpisode.of(await self.act(index, persona))

    async def act(self, index: int, persona: Persona) -> EpisodeOutcome:
        fate = self.fates[index % len(self.fates)]
        self.played.append(index)
        self.in_flight += 1
        try:
            for _ in range(fate.steps):
                await checkpoint()
            if index == self.stop_at:
                raise RunStopped("the key was refused.")
        finally:
            self.in_flight -= 1
        self.finished[index] = fate.accepted
        return outcome(index, persona, fate)


async def run(
    where: Path | RunWriter,
    stage: Fates,
    *,
    n: int,
    concurrency: int | EpisodeLimit = 1,
    count: int = 100,
    personas: Personas | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    curate: Curate | None = None,
    per_episode: int = 1,
    early_stop: int = 0,
) -> Pool:
    asked = config(n=n, early_stop=early_stop, branches=per_episode)
    folder = RunWriter.claim(where, asked) if isinstance(where, Path) else where
    limit = concurrency if isinstance(concurrency, EpisodeLimit) else EpisodeLimit(concurrency, concurrency)
    source = personas or open_personas(people(count))
    try:
        async with source:
            pool = Pool(
                play=stage.play, personas=source, folder=folder, limit=limit, on_progress=on_progress, curate=curate
            )
            await pool.run()
            return pool
    finally:
        folder.close()
