"""Narrated play: the loop around Algorithm 1 of the paper.

One answer writes the whole trajectory. On a violation the next answer continues from the verified prefix and is given
what was wrong; a violation that keeps no prefix, such as too few mistakes, starts over.
"""

from itertools import takewhile

from refinesynth.backends.role import Role
from refinesynth.client.tracing import ACCEPTED, span
from refinesynth.episode.play import EpisodeContext, EpisodeSettings, Play, Turns
from refinesynth.roles import Narrator
from refinesynth.rules.rule import Violation, rejects
from refinesynth.trajectory import Draft, DraftTurn, MalformedTurn, Script


class NarratedPlay(Play):
    """One call writes both voices, as the paper does."""

    name = "narrated"

    def voices(self, settings: EpisodeSettings) -> tuple[Role, ...]:
        del settings
        return (Role.NARRATOR,)

    async def play(self, context: EpisodeContext, /, script: Script, start: Turns = ()) -> Draft | None:
        narrator, verifier, record = narrator_of(context), context.verifier, context.record
        verified, violations = start, tuple[Violation, ...]()
        while record.drafts < context.settings.attempts.drafts:
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


NARRATED = NarratedPlay()


def narrator_of(context: EpisodeContext) -> Narrator:
    """One that is never asked for fewer mistakes than its rules want."""
    wanted = context.settings.prompts.required.get("EnoughMistakes", {}).get("minimum", 0)
    episode = context.settings.place(context.session.index) + context.number
    drawn = context.settings.mistakes.count(episode=episode, seed=context.session.seed)
    minimum = max(drawn, wanted)
    return context.actor(Narrator, Role.NARRATOR, minimum=minimum, seed=context.session.seed)


def _well_formed(turns: tuple[DraftTurn, ...]) -> Turns:
    """The turns before the first malformed one: rules of the user's may let one pass, a prefix may not hold it."""
    kept = takewhile(lambda turn: not isinstance(turn, MalformedTurn), turns)
    return tuple(turn for turn in kept if not isinstance(turn, MalformedTurn))
