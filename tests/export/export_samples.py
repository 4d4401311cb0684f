"""Trajectories to export."""

from hypothesis import strategies as st

from refinesynth.testing import turns, valid_drafts
from refinesynth.trajectory import (
    ActionSpec,
    Draft,
    DungeonMasterTurn,
    MalformedTurn,
    Persona,
    PlayerTurn,
    Provenance,
    Script,
    Trajectory,
    Usage,
)

SCRIPT = Script(
    introduction="You are in a kitchen.",
    environment={"mug": "shelf", "depth": {"a": [1, {"b": None}]}},
    goal="Bring the mug to the table.",
    completion_conditions=("the mug is on the table",),
    actions=(
        ActionSpec(
            name="take {item}", description="Pick up.", pattern="take (.+)", parameters={"item": ("mug", "spoon")}
        ),
        ActionSpec(name="look", pattern="look"),
    ),
)


def act(action: str, thought: str = "I try it.") -> PlayerTurn:
    return PlayerTurn(thought=thought, action=action)


def see(observation: str, flag: str = "") -> DungeonMasterTurn:
    return DungeonMasterTurn(
        thought="So it goes.",
        observation=observation,
        parameter_error=flag == "parameter",
        place_error=flag == "place",
        logic_error=flag == "logic",
    )


def provenance(**changes: object) -> Provenance:
    usual = Provenance(
        models={"player": "gpt-4o", "dungeon_master": "rehearsal"},
        play="live",
        seed=7,
        rules="strict(min_refinements=2)",
        package_version="0.1.0",
        attempts=1,
        script_attempts=1,
        usage=Usage(requests=9, input_tokens=1_000, cached_tokens=10, output_tokens=200),
        cost_usd=0.25,
    )
    return usual.model_copy(update=changes)


def trajectory(*played: PlayerTurn | DungeonMasterTurn, id: str = "000001-abc") -> Trajectory:  # noqa: A002
    return Trajectory(
        id=id, persona=Persona(text="a cook"), script=SCRIPT, turns=played or REFINED, provenance=provenance()
    )


REFINED = (
    act("take moon"),
    see("There is no moon.", "parameter"),
    act("take spoon"),
    see("You hold a spoon already.", "logic"),
    act("look"),
    see("A mug stands on the shelf."),
    act("take mug"),
    see("You have it. Task Succeed"),
)
"""Mistake, mistake, then two right turns."""


def of_draft(draft: Draft) -> Trajectory:
    """A draft without malformed turns as an accepted trajectory."""
    kept = tuple(turn for turn in draft.turns if not isinstance(turn, MalformedTurn))
    return Trajectory(
        id="000002-def", persona=Persona(text="a cook"), script=draft.script, turns=kept, provenance=provenance()
    )


def any_trajectories() -> st.SearchStrategy[Trajectory]:
    """Valid ones, and turns in any order with any text that a file can hold."""
    wild = (
        st.lists(turns(surrogates=False), min_size=1, max_size=8)
        .map(lambda drawn: Draft(script=SCRIPT, turns=tuple(drawn)))
        .filter(lambda draft: any(not isinstance(turn, MalformedTurn) for turn in draft.turns))
    )
    return (valid_drafts() | wild).map(of_draft)
