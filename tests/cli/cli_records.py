"""Small records and run folders, made by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from samples import KITCHEN, REFINED, provenance, trajectory

from refinesynth.journal import Entry, Journal
from refinesynth.outcome import EpisodeOutcome, Refused
from refinesynth.rules import Violation
from refinesynth.run import EpisodeLine, RunStats
from refinesynth.synthesis.progress import Progress
from refinesynth.trajectory import Draft, DungeonMasterTurn, Persona, PlayerTurn, Trajectory, Usage

ORIGIN = provenance(
    models={"script_writer": "rehearsal", "player": "rehearsal", "dungeon_master": "gpt-4o"},
    seed=7,
    package_version="0.1.0",
    attempts=2,
    usage=Usage(requests=11, input_tokens=12_000, output_tokens=900),
    cost_usd=0.0123,
)


def a_trajectory(
    identity: str = "000000-aaaaaaaa", *, turns: Sequence[PlayerTurn | DungeonMasterTurn] = REFINED
) -> Trajectory:
    persona = "A potter who drinks too much coffee."
    return trajectory(*turns, id=identity, persona=persona, origin=ORIGIN)


def a_violation(rule: str = "TaskSucceed", *, turn: int = 3) -> Violation:
    return Violation(rule=rule, turn=turn, code="no_success", message="Say Task Succeed at the end.")


def a_refused_draft(
    identity: str = "000001-bbbbbbbb",
    *,
    rule: str = "TaskSucceed",
    turns: Sequence[PlayerTurn | DungeonMasterTurn] = REFINED[:4],
) -> Refused:
    return Refused(
        episode=identity,
        persona=Persona(text="A night porter."),
        stage="draft",
        attempt=1,
        draft=Draft(script=KITCHEN, turns=tuple(turns)),
        violations=(a_violation(rule),),
    )


def a_refused_script(identity: str = "000001-bbbbbbbb") -> Refused:
    return Refused(
        episode=identity,
        persona=Persona(text="A night porter."),
        stage="script",
        attempt=2,
        script=KITCHEN.model_copy(update={"actions": KITCHEN.actions[:1]}),
        violations=(a_violation("ActionCount", turn=0),),
    )


def an_unreadable_answer(identity: str = "000002-cccccccc") -> Refused:
    return Refused(
        episode=identity, persona=Persona(text="A judge."), stage="script", attempt=1, text="the answer holds no JSON"
    )


def write_run(folder: Path, trajectories: Sequence[Trajectory] = (), refused: Sequence[Refused] = ()) -> Path:
    """A run folder as far as reading it back needs one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trajectories.jsonl").write_bytes(b"".join(item.to_json() + b"\n" for item in trajectories))
    (folder / "rejected.jsonl").write_bytes(b"".join(item.to_json() + b"\n" for item in refused))
    return folder


def write_journal(folder: Path) -> None:
    """Have what is in a run folder counted by a journal, all of it as one episode."""
    journal = Journal(folder / "journal.sqlite")
    ends = [(folder / name).stat().st_size for name in ("trajectories.jsonl", "rejected.jsonl")]
    one = a_trajectory()
    line = EpisodeLine.of(EpisodeOutcome(index=0, id="000000", persona=one.persona, trajectories=(one,)))
    entry = Entry(
        index=0,
        id=line.id,
        persona=line.persona,
        accepted=True,
        line=line.to_json(),
        trajectories_end=ends[0],
        rejected_end=ends[1],
    )
    totals = RunStats()
    totals.add(line)
    journal.enter([entry], totals=totals.to_json())
    journal.close()


def moment(
    accepted: int, elapsed: float, *, n: int = 100, before: int = 0, in_flight: int = 0, failed: int = 0, **fields: Any
) -> Progress:
    """A moment of a run."""
    refused = sum(fields.get("by_rule", {}).values())
    counts: dict[str, Any] = {
        "scripts_refused": 1,
        "drafts_refused": refused,
        "finished_before": before,
        "accepted_before": before,
    }
    usual: dict[str, Any] = {"by_rule": {}, "bad_personas": 0, "usage": Usage(), "cost_usd": None}
    return Progress(
        n=n,
        accepted=min(accepted, n),
        kept=max(0, accepted - n),
        started=accepted + failed + in_flight,
        finished=accepted + failed,
        in_flight=in_flight,
        failed=failed,
        elapsed=elapsed,
        **counts | usual | fields,
    )
