"""Writing grounded scripts: each refused one goes back with its stage."""

from typing import Any

from samples import SHED_GROUNDED
from scripted import Answer, Scripted
from stage import grounded

from refinesynth import rules
from refinesynth.episode import EpisodeOutcome
from refinesynth.rules.rulebooks import (
    ActionsUsable,
    GoalFitsConditions,
    NotYetDone,
    RulebookCompiles,
    RulebookRuns,
    SolutionWorks,
    Solvable,
)
from refinesynth.settings import Attempts
from refinesynth.trajectory import Script

STAGES = rules.script() & rules.all_of(
    RulebookCompiles(),
    GoalFitsConditions(),
    RulebookRuns(),
    NotYetDone(),
    SolutionWorks(),
    Solvable(),
    ActionsUsable(),
)


def book(**parts: Any) -> Script:
    """The grounded script with another rulebook."""
    assert SHED_GROUNDED.rulebook is not None
    return SHED_GROUNDED.model_copy(update={"rulebook": SHED_GROUNDED.rulebook.model_copy(update=parts)})


async def write(*answers: Answer, **given: Any) -> tuple[EpisodeOutcome, Scripted]:
    stage = grounded()
    stage.writer = Scripted(answers)
    chosen: dict[str, Any] = {"script_rules": STAGES, "terse": True, "attempts": Attempts(scripts=4), **given}
    return await stage.play(**chosen), stage.writer


async def test_each_stage_goes_back_with_what_to_mend() -> None:
    unread, unsolved = book(goal=("state.inside.",)), book(solution=("open box", "put key on bench"))
    outcome, writer = await write(*(one.model_dump_json() for one in (unread, unsolved, SHED_GROUNDED)))
    assert outcome.accepted
    assert [refused.rejecting for refused in outcome.refused] == [("RulebookCompiles",), ("SolutionWorks",)]
    assert [refused.script for refused in outcome.refused] == [unread, unsolved]
    for asked, refused in zip(writer.asked[1:], outcome.refused, strict=True):
        assert asked.blocks["violations"] == [violation.message for violation in refused.violations]
        assert asked.blocks["previous"] == (refused.script and refused.script.model_dump(mode="json"))
        assert asked.blocks["wanted"] == writer.asked[0].blocks["wanted"]
