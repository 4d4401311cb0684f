"""Outcomes to put into a run folder, and what of the folder must be the same however it came about."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import orjson
from hypothesis import settings
from samples import POT, dm, player, provenance
from samples import trajectory as sample

from refinesynth.outcome import EpisodeOutcome, Refused
from refinesynth.rules import Severity, Violation
from refinesynth.run import CompletedEpisode, RunConfig, RunFolder, RunWriter
from refinesynth.trajectory import Draft, Persona, Trajectory, Usage

FEWER = settings(max_examples=max(5, settings().max_examples // 4))
"""For laws whose every example writes whole run folders."""


def scratch() -> TemporaryDirectory[str]:
    """A folder for one example of a law; in memory where there is such a place, for disks are slow to say that they are
    done."""
    return TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)


CONFIG = RunConfig(
    n=10,
    concurrency=4,
    play="live",
    seed=7,
    rules="strict()",
    script_rules="script()",
    mistakes={"policy": "at_least", "minimum": 2},
    attempts={"scripts": 3, "drafts": 4},
    max_turns=60,
    judge=False,
    prompts="0123",
    models={"player": {"model": "rehearsal", "temperature": None}},
    connections={"player": {"timeout": 300}},
    personas="a list",
    versions={"refinesynth": "0"},
)


def violation(rule: str, *, severity: Severity = Severity.REJECT) -> Violation:
    return Violation(rule=rule, turn=0, code="wrong", message="No.", severity=severity)


def trajectory(index: int, persona: Persona) -> Trajectory:
    return sample(
        player("take pan", "Perhaps the pan?\n\u2028"),
        dm("There is no pan.", "parameter"),
        player("take pot", "Then the pot."),
        dm("Task Succeed"),
        script=POT,
        id=f"{index:06d}",
        persona=persona,
        origin=provenance(models={"player": "rehearsal"}, seed=index),
    )


def outcome(index: int, *, accepted: bool = True, cost: float | None = 0.5) -> EpisodeOutcome:
    """An episode with one unreadable script, one script that two rules refused, and two refused drafts."""
    persona = Persona(text=f"Somebody with the number {index}")
    draft = Draft(script=POT, turns=(player("take pan"),))

    def refused(stage: Literal["script", "draft"], attempt: int, *found: Violation, **what: Any) -> Refused:
        place: dict[str, Any] = {"episode": f"{index:06d}", "persona": persona}
        return Refused(stage=stage, attempt=attempt, violations=found, **place, **what)

    unique, success = violation("UniqueNames"), violation("TaskSucceed")
    all_refused = (
        refused("script", 1, text="no JSON"),
        refused("script", 2, unique, unique, violation("ActionCount"), script=POT),
        refused("draft", 1, success, violation("NoLeaks", severity=Severity.WARN), draft=draft),
        refused("draft", 2, success, draft=draft),
    )
    return EpisodeOutcome(
        index=index,
        id=f"{index:06d}",
        persona=persona,
        trajectories=(trajectory(index, persona),) if accepted else (),
        refused=all_refused,
        reason=None if accepted else "too many drafts were refused",
        usage=Usage(requests=4, input_tokens=1000, cached_tokens=10, output_tokens=100),
        cost_usd=cost,
    )


def finished(index: int, *, accepted: bool = True, cost: float | None = 0.5) -> CompletedEpisode:
    return CompletedEpisode.of(outcome(index, accepted=accepted, cost=cost))


async def write(path: Path, *accepted: bool, waiting: tuple[int, ...] = ()) -> RunFolder:
    """A run in which these were committed, and those wait."""
    folder = RunWriter.claim(path, CONFIG)
    for index, good in enumerate(accepted):
        await folder.append(finished(index, accepted=good))
    for index in waiting:
        await folder.keep_waiting(finished(index))
    folder.log.info("run_ended", why="reached")
    folder.close()
    return RunFolder.open(path)


def events(path: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The events of a run, or those of one kind."""
    found = [orjson.loads(line) for line in (path / "events.jsonl").read_bytes().splitlines()]
    return [event for event in found if kind in {None, event["event"]}]


def contents(path: Path) -> dict[str, bytes]:
    """Both files, and what the journal says of the episodes in them."""
    folder = RunFolder.open(path)
    return {
        "trajectories": folder.trajectories_file.read_bytes(),
        "rejected": folder.rejected_file.read_bytes(),
        "episodes": b"\n".join(line.to_json() for line in folder.episodes()),
        "totals": folder.totals().to_json(),
    }


def kept(path: Path) -> dict[int, bool]:
    """Index to whether it was accepted, of every finished episode, committed or waiting."""
    folder = RunFolder.open(path)
    return {line.index: line.accepted for line in (*folder.episodes(), *folder.waiting_lines())}
