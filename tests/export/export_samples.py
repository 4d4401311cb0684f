"""Trajectories to export."""

from hypothesis import strategies as st
from samples import accepted, dm, player, provenance, trajectory

from refinesynth.testing import turns, valid_drafts
from refinesynth.trajectory import (
    ActionSpec,
    Draft,
    DungeonMasterTurn,
    MalformedTurn,
    PlayerTurn,
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


ORIGIN = provenance(
    models={"player": "gpt-4o", "dungeon_master": "rehearsal"},
    seed=7,
    rules="strict(min_refinements=2)",
    package_version="0.1.0",
    usage=Usage(requests=9, input_tokens=1_000, cached_tokens=10, output_tokens=200),
    cost_usd=0.25,
)

REFINED = (
    player("take moon"),
    dm("There is no moon.", "parameter"),
    player("take spoon"),
    dm("You hold a spoon already.", "logic"),
    player("look"),
    dm("A mug stands on the shelf."),
    player("take mug"),
    dm("You have it. Task Succeed"),
)
"""Mistake, mistake, then two right turns."""


def a_trajectory(*played: PlayerTurn | DungeonMasterTurn, id: str = "000001-abc") -> Trajectory:  # noqa: A002
    return trajectory(*(played or REFINED), script=SCRIPT, id=id, origin=ORIGIN)


def of_draft(draft: Draft) -> Trajectory:
    """A draft without malformed turns as an accepted trajectory."""
    return accepted(draft, id="000002-def", origin=ORIGIN)


def any_trajectories() -> st.SearchStrategy[Trajectory]:
    """Valid ones, and turns in any order with any text that a file can hold."""
    wild = (
        st.lists(turns(surrogates=False), min_size=1, max_size=8)
        .map(lambda drawn: Draft(script=SCRIPT, turns=tuple(drawn)))
        .filter(lambda draft: any(not isinstance(turn, MalformedTurn) for turn in draft.turns))
    )
    return (valid_drafts() | wild).map(of_draft)
