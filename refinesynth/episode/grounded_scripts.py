"""Write scripts whose worlds can be executed: in one call each, or the world first and then a goal for what can come about in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from refinesynth.episode.reach import reachable
from refinesynth.episode.record import Record
from refinesynth.episode.scripting import invalid_answer, judged, traced, until_accepted
from refinesynth.episode.settings import EpisodeSettings
from refinesynth.roles import InvalidAnswer, RulebookWriter
from refinesynth.rules.chains import script as script_chain
from refinesynth.rules.rule import Verdict, Violation, all_of, rejects, verify
from refinesynth.rules.rulebooks import (
    ActionsUsable,
    DifficultyBand,
    GoalFitsConditions,
    NotYetDone,
    RulebookCompiles,
    RulebookRuns,
    SolutionWorks,
    Solvable,
    ValuesExist,
)
from refinesynth.trajectory import Draft, Script
from refinesynth.world import world_of

USUAL = (6, 12)
"""Fewest and most actions of a solution that are asked for where nothing else is wanted."""

_OF_THE_WORLD = (RulebookCompiles(), GoalFitsConditions(), ValuesExist(), RulebookRuns())
"""Stages that a world passes before it has a goal."""

_OF_THE_GOAL = frozenset(
    rule.__name__
    for rule in (
        RulebookCompiles,
        GoalFitsConditions,
        ValuesExist,
        RulebookRuns,
        NotYetDone,
        SolutionWorks,
        Solvable,
        DifficultyBand,
    )
)
"""Stages that another goal may mend, once the world has passed those of its own."""


async def write_grounded(writer: RulebookWriter, record: Record, settings: EpisodeSettings) -> Script | None:
    """The first script that the script rules accept and whose world can be executed, or None when the attempts are used up."""
    if settings.two_steps:
        return await _TwoSteps(writer, record, settings).write()

    async def write(violations: Sequence[Violation], previous: Script | None) -> Script:
        wanted = wanted_of(settings, record.session.index)
        return await writer.write(record.persona, wanted=wanted, violations=violations, previous=previous)

    return await until_accepted(write, partial(_judge, settings), record, settings)


def wanted_of(settings: EpisodeSettings, index: int) -> dict[str, Any]:
    """What is asked of the script of episode `index` besides its persona."""
    return {
        "features": list(settings.mix.wanted(index, settings.seed)),
        "actions": list(settings.difficulty or USUAL),
    }


@dataclass
class _TwoSteps:
    """A world that runs is kept while goals for it are refused, until one is refused for what only another world can mend.

    A world and its first goal are one attempt.
    """

    writer: RulebookWriter
    record: Record
    settings: EpisodeSettings
    _world: Script | None = None
    _previous: Script | None = None
    _told: tuple[Violation, ...] = ()

    async def write(self) -> Script | None:
        while self.record.scripts < self.settings.attempts.scripts:
            self.record.begin_script()
            try:
                if self._world is None and not await self._new_world():
                    continue
                script = await traced(self._write_goal, self._told, self._previous, self.record)
            except InvalidAnswer as error:
                self._previous, self._told = None, (invalid_answer(0, error),)
                self.record.refuse_script(None, self._told, text=str(error))
                continue
            verdict = judged(script, partial(_judge, self.settings))
            if verdict.accepted:
                return script
            self._refuse(script, verdict)
            if any(violation.rule not in _OF_THE_GOAL for violation in self._told):
                self._world = None
        return None

    async def _new_world(self) -> bool:
        """Whether a world was written that runs; else it was refused."""
        world = await traced(self._write_world, self._told, self._previous, self.record)
        verdict = judged(world, _judge_world)
        if verdict.accepted:
            self._world, self._previous, self._told = world, None, ()
            return True
        self._refuse(world, verdict)
        return False

    def _refuse(self, script: Script, verdict: Verdict) -> None:
        self.record.refuse_script(script, verdict.violations)
        self._previous, self._told = script, tuple(filter(rejects, verdict.violations))

    async def _write_world(self, violations: Sequence[Violation], previous: Script | None) -> Script:
        return await self.writer.write_world(
            self.record.persona, wanted=self._wanted, violations=violations, previous=previous
        )

    async def _write_goal(self, violations: Sequence[Violation], previous: Script | None) -> Script:
        if self._world is None:
            raise RuntimeError("a goal is written for a world, and there is none")
        return await self.writer.write_goal(
            self.record.persona,
            self._world,
            reachable(world_of(self._world)),
            wanted=self._wanted,
            violations=violations,
            previous=previous,
        )

    @property
    def _wanted(self) -> dict[str, Any]:
        return wanted_of(self.settings, self.record.session.index)


def _judge(settings: EpisodeSettings, script: Script) -> Verdict:
    """The verdict of the script rules; a script that cannot be executed is never accepted, whatever they are."""
    draft = Draft(script=script, finished=False)
    verdict = verify(draft, settings.script_rules)
    return verify(draft, RulebookCompiles()) if verdict.accepted else verdict


def _judge_world(script: Script) -> Verdict:
    """The verdict on a world that has no goal yet."""
    draft = Draft(script=script, finished=False)
    verdict = verify(draft, all_of(script_chain(), *_OF_THE_WORLD))
    if not verdict.accepted:
        return verdict
    usable = ActionsUsable()  # asked directly: of a script, it is asked after the goal
    found = tuple(usable.fault(code, message) for code, message in usable.faults(script))
    return Verdict(accepted=not found, violations=(*verdict.violations, *found), verified_turns=0)
