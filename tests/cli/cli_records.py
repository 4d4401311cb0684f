"""Small records and run folders, made by hand."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from refinesynth.journal import Entry, Journal
from refinesynth.outcome import Refused
from refinesynth.rules import Violation
from refinesynth.run import EpisodeLine, Totals
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

SCRIPT = Script(
    introduction="You are in a small kitchen.",
    environment={"kitchen": {"shelf": ["mug"], "drawer": ["key"]}, "you": {"at": "table"}},
    goal="Put the mug on the table.",
    completion_conditions=("The mug is on the table.",),
    actions=(
        ActionSpec(
            name="go to {place}",
            description="Walk somewhere.",
            pattern=r"^\s*go to (.+?)\s*$",
            parameters={"place": ("shelf", "table", "drawer")},
        ),
        ActionSpec(
            name="take {item} from {place}",
            description="Pick something up.",
            pattern=r"^\s*take (.+?) from (.+?)\s*$",
            parameters={"item": ("mug", "key"), "place": ("shelf", "drawer")},
        ),
        ActionSpec(
            name="put {item} on {place}",
            description="Put down what you hold.",
            pattern=r"^\s*put (.+?) on (.+?)\s*$",
            parameters={"item": ("mug", "key"), "place": ("table",)},
        ),
    ),
)


def player(action: str, thought: str = "Let me see.") -> PlayerTurn:
    return PlayerTurn(thought=thought, action=action)


def dm(observation: str, wrong: str = "") -> DungeonMasterTurn:
    return DungeonMasterTurn(
        thought="I judge the action.",
        observation=observation,
        parameter_error=wrong == "parameter",
        place_error=wrong == "place",
        logic_error=wrong == "logic",
    )


TURNS = (
    player("take mug from shelf", "The mug is on the shelf."),
    dm("You are not at the shelf.", "place"),
    player("go to shelf", "I have to walk there first."),
    dm("You are at the shelf. There is a mug."),
    player("grab mug", "Now I take it."),
    dm("That is no action here.", "parameter"),
    player("take mug from shelf", "The action is called take."),
    dm("You hold the mug."),
    player("put mug on table", "And down it goes."),
    dm("The mug is on the table. Task Succeed."),
)


def a_trajectory(
    identity: str = "000000-aaaaaaaa", *, turns: Sequence[PlayerTurn | DungeonMasterTurn] = TURNS
) -> Trajectory:
    return Trajectory(
        id=identity,
        persona=Persona(text="A potter who drinks too much coffee."),
        script=SCRIPT,
        turns=tuple(turns),
        provenance=Provenance(
            models={"script_writer": "rehearsal", "player": "rehearsal", "dungeon_master": "gpt-4o"},
            play="live",
            seed=7,
            rules="strict()",
            package_version="0.1.0",
            attempts=2,
            script_attempts=1,
            usage=Usage(requests=11, input_tokens=12_000, output_tokens=900),
            cost_usd=0.0123,
        ),
    )


def a_violation(rule: str = "TaskSucceed", *, turn: int = 3) -> Violation:
    return Violation(rule=rule, turn=turn, code="no_success", message="Say Task Succeed at the end.")


def a_refused_draft(
    identity: str = "000001-bbbbbbbb",
    *,
    rule: str = "TaskSucceed",
    turns: Sequence[PlayerTurn | DungeonMasterTurn] = TURNS[:4],
) -> Refused:
    return Refused(
        episode=identity,
        persona=Persona(text="A night porter."),
        stage="draft",
        attempt=1,
        draft=Draft(script=SCRIPT, turns=tuple(turns)),
        violations=(a_violation(rule),),
    )


def a_refused_script(identity: str = "000001-bbbbbbbb") -> Refused:
    return Refused(
        episode=identity,
        persona=Persona(text="A night porter."),
        stage="script",
        attempt=2,
        script=SCRIPT.model_copy(update={"actions": SCRIPT.actions[:1]}),
        violations=(a_violation("ActionCount", turn=0),),
    )


def an_unreadable_answer(identity: str = "000002-cccccccc") -> Refused:
    return Refused(
        episode=identity,
        persona=Persona(text="A judge."),
        stage="script",
        attempt=1,
        text="the answer holds no JSON",
    )


def write_run(folder: Path, trajectories: Sequence[Trajectory] = (), refused: Sequence[Refused] = ()) -> Path:
    """A run folder as far as reading it back needs one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trajectories.jsonl").write_bytes(b"".join(item.to_json() + b"\n" for item in trajectories))
    (folder / "rejected.jsonl").write_bytes(b"".join(item.to_json() + b"\n" for item in refused))
    return folder


def write_journal(folder: Path) -> None:
    """Have what is in a run folder counted by a journal, all of it as one episode."""
    journal = Journal.open(folder / "journal.sqlite")
    ends = [(folder / name).stat().st_size for name in ("trajectories.jsonl", "rejected.jsonl")]
    line = EpisodeLine(
        index=0,
        id="000000",
        persona="0" * 16,
        accepted=True,
        reason=None,
        scripts_refused=0,
        drafts_refused=0,
        by_rule={},
        violations={},
        usage=Usage(),
        cost_usd=None,
    )
    entry = Entry(
        index=0,
        id=line.id,
        persona=line.persona,
        accepted=True,
        line=line.to_json(),
        trajectories_end=ends[0],
        rejected_end=ends[1],
    )
    totals = Totals()
    totals.add(line)
    journal.enter([entry], totals=totals.to_json())
    journal.close()


def moment(
    accepted: int,
    elapsed: float,
    *,
    n: int = 100,
    cost: float | None = None,
    before: int = 0,
    in_flight: int = 0,
    failed: int = 0,
    by_rule: Mapping[str, int] | None = None,
    bad_personas: int = 0,
    usage: Usage = Usage(),  # noqa: B008 - frozen
) -> Progress:
    """A moment of a run."""
    return Progress(
        n=n,
        accepted=accepted,
        written=min(accepted, n),
        started=accepted + failed + in_flight,
        finished=accepted + failed,
        in_flight=in_flight,
        failed=failed,
        scripts_refused=1,
        drafts_refused=sum((by_rule or {}).values()),
        by_rule=by_rule or {},
        bad_personas=bad_personas,
        usage=usage,
        cost_usd=cost,
        elapsed=elapsed,
        finished_before=before,
        accepted_before=before,
    )
