"""Write scripts whose worlds can be executed."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from refinesynth.episode.record import Record
from refinesynth.episode.scripting import until_accepted
from refinesynth.episode.settings import EpisodeSettings
from refinesynth.roles import RulebookWriter
from refinesynth.rules.rule import Verdict, Violation, verify
from refinesynth.rules.rulebooks import RulebookCompiles
from refinesynth.trajectory import Draft, Script

USUAL = (6, 12)
"""Fewest and most actions of a solution that are asked for where nothing else is wanted."""


async def write_grounded(writer: RulebookWriter, record: Record, settings: EpisodeSettings) -> Script | None:
    """The first script that the script rules accept and whose world can be executed, or None when the attempts are used up."""

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


def _judge(settings: EpisodeSettings, script: Script) -> Verdict:
    """The verdict of the script rules; a script that cannot be executed is never accepted, whatever they are."""
    draft = Draft(script=script, finished=False)
    verdict = verify(draft, settings.script_rules)
    return verify(draft, RulebookCompiles()) if verdict.accepted else verdict
