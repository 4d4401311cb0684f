"""Outcomes to put into a run folder."""

from refinesynth.outcome import EpisodeOutcome, Refused
from refinesynth.rules import Severity, Violation
from refinesynth.run import RunConfig
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
    environment={"shelf": ["pot"]},
    goal="Take the pot.",
    completion_conditions=("the pot is held",),
    actions=(ActionSpec(name="take {item}", pattern=r"^take (\w+)$", parameters={"item": ("pot",)}),),
)

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
    return Trajectory(
        id=f"{index:06d}",
        persona=persona,
        script=SCRIPT,
        turns=(
            PlayerTurn(thought="Perhaps the pan?\n\u2028", action="take pan"),
            DungeonMasterTurn(
                thought="no pan",
                observation="There is no pan.",
                parameter_error=True,
                place_error=False,
                logic_error=False,
            ),
            PlayerTurn(thought="Then the pot.", action="take pot"),
            DungeonMasterTurn(
                thought="fine", observation="Task Succeed", parameter_error=False, place_error=False, logic_error=False
            ),
        ),
        provenance=Provenance(
            models={"player": "rehearsal"},
            play="live",
            seed=index,
            rules="strict()",
            package_version="0",
            attempts=1,
            script_attempts=1,
        ),
    )


def outcome(index: int, *, accepted: bool = True, cost: float | None = 0.5) -> EpisodeOutcome:
    """An episode with one unreadable script, one script that two rules refused, and two refused drafts."""
    persona = Persona(text=f"Somebody with the number {index}")
    draft = Draft(script=SCRIPT, turns=(PlayerTurn(thought="?", action="take pan"),))
    refused = (
        Refused(episode=f"{index:06d}", persona=persona, stage="script", attempt=1, text="no JSON"),
        Refused(
            episode=f"{index:06d}",
            persona=persona,
            stage="script",
            attempt=2,
            script=SCRIPT,
            violations=(violation("UniqueNames"), violation("UniqueNames"), violation("ActionCount")),
        ),
        Refused(
            episode=f"{index:06d}",
            persona=persona,
            stage="draft",
            attempt=1,
            draft=draft,
            violations=(violation("TaskSucceed"), violation("NoLeaks", severity=Severity.WARN)),
        ),
        Refused(
            episode=f"{index:06d}",
            persona=persona,
            stage="draft",
            attempt=2,
            draft=draft,
            violations=(violation("TaskSucceed"),),
        ),
    )
    return EpisodeOutcome(
        index=index,
        id=f"{index:06d}",
        persona=persona,
        trajectory=trajectory(index, persona) if accepted else None,
        refused=refused,
        reason=None if accepted else "too many drafts were refused",
        usage=Usage(requests=4, input_tokens=1000, cached_tokens=10, output_tokens=100),
        cost_usd=cost,
    )
