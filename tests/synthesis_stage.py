"""Episodes that are made up: what becomes of them is said beforehand, and they take so many turns of the event loop."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio.lowlevel import checkpoint
from hypothesis import settings

from refinesynth.errors import RunStopped
from refinesynth.outcome import EpisodeOutcome, Refused
from refinesynth.personas import Personas, open_personas
from refinesynth.rules import Violation
from refinesynth.run import Finished, RunConfig, RunFolder, RunWriter
from refinesynth.synthesis.patience import Patience
from refinesynth.synthesis.pool import Curate, Pool
from refinesynth.synthesis.progress import Progress
from refinesynth.trajectory import (
    ActionSpec,
    Draft,
    DungeonMasterTurn,
    Persona,
    PlayerTurn,
    Provenance,
    Script,
    Trajectory,
    Usage,
)

FEWER = settings(max_examples=max(5, settings().max_examples // 4))
"""For laws whose every example writes whole run folders."""


def scratch() -> TemporaryDirectory[str]:
    """A folder for one example of a law; in memory where there is such a place, for disks are slow to say that they are done."""
    return TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)


SCRIPT = Script(
    environment={"shelf": ["pot"]},
    goal="Take the pot.",
    completion_conditions=("the pot is held",),
    actions=(ActionSpec(name="take {item}", pattern=r"^take (\w+)$", parameters={"item": ("pot",)}),),
)


def config(*, n: int = 1, concurrency: int = 1, seed: int = 0) -> RunConfig:
    return RunConfig(
        n=n,
        concurrency=concurrency,
        play="live",
        seed=seed,
        rules="strict()",
        script_rules="script()",
        mistakes={"policy": "at_least"},
        attempts={"scripts": 3},
        max_turns=60,
        judge=False,
        prompts="digest",
        models={"player": {"model": "rehearsal"}},
        connections={},
        personas="a list",
        versions={},
    )


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
    """Whether its backend ended it, if it is not accepted."""


def outcome(index: int, persona: Persona, fate: Fate) -> EpisodeOutcome:
    name = f"{index:06d}"
    refused = tuple(
        Refused(
            episode=name,
            persona=persona,
            stage="draft",
            attempt=at,
            draft=Draft(script=SCRIPT, turns=(PlayerTurn(thought="?", action="take pan"),)),
            violations=(Violation(rule=rule, turn=0, code="wrong", message="No."),) * 2,
        )
        for at, rule in enumerate(fate.refusals, start=1)
    )
    usage = Usage(requests=2 + index % 3, input_tokens=100, output_tokens=10)
    trajectory = Trajectory(
        id=name,
        persona=persona,
        script=SCRIPT,
        turns=(
            PlayerTurn(thought=f"As {persona.text}", action="take pot"),
            DungeonMasterTurn(
                thought="fine", observation="Task Succeed", parameter_error=False, place_error=False, logic_error=False
            ),
        ),
        provenance=Provenance(
            models={},
            play="live",
            seed=index,
            rules="strict()",
            package_version="0",
            attempts=1,
            script_attempts=1,
            usage=usage,
        ),
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
        usage=usage,
        cost_usd=fate.cost,
    )


def people(count: int) -> list[str]:
    return [f"Somebody with the number {number}" for number in range(count)]


@dataclass
class Stage:
    """Plays fates, and watches how many are in flight."""

    fates: list[Fate]
    stop_at: int | None = None
    """Index of an episode that stops the run."""
    played: list[int] = field(default_factory=list[int])
    """Indices in the order in which they were started."""
    finished: dict[int, bool] = field(default_factory=dict[int, bool])
    """Index to whether it was accepted."""
    in_flight: int = 0

    async def play(self, index: int, persona: Persona) -> Finished:
        return Finished.of(await self.act(index, persona))

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
    folder: RunWriter,
    stage: Stage,
    *,
    n: int,
    concurrency: int = 1,
    count: int = 100,
    personas: Personas | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    curate: Curate | None = None,
    per_episode: int = 1,
    patience: Patience | None = None,
) -> Pool:
    source = personas or open_personas(people(count))
    try:
        async with source:
            pool = Pool(
                play=stage.play,
                personas=source,
                folder=folder,
                n=n,
                concurrency=concurrency,
                on_progress=on_progress,
                curate=curate,
                per_episode=per_episode,
                patience=patience,
            )
            await pool.run()
            return pool
    finally:
        folder.close()


def contents(path: Path) -> dict[str, bytes]:
    """Both files, and what the journal says of the episodes in them."""
    folder = RunFolder.open(path)
    return {
        "trajectories": folder.trajectories_file.read_bytes(),
        "rejected": folder.rejected_file.read_bytes(),
        "episodes": b"".join(line.to_json() + b"\n" for line in folder.episodes()),
        "totals": folder.totals().to_json(),
    }


def kept(path: Path) -> dict[int, bool]:
    """Index to whether it was accepted, of every finished episode, committed or waiting."""
    folder = RunFolder.open(path)
    return {line.index: line.accepted for line in (*folder.episodes(), *folder.waiting_lines())}
