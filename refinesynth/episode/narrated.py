"""Narrated play: the loop around Algorithm 1 of the paper.

One answer writes the whole trajectory. On a violation the next answer continues from the verified prefix and is told what
was wrong; a violation that keeps no prefix, such as too few mistakes, starts over.
"""

from itertools import takewhile

from refinesynth.episode.record import Record
from refinesynth.episode.settings import EpisodeSettings
from refinesynth.roles import Narrator, Verifier
from refinesynth.rules.rule import Violation, rejects
from refinesynth.tracing import ACCEPTED, span
from refinesynth.trajectory import Draft, DungeonMasterTurn, MalformedTurn, PlayerTurn, Script


async def play_narrated(
    narrator: Narrator,
    verifier: Verifier,
    script: Script,
    record: Record,
    settings: EpisodeSettings,
    *,
    start: tuple[PlayerTurn | DungeonMasterTurn, ...] = (),
) -> Draft | None:
    """The first draft that is accepted, or None when the attempts are used up.

    It begins with `start`, which was verified and is not taken back.
    """
    verified = start
    violations: tuple[Violation, ...] = ()
    while record.drafts < settings.attempts.drafts:
        record.begin_draft(after=len(verified))
        with span("attempt", stage="draft", number=record.drafts) as attempt:
            draft = await narrator.tell(script, verified, violations=violations)
            verdict = await verifier.verify(draft)
            attempt.set_attribute(ACCEPTED, verdict.accepted)
        if verdict.accepted:
            return draft
        record.refuse_draft(draft, verdict.violations)
        verified = _well_formed(draft.turns[: max(len(start), verdict.verified_turns)])
        violations = tuple(filter(rejects, verdict.violations))
    return None


def _well_formed(
    turns: tuple[PlayerTurn | DungeonMasterTurn | MalformedTurn, ...],
) -> tuple[PlayerTurn | DungeonMasterTurn, ...]:
    """The turns before the first malformed one: rules of the user's may let one pass, a prefix may not hold it."""
    kept = takewhile(lambda turn: not isinstance(turn, MalformedTurn), turns)
    return tuple(turn for turn in kept if not isinstance(turn, MalformedTurn))
